"""Running an audit: every row gets its checks, each result is kept before the next is counted.

The order is by task, so that the candidates of one task share their oracle. Killed at any moment, the same
command goes on where it was.
"""

from __future__ import annotations

import contextlib
from collections import Counter, deque
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, CancelledError, Future, wait
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from assay import seeds
from assay.audit import sampling
from assay.audit.classes import classify
from assay.audit.corpus import Corpus
from assay.audit.jobs import Jobs, checked
from assay.audit.outcome import Checks, verdict_of
from assay.audit.settings import Settings, difference
from assay.audit.store import Kept, Store
from assay.contract import Contract
from assay.errors import InputError
from assay.pool import Done, Job
from assay.verify import Options
from assay.vocabulary import EffortTier

AHEAD = 4
"""Jobs queued or running at once, per worker."""


class Backend(Protocol):
    """Where jobs are decided."""

    workers: int

    def submit(self, job: Job) -> Future[Done]:
        """Queue a job; the future holds how it ended, and raises for nothing but its cancellation."""
        ...

    def close(self) -> None:
        """End everything that runs."""
        ...


@dataclass
class Progress:
    """How far an audit is.

    Attributes:
        phase: `reading`, `classes`, `running` or `tables`.
        done: rows that need nothing more.
        total: rows to run.
        before: rows that were done when this run began.
        counts: verdicts of the battery (of the first screen, where nothing else runs) so far.
    """

    phase: str = "reading"
    done: int = 0
    total: int = 0
    before: int = 0
    counts: Counter[str] = field(default_factory=Counter)


Show = Callable[[Progress], None]


def open_audit(store: Store, corpus: Corpus | None, settings: Settings, show: Show | None = None) -> Settings:
    """Read a corpus into a new audit, or check that an old one is of this corpus and these settings.

    Args:
        store: the audit, open for writing.
        corpus: the corpus; None to go on with the one that was read.
        settings: what is asked for; a seed of None takes the old one.
        show: called as it goes on.

    Returns:
        The settings of the audit, with its seed.

    Raises:
        InputError: the audit in this folder is another one.
    """
    tell = show or _quiet
    kept = store.get("settings")
    if kept is not None:
        old = Settings.from_json(kept)
        if settings.seed is None:
            settings = replace(settings, seed=old.seed)
        if settings != old:
            raise InputError(f"the audit in this folder has other settings: {difference(old, settings)}",
                             str(store.folder), "use the same ones, or another folder")
        if corpus is not None and store.get("corpus") not in (None, corpus.digest):
            raise InputError("the audit in this folder is of another corpus, or its files have changed",
                             str(store.folder), "use another folder")
    else:
        settings = replace(settings, seed=seeds.draw(settings.seed).value)
        store.set("settings", settings.to_json())
    if store.get("ingested") is None:
        if corpus is None:
            raise InputError("the corpus of this audit was not read to its end", str(store.folder),
                             "run the command with the corpus again")
        store.set("corpus", corpus.digest)
        store.set("source", f"{corpus.format} {corpus.path}")
        tell(Progress("reading"))
        count = store.ingest(checked(corpus.rows()))
        if count == 0:
            raise InputError("the corpus has no rows", str(corpus.path), "give one with candidates")
        store.set("ingested", str(count))
    if store.get("chosen") is None:
        _choose(store, settings, tell)
        store.set("chosen", str(store.count(chosen=True)))
    return settings


def _choose(store: Store, settings: Settings, tell: Show) -> None:
    """Say which rows the audit is about: those that the corpus accepts, or a sample of them."""
    def eligible(row: Kept) -> bool:
        return settings.everything or row.accepted is not False

    if settings.sample is None:
        store.choose([row.position for row in store.rows() if eligible(row)])
        return
    if settings.stratify == "op_class":
        store.choose([row.position for row in store.rows() if eligible(row)])
        infer_classes(store, tell)
    items = ((column(row, settings.stratify) if settings.stratify else "all", row.position)
             for row in store.rows() if eligible(row))
    store.choose(sampling.draw(items, settings.sample, settings.seed or 0))


COLUMNS = ("op_class", "generator", "run", "task", "created", "entry")


def column(row: Kept, name: str) -> str:
    """The value of a column of the corpus as text. Raises InputError where no row could have it."""
    if name in COLUMNS:
        value = getattr(row, name)
    elif name in row.extra:
        value = row.extra[name]
    else:
        known = ", ".join([*COLUMNS, *sorted(row.extra)])
        raise InputError(f"row {row.id} has no column `{name}`", "--stratify", f"use one of {known}")
    return "none" if value is None else str(value)


