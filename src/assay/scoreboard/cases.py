"""What is judged: mutants, controls and cases remade from published sets, each as a task and a candidate."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

from assay import corpus
from assay.contract import Contract
from assay.corpus import Entry
from assay.mutants import HALF, OPERATORS, FaultKind, Mutant, mutants_of
from assay.mutants.experiments import integers
from assay.task import Candidate, Task, parse_candidate, parse_task

Group = Literal["mutant", "control", "seeded", "trick"]
TOGETHER = 8
"""Mutants of one subject that follow one another, so that a judge evaluates their reference once."""


@dataclass(frozen=True)
class Case:
    """One candidate and what is known of it.

    Attributes:
        id: unique name.
        group: `mutant`, `control`, `seeded` (a bug of a published corpus) or `trick` (a cheat of one).
        kind: fault kind of a mutant, kind of a control, or what a published case is about.
        operator: mutation operator; empty for others.
        subject: operator that the task computes.
        dtype: dtype of the task.
        reference: source of the task.
        candidate: source of the candidate.
        contract: what the candidate promises, as data.
        mutant: the mutant, where it is one.
        right: whether it has to be accepted.
        seed: which of several verdicts on the same candidate.
    """

    id: str
    group: Group
    kind: str
    operator: str
    subject: str
    dtype: str
    reference: str
    candidate: str
    contract: dict[str, Any] = field(default_factory=dict)
    mutant: Mutant | None = None
    right: bool = False
    seed: int = 0

    @property
    def task(self) -> Task:
        """The task."""
        return parse_task(self.reference, id=self.subject)

    @property
    def parsed(self) -> Candidate:
        """The candidate."""
        return parse_candidate(self.candidate, id=self.id, strict=False)

    @property
    def promised(self) -> Contract:
        """The contract."""
        return Contract.from_data(self.contract)

    @property
    def precision(self) -> str:
        """Precision that a screen casts to."""
        return {"bfloat16": "bf16", "float16": "fp16"}.get(self.dtype, "fp32")


def mutants(seed: int = 0, most: int = 4, names: Iterable[str] | None = None) -> list[Case]:
    """Every mutant of the corpus, in an order of which any beginning is a fair sample.

    The fp32 entries take every operator; the bf16 ones those whose faults are of half precision. Each round takes
    a few mutants of each subject, whose operators were not used for it before.
    """
    wanted = list(names) if names is not None else list(corpus.names())
    queues: list[list[Case]] = []
    for entry in corpus.entries(("float32", "bfloat16")):
        if entry.name not in wanted:
            continue
        operators = OPERATORS if entry.dtype == "float32" else [o for o in OPERATORS if o.name in HALF]
        found = list(mutants_of(entry.id, entry.kernel, integers(entry.reference), most=most, operators=operators))
        source = random.Random(f"{seed}/{entry.id}")
        source.shuffle(found)
        found.sort(key=lambda m: m.number)
        queues.append([_mutant(entry, m) for m in found])
    ordered: list[Case] = []
    turn = random.Random(f"{seed}/order")
    while any(queues):
        turn.shuffle(queues)
        for queue in queues:
            ordered += queue[:TOGETHER]
            del queue[:TOGETHER]
    return ordered


def _mutant(entry: Entry, mutant: Mutant) -> Case:
    return Case(mutant.id, "mutant", mutant.kind.value, mutant.operator, entry.name, entry.dtype, entry.reference,
                mutant.source, corpus.CONTRACTS.get(entry.name, {}), mutant)


def kernel_of(case: Case) -> str:
    """The right kernel that a mutant was made of."""
    return corpus.entry(case.subject, case.dtype).kernel


def faults_first(cases: Iterable[Case]) -> Iterator[Case]:
    """Precision faults before others: they are what a screen misses."""
    listed = list(cases)
    yield from (c for c in listed if c.kind == FaultKind.PRECISION)
    yield from (c for c in listed if c.kind != FaultKind.PRECISION)
