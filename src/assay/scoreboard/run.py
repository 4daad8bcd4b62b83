"""Running a scoreboard: witnesses first, then verdicts and screens, as far as the time goes."""

from __future__ import annotations

import os
import queue
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from dataclasses import dataclass

from assay.mutants.witness import Answer, find
from assay.pool import Done, Job, Pool
from assay.scoreboard.cases import Case, kernel_of
from assay.scoreboard.rows import Row, Rows, about, of_screen, of_verdict
from assay.screen import ScreenVariant
from assay.verify import Options
from assay.vocabulary import EffortTier

SCREENS = tuple(ScreenVariant)
SEED = 20_260
AHEAD = 64
"""Witnessed mutants that may wait for a judge."""
GRACE_SECONDS = 40.0
"""What runs when the time is up may take this long to end; its result is kept."""

Progress = Callable[[str, int, int], None]


@dataclass(frozen=True)
class Effort:
    """How much to run.

    Attributes:
        tiers: tiers of verdicts.
        screens: variants of the screen, on mutants and published cases.
        workers: judges.
        searchers: processes that look for witnesses.
        device: `cpu` or `cuda`, where candidates are judged; witnesses are looked for under emulation.
        seconds: nothing further is begun after so long; None for no limit.
    """

    tiers: tuple[EffortTier, ...] = (EffortTier.STANDARD,)
    screens: tuple[ScreenVariant, ...] = SCREENS
    workers: int = 0
    searchers: int = 0
    seconds: float | None = None
    device: str = "cpu"

    @property
    def judges(self) -> int:
        """Judges: three for four processors, unless a number was given."""
        return self.workers or max(1, 3 * (os.cpu_count() or 2) // 4)

    @property
    def witnesses(self) -> int:
        """Searching processes."""
        return self.searchers or max(1, (os.cpu_count() or 2) // 4)


def run(cases: Sequence[Case], rows: Rows, effort: Effort, progress: Progress | None = None) -> None:
    """Judge what has no row yet, and append a row for each result.

    Cases that are no mutants come in turn with them, so that a run that ends early has some of each.
    """
    began = time.monotonic()
    stopped = threading.Event()

    def late() -> bool:
        return stopped.is_set() or (effort.seconds is not None and time.monotonic() - began > effort.seconds)

    waiting: queue.Queue[Case | None] = queue.Queue(AHEAD)
    searched = [c for c in cases if c.mutant is not None and rows.get("witness", c.id) is None]
    ready = [c for c in cases if c.mutant is None or _witnessed(rows.get("witness", c.id))]
    by_id = {c.id: c for c in cases}

    def answered(answer: Answer) -> None:
        case = by_id[answer.mutant.id]
        row: Row = {
            "type": "witness", **about(case), "how": answer.how, "where": answer.where, "seconds": answer.seconds,
            "ratio": answer.ratio if answer.ratio < float("inf") else None, "problem": answer.problem,
            "line": answer.mutant.line, "note": answer.mutant.note, "digest": answer.mutant.digest,
        }
        if answer.problem and late():
            return
        rows.add(row)
        while answer.witnessed and not stopped.is_set():
            try:
                waiting.put(case, timeout=0.5)
                break
            except queue.Full:
                continue

    def search() -> None:
        try:
            find(((c.reference, kernel_of(c), c.mutant) for c in searched if c.mutant is not None),
                 effort.witnesses, answered, late)
        finally:
            while not stopped.is_set():
                try:
                    waiting.put(None, timeout=0.5)
                    break
                except queue.Full:
                    continue

    searcher = threading.Thread(target=search, daemon=True)
    if searched and not late():
        searcher.start()
    else:
        waiting.put(None)

    def jobs() -> Iterator[Job | None]:
        """What to judge, ready cases and newly found ones in turn; None while there is nothing new."""
        known, searching = iter(ready), True
        while True:
            case = next(known, None)
            if case is not None:
                yield from _jobs(case, rows, effort)
            found: Case | None = None
            if searching:
                try:
                    found = waiting.get_nowait()
                    searching = found is not None
                except queue.Empty:
                    if case is None:
                        yield None
            if found is not None:
                yield from _jobs(found, rows, effort)
            elif case is None and not searching:
                return

    try:
        with Pool(workers=effort.judges) as pool:
            _judge(pool, jobs(), late, lambda result: _keep(result, by_id, rows), progress)
    finally:
        stopped.set()
        if searcher.is_alive():
            searcher.join(60.0)


def _judge(pool: Pool, jobs: Iterator[Job | None], late: Callable[[], bool], keep: Callable[[Done], None],
           progress: Progress | None) -> None:
    """Have jobs decided until there are none, or until it is late; what runs then may end within a grace."""
    pending: set[Future[Done]] = set()
    done, exhausted, grace = 0, False, 0.0
    while pending or not exhausted:
        while not exhausted and len(pending) < 2 * pool.workers + 2:
            if late():
                exhausted, grace = True, time.monotonic() + GRACE_SECONDS
                for future in pending:
                    future.cancel()
                break
            try:
                job = next(jobs)
            except StopIteration:
                exhausted = True
                break
            if job is None:
                break
            pending.add(pool.submit(job))
        if not pending:
            time.sleep(0.0 if exhausted else 0.2)
            continue
        ended, pending = wait(pending, timeout=0.5, return_when=FIRST_COMPLETED)
        for future in ended:
            if not future.cancelled():
                keep(future.result())
                done += 1
                if progress is not None:
                    progress("judging", done, 0)
        if not exhausted and late():
            exhausted, grace = True, time.monotonic() + GRACE_SECONDS
            for future in pending:
                future.cancel()
        if grace and time.monotonic() > grace:
            return


def _witnessed(row: Row | None) -> bool:
    return row is not None and bool(row["how"]) and row["how"] != "stillborn"


def _jobs(case: Case, rows: Rows, effort: Effort) -> Iterator[Job]:
    """What is still to be done for a case."""
    where = "/cuda" if effort.device == "cuda" else ""
    for tier in effort.tiers:
        if rows.get("verdict", case.id, tier.value + where) is None:
            yield Job(f"verdict|{case.id}|{tier.value}", case.task, case.parsed, case.promised,
                      Options(device=effort.device, tier=tier, seed=SEED + case.seed))
    if case.group == "control":
        return
    for variant in effort.screens:
        if rows.get("screen", case.id, variant.value + where) is None:
            yield Job(f"screen|{case.id}|{variant.value}", case.task, case.parsed, kind="screen",
                      options=Options(device=effort.device), variant=variant, precision=case.precision)


def _keep(done: Done, by_id: dict[str, Case], rows: Rows) -> None:
    type, id, which = done.job.id.split("|")
    if done.problem and done.at_fault == "judge":
        # our own fault: it is tried again the next time
        return
    rows.add((of_verdict if type == "verdict" else of_screen)(by_id[id], which, done.job.options.device, done))