def infer_classes(store: Store, tell: Show) -> None:
    """Give each chosen task without a class the one that its reference's operators say, in a worker of its own."""
    from assay.run.process import Zygote
    from assay.run.reference import ReferenceFailed, ReferenceSession
    from assay.task import TaskError, parse_task

    open_tasks = store.unclassified()
    if not open_tasks:
        return
    progress = Progress("classes", total=len(open_tasks))
    with Zygote() as zygote:
        for key, reference, entry, name in open_tasks:
            tell(progress)
            op_class, note = "unknown", None
            with contextlib.ExitStack() as stack:
                try:
                    task = parse_task(store.source(reference) or "", entry=entry, path=f"{name}.py", id=name)
                    session = ReferenceSession(zygote, task)
                    stack.callback(session.close)
                    op_class = classify(_operators(session))
                except (TaskError, InputError) as error:
                    note = str(error)
                except ReferenceFailed as error:
                    note = str(error)[:300]
            store.classify(key, op_class, note)
            progress.done += 1
    tell(progress)


def _operators(session: Any) -> dict[str, int]:
    """How often each operator occurs in one call of a reference at small sizes."""
    from assay.probe.model import Draw

    study = session.study(budget_s=0.0)
    truth = session.truth(dict(study.small), None, Draw(seed=0), 0)
    return dict(truth.ops)


def run_audit(store: Store, settings: Settings, backend: Backend, show: Show | None = None) -> Progress:
    """Run every check that is still due; returns how it ended.

    Args:
        store: an audit that was opened with `open_audit`.
        settings: its settings.
        backend: where jobs are decided; not closed.
        show: called after every result.
    """
    tell = show or _quiet
    checks = settings.checks
    contract = None if settings.contract is None else Contract.from_data(settings.contract, "--contract")
    jobs = Jobs(store.source, _options(settings), settings.seed or 0, contract)
    progress = Progress("running", total=_runnable(store))
    todo = _Todo(store, checks, progress)
    limit = AHEAD * backend.workers
    pending: dict[Future[Done], tuple[Kept, str]] = {}
    tell(progress)
    try:
        while True:
            while len(pending) < limit and (next_one := todo.take()) is not None:
                row, kind = next_one
                try:
                    job = jobs.make(row, kind)
                except InputError as error:
                    todo.settle(row, kind, {"report": None, "problem": str(error), "at_fault": "input"}, 0.0)
                    continue
                pending[backend.submit(job)] = (row, kind)
            if not pending:
                break
            for future in wait(pending, return_when=FIRST_COMPLETED).done:
                row, kind = pending.pop(future)
                try:
                    done = future.result()
                except CancelledError:
                    # the backend is being closed under us: what is not kept is run next time
                    raise KeyboardInterrupt from None
                todo.settle(row, kind, _outcome(done), done.seconds)
                tell(progress)
    finally:
        for future in pending:
            future.cancel()
    tell(progress)
    return progress


def _options(settings: Settings) -> Options:
    """As options of a verification."""
    return Options(device=settings.device, tier=EffortTier(settings.tier), only=settings.only,
                   timeout=settings.timeout, target=settings.target, sandbox=settings.sandbox)


def _runnable(store: Store) -> int:
    return sum(1 for row in store.rows(chosen=True) if row.problem is None)


def _outcome(done: Done) -> dict[str, Any]:
    report = done.report
    return {"report": None if report is None else report.model_dump(mode="json"), "problem": done.problem,
            "at_fault": done.at_fault}


class _Todo:
    """What is still to run, in order: what a finished check opens first, then the next row."""

    def __init__(self, store: Store, checks: Checks, progress: Progress) -> None:
        self._store, self._checks, self._progress = store, checks, progress
        self._rows: Iterator[Kept] = (r for r in store.rows(by_task=True, chosen=True) if r.problem is None)
        self._ready: deque[tuple[Kept, str]] = deque()
        self._asked: dict[str, set[str]] = {}
        self._verdicts: dict[str, dict[str, str]] = {}

    def take(self) -> tuple[Kept, str] | None:
        """The next check to run; None when nothing can be begun now."""
        while not self._ready:
            row = next(self._rows, None)
            if row is None:
                return None
            self._verdicts[row.id] = self._store.verdicts(row.id)
            self._asked[row.id] = set()
            if not self._open(row):
                self._progress.before += 1
        return self._ready.popleft()

    def _open(self, row: Kept) -> bool:
        """Queue what is due of a row; False when the row is done."""
        due = self._checks.due(self._verdicts[row.id])
        new = [kind for kind in due if kind not in self._asked[row.id]]
        self._asked[row.id].update(new)
        self._ready.extendleft((row, kind) for kind in reversed(new))
        if not due:
            verdicts = self._verdicts.pop(row.id)
            del self._asked[row.id]
            self._progress.done += 1
            decisive = verdicts.get(self._checks.decisive)
            self._progress.counts[decisive or "screened out"] += 1
        return bool(due)

    def settle(self, row: Kept, kind: str, outcome: dict[str, Any], seconds: float) -> None:
        """Keep a result, on the disk, and queue what it opens."""
        verdict = verdict_of(outcome)
        self._store.finish(row.id, kind, verdict, outcome, seconds)
        self._verdicts[row.id][kind] = verdict
        self._open(row)


def _quiet(progress: Progress) -> None:
    return None

