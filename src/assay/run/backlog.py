"""Probes that are ready to run, and which of a candidate's processes runs which: one that has compiled for them."""

from __future__ import annotations

import threading
import time
from collections import deque
from dataclasses import dataclass, field
from typing import Generic, TypeVar

T = TypeVar("T")

AHEAD = 4
"""Jobs that wait, whatever they hold."""
FAR_AHEAD = 24
FAR_BYTES = 256 << 20
"""Jobs that wait where they hold less than these bytes together."""
PATIENCE = 0.1
"""Seconds that a process waits for a job of its own before it takes another's: about what compiling takes."""


@dataclass(frozen=True)
class _Waiting(Generic[T]):
    job: T
    kind: str
    size: int


@dataclass
class Backlog(Generic[T]):
    """A queue with one producer and several takers, bounded by number and bytes.

    Jobs of one kind go to the taker that had the first of them, while it is not far behind: kernels are compiled
    for sizes, dtypes and strides, in each process anew. A taker without a job of its own takes a kind that nobody
    has had; when there is none, it waits `PATIENCE` seconds and then takes the oldest job of another's.

    Args:
        apart: whether kinds count; without it, jobs are taken in the order they came in, and few wait.
    """

    apart: bool = False
    _waiting: deque[_Waiting[T]] = field(default_factory=deque)
    _owners: dict[str, set[int]] = field(default_factory=dict)
    _changed: threading.Condition = field(default_factory=threading.Condition)
    _closed: bool = False

    def put(self, job: T, kind: str = "", size: int = 0) -> None:
        """Add a job once there is room.

        Args:
            job: what a taker gets.
            kind: jobs alike are best taken by one taker.
            size: bytes that it holds.
        """
        with self._changed:
            self._changed.wait_for(self._room)
            self._waiting.append(_Waiting(job, kind, size))
            self._changed.notify_all()

    def close(self) -> None:
        """Say that nothing more comes."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def take(self, taker: int) -> T | None:
        """The next job of a taker, by its number; None when all are taken and nothing more comes."""
        end = time.monotonic() + PATIENCE
        with self._changed:
            while True:
                if self._waiting:
                    found = self._of(taker, others=not self.apart or time.monotonic() >= end)
                    if found is not None:
                        self._waiting.remove(found)
                        self._owners.setdefault(found.kind, set()).add(taker)
                        self._changed.notify_all()
                        return found.job
                    self._changed.wait(max(0.001, end - time.monotonic()))
                elif self._closed:
                    return None
                else:
                    self._changed.wait()
                    end = time.monotonic() + PATIENCE

    def _room(self) -> bool:
        count = len(self._waiting)
        far = self.apart and count < FAR_AHEAD and sum(w.size for w in self._waiting) < FAR_BYTES
        return count < AHEAD or far

    def _of(self, taker: int, others: bool) -> _Waiting[T] | None:
        """The oldest of a taker's own jobs, or of nobody's, or of all where it may take others'."""
        if self.apart:
            own = next((w for w in self._waiting if taker in self._owners.get(w.kind, ())), None)
            found = own or next((w for w in self._waiting if w.kind not in self._owners), None)
            if found is not None:
                return found
        return self._waiting[0] if others else None
