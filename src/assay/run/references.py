"""Reference workers that outlive a verdict, for many candidates of few tasks."""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Sequence
from typing import Any

from assay.oracle.cache import TruthCache
from assay.run.ahead import Ahead, Wanted
from assay.run.candidate import CandidateSession
from assay.run.process import Zygote
from assay.run.reference import ReferenceSession
from assay.run.stub_cache import StubCache
from assay.task import Task

SESSIONS = 4
"""Reference workers kept at once."""


class References:
    """The reference sessions of the tasks seen last, each with its worker, study and weights.

    Not for use by two verifications at once. Use as a context manager, or call `close`.

    Args:
        zygote: the warm parent that workers are forked from.
        limit: sessions kept.

    Attributes:
        stubs: host code of launches for the next candidates on a GPU.
        ahead: workers for them.
    """

    def __init__(self, zygote: Zygote, limit: int = SESSIONS) -> None:
        self._zygote, self._limit = zygote, limit
        self.stubs = StubCache(zygote)
        self.ahead = Ahead(zygote, stubs=self.stubs)
        self._latest: list[list[Wanted]] = []
        self._kept: OrderedDict[str, ReferenceSession] = OrderedDict()
        self._ending: list[CandidateSession] = []

    def session(self, task: Task, numerics: dict[str, Any], *, device: str,
                cache: TruthCache | None = None) -> ReferenceSession:
        """The session of a task under some numerics; the same again for the same arguments."""
        key = json.dumps([task.digest, task.handle, task.path, numerics, device, cache is None], sort_keys=True)
        found = self._kept.pop(key, None)
        if found is None:
            found = ReferenceSession(self._zygote, task, numerics, device=device, cache=cache)
        self._kept[key] = found
        while len(self._kept) > self._limit:
            self._kept.popitem(last=False)[1].close()
        return found

    def expect(self, wanted: Sequence[Wanted]) -> None:
        """Remember what the workers of a candidate were started with."""
        self._latest = [*self._latest[-1:], list(wanted)]

    def leave(self, sessions: Sequence[CandidateSession]) -> None:
        """Take over the end of a candidate's sessions, so that its verdict need not wait for it."""
        self._let_go()
        for session in sessions:
            session.end()
        self._ending = list(sessions)

    def _let_go(self) -> None:
        while self._ending:
            self._ending.pop().close()

    def get_ready(self) -> None:
        """Start workers for the next candidate, where it will take the like of the last: while nobody waits.

        Host code that candidates had to have built is compiled beside that.

        Raises:
            RuntimeError: the warm parent is gone.
        """
        self._let_go()
        *before, last = self._latest or [[]]
        if last and (not last[0].hide or (before and {w.hide for w in before[0]} == {w.hide for w in last})):
            self.ahead.prepare(last)
        self.stubs.build()

    def drop(self, session: ReferenceSession) -> None:
        """End a session that may have been interrupted in the middle of a question."""
        for key in [k for k, kept in self._kept.items() if kept is session]:
            del self._kept[key]
        session.close()

    def close(self) -> None:
        """End all of them."""
        self._let_go()
        self.ahead.close()
        self.stubs.close()
        while self._kept:
            self._kept.popitem()[1].close()

    def __enter__(self) -> References:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
