"""Extensions that a candidate built, kept by the judge so that its other workers need not build them again."""

from __future__ import annotations

import re
import threading
from collections.abc import Sequence

from assay.oracle.cache import TruthCache, key_of
from assay.run.builds import LARGEST, MOST, NAME

_KEY = re.compile(r"[0-9a-f]{64}")


class BuildCache:
    """Builds of one candidate. What they hold was made by the candidate, and only ever goes back to it.

    Args:
        candidate: digest of its source; empty keeps nothing beyond this object.
        cache: where builds outlive a verification; None for nowhere.
    """

    def __init__(self, candidate: str = "", cache: TruthCache | None = None) -> None:
        self._cache = cache if candidate else None
        self._place = key_of("extensions", candidate)
        self._kept: dict[str, tuple[str, bytes]] = {}
        self._lock = threading.Lock()
        self._read = False

    def items(self) -> list[tuple[str, str, bytes]]:
        """All of them, as (key, name, shared object). The cache is first read here: most candidates build nothing."""
        if not self._read and self._cache is not None:
            found = self._cache.get(self._place)
            if found is not None:
                self._add(found[0].get("built"), memoryview(found[1]))
        self._read = True
        with self._lock:
            return [(key, name, data) for key, (name, data) in self._kept.items()]

    def take(self, described: object, payload: memoryview) -> None:
        """Keep what a worker offers at the end of its payload; what is not described properly is left.

        Args:
            described: list of [key, name, bytes], as the worker says.
            payload: what came with it; the builds are its end.
        """
        if described and self._add(described, payload) and self._cache is not None:
            kept = self.items()
            self._cache.put(self._place, {"built": [[key, name, len(data)] for key, name, data in kept]},
                            [memoryview(data) for _, _, data in kept])

    def _add(self, described: object, payload: memoryview) -> bool:
        """Whether anything new was kept."""
        if not isinstance(described, Sequence) or not 0 < len(described) <= MOST:
            return False
        for item in described:
            if not (isinstance(item, Sequence) and len(item) == 3 and isinstance(item[0], str)
                    and _KEY.fullmatch(item[0]) and isinstance(item[1], str) and NAME.fullmatch(item[1])
                    and type(item[2]) is int and 0 < item[2] <= LARGEST):
                return False
        total = sum(item[2] for item in described)
        if total > len(payload):
            return False
        rest, new = payload[len(payload) - total:], False
        with self._lock:
            for key, name, size in described:
                # the first build stays: a later one may not replace what other workers load
                if key not in self._kept and len(self._kept) < MOST:
                    self._kept[key], new = (name, bytes(rest[:size])), True
                rest = rest[size:]
        return new
