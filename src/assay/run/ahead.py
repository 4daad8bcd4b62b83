"""Workers started before their candidate is there, so that a verdict does not wait for processes and contexts."""

from __future__ import annotations

import json
import threading
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from assay.run.process import Death, Limits, Worker, Zygote
from assay.run.stub_cache import StubCache
from assay.run.wire import ready

KEPT = 4
"""Workers for one candidate at most."""
WARM_SECONDS = 60.0


@dataclass(frozen=True)
class Wanted:
    """What a candidate's worker is started with.

    Attributes:
        options: worker options.
        limits: resource limits.
        sandbox: mode of confinement; None for the warm parent's own.
        hide: files that the worker finds empty.
    """

    options: dict[str, Any]
    limits: Limits
    sandbox: str | None = None
    hide: tuple[str, ...] = ()

    @property
    def key(self) -> str:
        """The same for what may serve as well."""
        return json.dumps([self.options, self.limits.to_json(), self.sandbox, self.hide], sort_keys=True)

    def start(self, zygote: Zygote) -> Worker:
        """Fork a worker now. Raises as `Zygote.spawn`."""
        return zygote.spawn("candidate", options=self.options, limits=self.limits, confinement=self.sandbox,
                            hide=self.hide)


@dataclass
class _Started:
    worker: Worker
    thread: threading.Thread
    ready: list[bool] = field(default_factory=list)


class Ahead:
    """A few workers that no candidate has been in, with their device warm.

    Not for use by two verifications at once. Use as a context manager, or call `close`.

    Args:
        zygote: the warm parent that workers are forked from.
        limit: workers kept.
        stubs: launcher stubs for those on a GPU; None hands on none.
    """

    def __init__(self, zygote: Zygote, limit: int = KEPT, stubs: StubCache | None = None) -> None:
        self._zygote, self._limit, self._stubs = zygote, limit, stubs
        self._kept: OrderedDict[str, list[_Started]] = OrderedDict()
        self._taking = threading.Lock()

    def take(self, wanted: Wanted) -> Worker | None:
        """A worker that was started with just this; None where there is none that works."""
        while True:
            # the lanes of one candidate take theirs side by side
            with self._taking:
                started = self._kept.get(wanted.key)
                if not started:
                    return None
                found = started.pop()
            found.thread.join()
            # one that ended meanwhile has something to read on its channels
            if found.ready and not ready(found.worker.channel, 0) and not ready(found.worker.control, 0):
                return found.worker
            found.worker.close()

    def wait(self) -> None:
        """Wait until all that were started are warm, or have failed to be."""
        for started in [each for alike in self._kept.values() for each in alike]:
            started.thread.join()

    def prepare(self, wanted: Sequence[Wanted]) -> None:
        """Have a worker for each of these soon, and none for anything else beyond the limit."""
        need: OrderedDict[str, list[Wanted]] = OrderedDict()
        for each in wanted[: self._limit]:
            need.setdefault(each.key, []).append(each)
        for key, alike in need.items():
            have = self._kept.setdefault(key, [])
            self._kept.move_to_end(key)
            for each in alike[len(have):]:
                have.append(_warming(each, each.start(self._zygote), self._stubs))
        while sum(map(len, self._kept.values())) > self._limit:
            key, oldest = next(iter(self._kept.items()))
            if oldest:
                _end(oldest.pop(0))
            if not oldest:
                del self._kept[key]

    def close(self) -> None:
        """End all of them."""
        while self._kept:
            for started in self._kept.popitem()[1]:
                _end(started)

    def __enter__(self) -> Ahead:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _warming(wanted: Wanted, worker: Worker, stubs: StubCache | None) -> _Started:
    """A worker that warms up while others do something else."""
    ready: list[bool] = []
    on_gpu = wanted.options.get("device") == "cuda" and "mode" not in wanted.options

    def warm() -> None:
        kept, objects = stubs.offer(worker) if stubs is not None and on_gpu else (None, [])
        answer = worker.request({"op": "warm", "stubs": kept}, objects, timeout=WARM_SECONDS, payload_limit=1 << 10)
        if not isinstance(answer, Death) and answer.header.get("ok") is True:
            if kept is not None and stubs is not None:
                stubs.take(worker, answer.header.get("stubs"), wanted.sandbox, wanted.hide)
            ready.append(True)

    thread = threading.Thread(target=warm, daemon=True)
    thread.start()
    return _Started(worker, thread, ready)


def _end(started: _Started) -> None:
    started.worker.kill()
    started.thread.join()
    started.worker.close()
