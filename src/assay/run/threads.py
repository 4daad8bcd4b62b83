"""How many threads the judge's own tensor operations take."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import torch

_lock = threading.Lock()
_inside = 0
_before = 1


@contextmanager
def at_most(count: int) -> Iterator[None]:
    """Operations of torch in so many threads at most while inside, in this process.

    Comparisons of a few thousand elements gain nothing from more, and where workers already take every core, threads
    that wait for each other by spinning take several times as long. What was set before comes back when the last of
    several blocks at a time ends.
    """
    global _inside, _before
    with _lock:
        if _inside == 0:
            _before = torch.get_num_threads()
        _inside += 1
        torch.set_num_threads(min(count, _before))
    try:
        yield
    finally:
        with _lock:
            _inside -= 1
            if _inside == 0:
                torch.set_num_threads(_before)
