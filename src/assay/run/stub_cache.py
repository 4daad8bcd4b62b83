"""Launcher stubs that the judge has had compiled: for any candidate whose Triton needs the same.

Workers of candidates tell the sources of what they had to build, and nothing else of what they say is used. Each
source is compiled in a fresh worker of its own, confined as the one that told it, while nobody waits.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from assay.errors import InputError
from assay.oracle.cache import TruthCache, key_of
from assay.run.process import Death, Limits, Worker, Zygote
from assay.run.sandbox import Level
from assay.run.stubs import KEY, LARGEST, MOST, Stub, toolchain

ENTRIES = 256
SIZE = 32 << 20
"""Bytes of all objects together."""
PENDING = 32
"""Sources that may wait for being compiled; more are left, and come again where they are needed."""
REMEMBERED = 4096
"""Keys of stubs that do not compile, or that were read from disk once."""
SECONDS = 20.0
_LIMITS = Limits(file_bytes=16 << 20)


@dataclass(frozen=True)
class _Told:
    stub: Stub
    sandbox: str | None
    hide: tuple[str, ...]


class StubCache:
    """Objects of launcher stubs by what they are built from; the least recently used go first.

    Safe for any number of threads. Use as a context manager, or call `close`.

    Args:
        zygote: the warm parent that compiling workers are forked from.
        entries: stubs kept at most.
        size: bytes of all objects together.
        seconds: for compiling one stub.
    """

    def __init__(self, zygote: Zygote, entries: int = ENTRIES, size: int = SIZE, seconds: float = SECONDS) -> None:
        self._zygote, self._entries, self._limit, self._seconds = zygote, entries, size, seconds
        self._kept: OrderedDict[str, bytes] = OrderedDict()
        self._pending: OrderedDict[str, _Told] = OrderedDict()
        self._failed: OrderedDict[str, None] = OrderedDict()
        self._read: OrderedDict[str, None] = OrderedDict()
        self._cache: TruthCache | None = None
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._worker: Worker | None = None
        self._closed = False

    def share(self, cache: TruthCache | None) -> None:
        """Keep objects on disk as well, for other judges, and have theirs. None keeps them in this one alone."""
        if cache is None or (self._cache is not None and self._cache.directory == cache.directory):
            return
        # of its own, so that finding no stub is no missed truth
        self._cache = TruthCache(cache.directory, cache.limit)
        self._read_shared()

    def keys(self) -> list[str]:
        """Keys of all that is kept, the least recently used first."""
        with self._lock:
            return list(self._kept)

    def offer(self, worker: Worker) -> tuple[dict[str, Any] | None, list[memoryview]]:
        """What a worker was not given yet, as a part of a header and the bytes of the sealed objects.

        None for the header's part where this machine has no compiler: nothing is kept then.
        """
        tools = toolchain()
        if not tools:
            return None, []
        with self._lock:
            fresh = [(key, data) for key, data in self._kept.items() if key not in worker.stubs_given]
        worker.stubs_given.update(key for key, _ in fresh)
        return ({"toolchain": tools, "kept": [[key, len(data)] for key, data in fresh]},
                [memoryview(data) for _, data in fresh])

    def take(self, worker: Worker, described: object, sandbox: str | None = None, hide: Sequence[str] = ()) -> None:
        """Note what a worker says that it built and used; what is not described properly is left.

        So is all of it where candidates are not kept apart: one could reach what compiles for the others.

        Args:
            worker: who says so; heard of 16 sources at most.
            described: as of `Stubs.told`, or anything.
            sandbox: how the worker is confined, and so what compiles its sources: as of `Zygote.spawn`.
            hide: files that it finds empty.
        """
        tools = toolchain()
        if not isinstance(described, dict) or not tools or not _apart(self._zygote.level(sandbox)):
            return
        built, used = described.get("built"), described.get("used")
        for item in built[:MOST] if isinstance(built, list) else ():
            if worker.stubs_told >= MOST:
                break
            worker.stubs_told += 1
            try:
                stub = Stub.from_json(item)
            except ValueError:
                continue
            key = stub.key(tools)
            with self._lock:
                if key in self._kept:
                    self._kept.move_to_end(key)
                elif key not in self._failed and len(self._pending) < PENDING:
                    self._pending.setdefault(key, _Told(stub, sandbox, tuple(hide)))
        for key in used[:MOST] if isinstance(used, list) else ():
            with self._lock:
                if isinstance(key, str) and key in self._kept:
                    self._kept.move_to_end(key)

    def build(self) -> None:
        """Have compiled what is not known yet, and read what other judges have: in a thread, which this starts."""
        with self._lock:
            busy = self._thread is not None and self._thread.is_alive()
            if self._closed or busy or not (self._pending or self._cache is not None):
                return
            self._thread = threading.Thread(target=self._work, daemon=True)
            self._thread.start()

    def wait(self) -> None:
        """Wait until all that `build` began is done."""
        if self._thread is not None:
            self._thread.join()

    def _work(self) -> None:
        self._read_shared()
        new: set[str] = set()
        while not self._closed:
            with self._lock:
                if not self._pending:
                    break
                key, told = next(iter(self._pending.items()))
            try:
                sealed = self._shared(key) if key not in self._kept else b""
                if sealed is None and (sealed := self._compiled(key, told)):
                    new.add(key)
            except (RuntimeError, OSError, InputError):
                # no worker can be had: whoever needs the stub tells of it again
                break
            finally:
                with self._lock:
                    self._pending.pop(key, None)
            if sealed:
                self._add(key, sealed)
        if new:
            self._write_shared(new)

    def _compiled(self, key: str, told: _Told) -> bytes:
        """The sealed object of a stub, compiled by a worker of its own; empty where there is none."""
        worker = self._zygote.spawn("candidate", options={"mode": "stub"}, limits=_LIMITS,
                                    confinement=told.sandbox, hide=told.hide)
        with self._lock:
            self._worker = worker
            closed = self._closed
        try:
            if closed:
                return b""
            answer = worker.request({"op": "stub", "stub": told.stub.to_json()}, timeout=self._seconds,
                                    payload_limit=LARGEST)
        finally:
            with self._lock:
                self._worker = None
            worker.close()
        if not isinstance(answer, Death) and answer.header.get("ok") is True and answer.payload:
            return told.stub.sealed(toolchain(), bytes(answer.payload))
        if not self._closed and not (isinstance(answer, Death) and answer.kind in ("machine", "guardian_lost")):
            with self._lock:
                _remember(self._failed, key)
        return b""

    def _add(self, key: str, sealed: bytes) -> None:
        with self._lock:
            self._kept[key] = sealed
            self._kept.move_to_end(key)
            _remember(self._read, key)
            while len(self._kept) > self._entries or sum(map(len, self._kept.values())) > self._limit:
                self._kept.popitem(last=False)

    def _shared(self, key: str) -> bytes | None:
        """The sealed object that a judge has put on disk; None for none."""
        found = self._cache.get(key_of("stub", key)) if self._cache is not None else None
        return bytes(found[1]) if found is not None and 0 < len(found[1]) <= LARGEST else None

    def _listed(self) -> list[str]:
        """Keys of what judges with this compiler have put on disk, the latest last."""
        tools = toolchain()
        found = self._cache.get(key_of("stubs", tools)) if self._cache is not None and tools else None
        keys = found[0].get("keys") if found is not None else None
        return [key for key in keys if isinstance(key, str) and KEY.fullmatch(key)] if isinstance(keys, list) else []

    def _read_shared(self) -> None:
        """Have what is on disk and was never here; what was, and had to go, does not come back this way."""
        for key in self._listed()[-self._entries:]:
            if key not in self._kept and key not in self._read and (sealed := self._shared(key)) is not None:
                self._add(key, sealed)

    def _write_shared(self, new: set[str]) -> None:
        """Put on disk what was compiled just now, or before there was a place for it."""
        if self._cache is None:
            return
        with self._lock:
            kept = dict(self._kept)
        listed = self._listed()
        for key, sealed in kept.items():
            if key in new or key not in listed:
                self._cache.put(key_of("stub", key), {}, [sealed])
        # two that write at once may lose a key of one, which comes back with its next
        keys = [*(key for key in listed if key not in kept), *kept]
        self._cache.put(key_of("stubs", toolchain()), {"keys": keys[-ENTRIES:]}, [])

    def close(self) -> None:
        """End what is being compiled."""
        with self._lock:
            self._closed = True
            worker = self._worker
        if worker is not None:
            worker.kill()
        self.wait()

    def __enter__(self) -> StubCache:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _apart(level: Level) -> bool:
    """Whether no candidate can touch a process or a file of another worker."""
    return level.full or level.uid is not None


def _remember(keys: OrderedDict[str, None], key: str) -> None:
    keys[key] = None
    while len(keys) > REMEMBERED:
        keys.popitem(last=False)
