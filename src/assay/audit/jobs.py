"""From rows to jobs: what is parsed, with what seed, and why a row cannot be run at all."""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import lru_cache

from assay.audit.corpus import CorpusRow
from assay.audit.outcome import BATTERY, REFERENCE_FAULT, SCREEN
from assay.audit.store import Kept
from assay.contract import Contract
from assay.errors import InputError
from assay.pool import Job
from assay.screen import ScreenVariant
from assay.task import Task, TaskError, parse_candidate, parse_task
from assay.verify import Options

Source = Callable[[str | None], str | None]
"""Looks a source up by its digest."""
PARSED = 64


def task_seed(seed: int, task_key: str) -> int:
    """The seed of every verdict on one task, 31 bits, from the audit's seed.

    One for all candidates of a task, so that they are asked the same questions and share the answers of the
    oracle; a row's verdict does not depend on when, where or after what it ran.
    """
    return int.from_bytes(hashlib.sha256(f"{seed}/{task_key}".encode()).digest()[:4], "big") >> 1


def refusal(reference: str | None, entry: str) -> str | None:
    """Why a reference cannot be run, as the problem of its rows; None where nothing speaks against it."""
    if reference is None:
        return "no reference source"
    try:
        ast.parse(reference)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        return f"{REFERENCE_FAULT}{type(error).__name__}: {error}"[:300]
    try:
        parse_task(reference, entry=entry)
    except TaskError as error:
        # sound Python that is no task: there is nothing to run it on
        return error.what
    return None


def checked(rows: Iterable[CorpusRow]) -> Iterator[CorpusRow]:
    """Rows as they are, and why those cannot be run that cannot: reads sources, runs none."""
    said = lru_cache(PARSED)(refusal)
    for row in rows:
        problem = row.problem or said(row.reference, row.entry)
        if problem is None and row.contract is not None:
            try:
                Contract.from_data(row.contract)
            except InputError as error:
                problem = f"its contract: {error.what}"[:300]
        yield row if problem == row.problem else replace(row, problem=problem)


class Jobs:
    """Makes the jobs of an audit.

    Args:
        source: looks a source up by its digest.
        options: how to verify; the seed is set by row.
        seed: the audit's seed.
        contract: obligations for every row; None for those that the corpus states, or the defaults.
    """

    def __init__(self, source: Source, options: Options, seed: int, contract: Contract | None = None) -> None:
        self._source, self._options, self._seed, self._contract = source, options, seed, contract
        self._task = lru_cache(PARSED)(self._parse)

    def _parse(self, key: str, reference: str, entry: str, name: str) -> Task:
        return parse_task(self._source(reference) or "", path=f"{name}.py", entry=entry, id=name)

    def make(self, row: Kept, kind: str) -> Job:
        """The job of one check of a row. Raises InputError where the row cannot be run."""
        if row.reference is None or row.candidate is None:
            raise InputError("no source", row.id)
        task = self._task(row.task_key, row.reference, row.entry, row.task)
        candidate = parse_candidate(self._source(row.candidate) or "", path=f"{row.id}.py",
                                    entries=task.candidate_entries, strict=False, id=row.id)
        options = replace(self._options, seed=task_seed(self._seed, row.task_key))
        id = f"{row.position}/{kind}"
        if kind == BATTERY:
            contract = self._contract
            if contract is None and row.contract is not None:
                contract = Contract.from_data(row.contract, row.id)
            return Job(id, task, candidate, contract, options)
        return Job(id, task, candidate, None, options, "screen", ScreenVariant(kind.removeprefix(SCREEN)))
