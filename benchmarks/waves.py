"""Load several at a time, then time them one at a time."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

Ready = TypeVar("Ready")
Row = dict[str, Any]


def in_waves(names: Sequence[str], load: Callable[[str], Ready], measure: Callable[[str, Ready], Row],
             write: Callable[[list[Row]], object], *, jobs: int, seconds: float, began: float) -> list[Row]:
    """One row for each name, in turn; fewer where the time is over.

    Args:
        names: what to time.
        load: makes one ready to be timed.
        measure: times what is ready, while nothing else is loaded or timed.
        write: given all rows so far, after each.
        jobs: how many are loaded at a time.
        seconds: nothing more is loaded after this long.
        began: since when, by `time.perf_counter`.
    """
    rows: list[Row] = []
    with ThreadPoolExecutor(jobs) as pool:
        for start in range(0, len(names), jobs):
            if time.perf_counter() - began > seconds:
                break
            some = names[start:start + jobs]
            for name, ready in zip(some, list(pool.map(load, some)), strict=True):
                rows.append(measure(name, ready))
                print(f"{time.perf_counter() - began:6.1f} {json.dumps(rows[-1])}", flush=True)
                write(rows)
    return rows
