"""What a benchmark knows of a task before any contender is there: study, draws with truths, weights, cost."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass, replace

from assay.bench.cache import TaskCache
from assay.bench.draws import Known, known_draws
from assay.bench.options import BenchOptions
from assay.contract import Contract
from assay.contract.domain import declared
from assay.errors import InputError
from assay.planning import restricted
from assay.run.candidate import Weights
from assay.run.cost import Cost
from assay.run.reference import ReferenceFailed
from assay.run.references import References
from assay.task import Task
from assay.task.facts import Study
from assay.verify import numerics

TRUTH_SHARE = 0.25
"""Share of the time that truths may take before no more are made."""


@dataclass(frozen=True)
class Learned:
    """What is known of a task at some sizes.

    Attributes:
        study: of the task, narrowed by the contract.
        known: draws with their truths.
        weights: constructor arguments and weights.
        cost: bytes and operations of a forward; None where no roofline is wanted.
        key: everything that it depends on.
    """

    study: Study
    known: Known
    weights: Weights
    cost: Cost | None
    key: str = ""


def learned(task: Task, contract: Contract, options: BenchOptions, device: str, references: References, seed: int,
            tasks: TaskCache[Learned] | None, enter: Callable[[str], None]) -> Learned:
    """Study a task and evaluate its reference on new draws, or take what was kept of that.

    Args:
        task: the task.
        contract: merged with what the task states.
        options: how to time.
        device: `cpu` or `cuda`.
        references: reference workers.
        seed: of the draws.
        tasks: where it may be kept.
        enter: told the phase that begins.

    Raises:
        InputError: the task or a size is at fault, or its outputs cannot be checked.
    """

    key = json.dumps([task.digest, contract.model_dump(mode="json"), options.sizes, options.pairs, seed, device,
                      options.light], sort_keys=True)

    def make() -> Learned:
        try:
            return replace(_learn(task, contract, options, device, references, seed, enter), key=key)
        except ReferenceFailed as error:
            raise InputError(f"the reference failed: {error}", task.shown, "make it run on its own") from None

    return make() if tasks is None else tasks.get(key, make)


def _learn(task: Task, contract: Contract, options: BenchOptions, device: str, references: References, seed: int,
           enter: Callable[[str], None]) -> Learned:
    enter("study")
    reference = references.session(task, numerics(contract), device=device)
    study = restricted(reference.study(), contract)
    reference.declare(study, declared(study, contract))
    unknown = set(options.sizes) - {size.name for size in study.integers}
    if unknown:
        raise InputError(f"the task has no size `{min(unknown)}`", "--size",
                         f"one of {', '.join(s.name for s in study.integers) or 'none'}")
    enter("truths")
    known = known_draws(reference, study, options.sizes, numbers(seed, 2 * options.pairs),
                        TRUTH_SHARE * options.seconds)
    return Learned(study, known, reference.weights(options.sizes),
                   reference.cost(options.sizes, 0) if options.light else None)


def numbers(seed: int, count: int) -> list[int]:
    """Seeds of draws, all different, that nobody knows who does not know the seed."""
    return [int.from_bytes(hashlib.sha256(f"{seed}/bench/{i}".encode()).digest()[:4], "big") >> 1
            for i in range(count)]
