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
    last: bool


@dataclass
class Backlog(Generic[T]):
    """A queue with one producer and several takers, bounded by number and bytes.

    Jobs of one kind go to the taker that had the first of them, while it is not far behind: kernels are compiled
    for sizes, dtypes and strides, in each process anew. A taker without a job of its own takes a kind that nobody
    has had; when there is none, it waits `PATIENCE` seconds and then takes the oldest job of another's. A job that
    uses its process up is taken when no other is left.

    Args:
        apart: whether kinds count; without it, jobs are taken in the order they came in, and few wait.
        owners: takers that have had a kind already.
    """

    apart: bool = False
    owners: dict[str, set[int]] = field(default_factory=dict)
    _waiting: deque[_Waiting[T]] = field(default_factory=deque)
    _changed: threading.Condition = field(default_factory=threading.Condition)
    _closed: bool = False

    def put(self, job: T, kind: str = "", size: int = 0, last: bool = False) -> None:
        """Add a job once there is room.

        Args:
            job: what a taker gets.
            kind: jobs alike are best taken by one taker.
            size: bytes that it holds.
            last: whether it uses up the process that runs it.
        """
        with self._changed:
            self._changed.wait_for(self._room)
            self._waiting.append(_Waiting(job, kind, size, last))
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
                found = self._of(taker, others=time.monotonic() >= end)
                if found is not None:
                    self._waiting.remove(found)
                    self.owners.setdefault(found.kind, set()).add(taker)
                    self._changed.notify_all()
                    return found.job
                if self._waiting and not all(w.last for w in self._waiting):
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
        if not self.apart:
            return self._waiting[0] if self._waiting else None
        waiting = [w for w in self._waiting if not w.last]
        own = next((w for w in waiting if taker in self.owners.get(w.kind, ())), None)
        found = own or next((w for w in waiting if w.kind not in self.owners), None)
        if found is not None:
            return found
        if waiting:
            return waiting[0] if others else None
        return self._waiting[0] if self._waiting and (self._closed or not self._room()) else None
