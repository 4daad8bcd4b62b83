"""Which kernels a GPU ran and for how long: from the profiler, or from events round what is seen being launched."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

MOST = 40
PAIRS = 2000
"""Launches and operations of one call that are timed; those after them are not."""


class KernelTimes:
    """Profiles a stretch of work. Where the profiler does not reach the device, nothing is seen."""

    def __init__(self) -> None:
        self._profile: Any = None
        self.kernels: list[list[Any]] | None = None

    def __enter__(self) -> KernelTimes:
        self.kernels = None
        torch.cuda.synchronize()
        try:
            self._profile = torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA])
            self._profile.__enter__()
        except Exception:
            self._profile = None
        return self

    def __exit__(self, *exc: object) -> None:
        profile, self._profile = self._profile, None
        if profile is None:
            return
        try:
            torch.cuda.synchronize()
        finally:
            profile.__exit__(None, None, None)
        times: dict[str, int] = {}
        for event in profile.events():
            if str(event.device_type).endswith("CUDA"):
                nanoseconds = round(1000 * float(event.device_time_total))
                times[event.name[:200]] = times.get(event.name[:200], 0) + nanoseconds
        self.kernels = [[name, spent] for name, spent in sorted(times.items(), key=lambda item: -item[1])[:MOST]]


class EventTimes:
    """Times launches and operations by a pair of events each, which costs less than to start the profiler.

    A pair also counts what the device waits for the next command, so that short work seems longer than it is.
    What is captured into a graph is not timed.
    """

    def __init__(self) -> None:
        self._pairs: list[tuple[str, torch.cuda.Event, torch.cuda.Event]] = []

    @contextmanager
    def around(self, name: str) -> Iterator[None]:
        """Time what is queued on the current stream meanwhile, under a name; own kernels have the empty one."""
        if len(self._pairs) >= PAIRS or torch.cuda.is_current_stream_capturing():
            yield
            return
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
        start.record()
        yield
        end.record()
        self._pairs.append((name, start, end))

    def take(self) -> tuple[int, dict[str, int]]:
        """Nanoseconds of own kernels, and of others by name, since the last question. The device is idle by now."""
        spent: Counter[str] = Counter()
        for name, start, end in self._pairs:
            spent[name] += round(1e6 * start.elapsed_time(end))
        self._pairs.clear()
        return spent.pop("", 0), dict(spent.most_common(MOST))
