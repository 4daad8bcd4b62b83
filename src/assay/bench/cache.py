"""What is kept of the tasks seen last, for many candidates of few tasks."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Generic, TypeVar

T = TypeVar("T")


@dataclass
class _Turn:
    """Threads that ask for one key."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    threads: int = 0


class TaskCache(Generic[T]):
    """Keeps what was made for the tasks seen last. Thread-safe. Use as a context manager, or call `close`.

    Args:
        limit: values kept; the one asked for longest ago makes room.
        usable: whether a kept value may be given again; None for always.
        close_one: ends a value that is replaced or makes room; None where nothing need be ended.
    """

    def __init__(self, limit: int = 4, *, usable: Callable[[T], bool] | None = None,
                 close_one: Callable[[T], None] | None = None) -> None:
        self._limit, self._usable, self._close_one = limit, usable, close_one
        self._lock = threading.Lock()
        self._kept: OrderedDict[str, T] = OrderedDict()
        self._making: dict[str, _Turn] = {}

    def get(self, key: str, make: Callable[[], T]) -> T:
        """What is kept under a key, or is made now, by one thread at a time. What `make` raises is not kept."""
        with self._turn(key):
            with self._lock:
                if key in self._kept and (self._usable is None or self._usable(self._kept[key])):
                    self._kept.move_to_end(key)
                    return self._kept[key]
            made = make()
            with self._lock:
                old = [self._kept.pop(key)] if key in self._kept else []
                self._kept[key] = made
                while len(self._kept) > self._limit:
                    old.append(self._kept.popitem(last=False)[1])
            self._end(old)
            return made

    def close(self) -> None:
        """End all of them."""
        with self._lock:
            old = list(self._kept.values())
            self._kept.clear()
        self._end(old)

    @contextmanager
    def _turn(self, key: str) -> Iterator[None]:
        """Wait until no other thread makes what belongs to a key."""
        with self._lock:
            turn = self._making.setdefault(key, _Turn())
            turn.threads += 1
        try:
            with turn.lock:
                yield
        finally:
            with self._lock:
                turn.threads -= 1
                if not turn.threads:
                    del self._making[key]

    def _end(self, values: list[T]) -> None:
        if self._close_one is not None:
            for value in values:
                self._close_one(value)

    def __enter__(self) -> TaskCache[T]:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
