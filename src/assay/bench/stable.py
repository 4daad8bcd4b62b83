"""Baselines that stay loaded, for many candidates of few tasks."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable

from assay.bench.contender import Contender


class Stable:
    """Keeps the loaded and warm baselines of the tasks seen last. Use as a context manager, or call `close`.

    Several benchmarks may be prepared with it at a time; as always, only one may run.

    Args:
        limit: sets of baselines kept; of the tasks that are prepared at a time none may be left out.
    """

    def __init__(self, limit: int = 4) -> None:
        self._limit, self._lock = limit, threading.Lock()
        self._kept: OrderedDict[str, dict[str, Contender]] = OrderedDict()
        self._making: dict[str, threading.Lock] = {}

    def get(self, key: str, make: Callable[[], dict[str, Contender]]) -> dict[str, Contender]:
        """The baselines under a key, made by one thread at a time where there are none, or one of them ended."""
        with self._lock:
            making = self._making.setdefault(key, threading.Lock())
        with making:
            with self._lock:
                found = self._kept.get(key)
                if found is not None and all(c.usable for c in found.values()):
                    self._kept.move_to_end(key)
                    return found
            made = make()
            with self._lock:
                old = [self._kept.pop(key, {})]
                self._kept[key] = made
                while len(self._kept) > self._limit:
                    old.append(self._kept.popitem(last=False)[1])
            for contender in (c for group in old for c in group.values()):
                contender.close()
            return made

    def close(self) -> None:
        """End all of them."""
        with self._lock:
            groups = list(self._kept.values())
            self._kept.clear()
        for contender in (c for group in groups for c in group.values()):
            contender.close()

    def __enter__(self) -> Stable:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
