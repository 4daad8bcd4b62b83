"""Study a task: run its reference a few times and write down what was learnt.

Runs the task's own code, so it belongs in the reference worker; what it returns is plain data.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from assay.probe.beside import BESIDE, beside, varying
from assay.probe.structure import ENOUGH_ELEMENTS, Structure, infer
from assay.task import callables, integers
from assay.task.behaviour import Behaviour, observe, weaknesses
from assay.task.describe import (
    Axes,
    cost_of,
    describe_inputs,
    describe_outputs,
    describe_parameters,
    describe_size,
    mode_matters,
)
from assay.task.facts import (
    Study,
    Weakness,
)
from assay.task.integers import TaskInteger
from assay.task.model import Task, TaskError
from assay.task.sizing import explore, reduce, weight
from assay.task.tree import leaves
from assay.task.trial import Lab, Trial, forward, state_of

NATIVE_ELEMENTS = 1 << 21
"""Inputs and parameters of at most this many elements are made at the native sizes."""
SMALL_ELEMENTS = 1 << 14
"""What reduced sizes aim at."""
CHEAP_SECONDS = 3e-3
"""A forward up to this is repeated at its own sizes rather than at reduced ones."""
SLOW_SECONDS = 0.4
"""A native forward expected to take longer is not run; a study with a larger budget waits longer in proportion."""
USUAL_BUDGET = 3.0
"""Seconds for trying sizes that a verification has."""


def study(
    task: Task, *, seeds: Sequence[int] = (0, 1, 2), budget_s: float = USUAL_BUDGET, max_elements: int = 1 << 28
) -> Study:
    """Run a task a few times and describe it.

    Args:
        task: the task.
        seeds: seeds of the inputs whose structure is inferred; at least two.
        budget_s: seconds of this process's own work after which no further sizes are tried.
        max_elements: most elements made where the sizes cannot be reduced.

    Raises:
        TaskError: the file cannot be executed, ``get_inputs`` or ``get_init_inputs`` raises, or the
            constructor does not take its arguments. A reference whose forward raises is described instead.
    """
    lab = Lab(task, budget_s, NATIVE_ELEMENTS)
    found = (
        callables.integers_of(task) if task.format == "callable" else integers.find(task.source, task.entry)
    )
    free = [integer for integer in found if integer.status == "free" and integer.value is not None]
    native = {integer.name: integer.value for integer in free if integer.value is not None}
    base, small = _choose(lab, native, max_elements)
    lab.extend(budget_s / 2)
    lab.ceiling = max(lab.ceiling, 4 * weight(small))
    if base.instance is None or base.inputs is None:
        raise TaskError(f"too large to run: {base.error}", task.shown, "give it smaller sizes")
    values = {**native, **small.sizes}
    explored = explore(lab, small, free, values) if small.accepted else {}
    samples = _draw(base, seeds)
    structures = [infer(group) for group in samples]
    structures = _tie_ranges(lab, small, structures, free, values)
    seen = _observe(small, seeds[0])
    axes = Axes(small, base, explored, native)
    outputs = describe_outputs(small, axes, seen)
    slow = SLOW_SECONDS * max(1.0, budget_s / USUAL_BUDGET)
    weak, seconds = _weak(lab, base, small, sum(math.prod(leaf.shape) for leaf in outputs), seeds, slow)
    facts = Study(
        task=task.digest,
        inputs=describe_inputs(base, axes, structures),
        outputs=outputs,
        parameters=describe_parameters(small, axes),
        init_tensors=tuple(
            ".".join(map(str, path))
            for path, value in base.instance.init.leaves()
            if isinstance(value, Tensor)
        ),
        sizes=base.sizes,
        small=small.sizes,
        random=seen.random if seen else False,
        stateful=seen.stateful if seen else (),
        training=bool(getattr(small.model, "training", False)),
        mode_matters=mode_matters(small.model),
        mutates=seen.mutates if seen else (),
        weak=weak,
        raises=None if small.accepted else small.error,
        notes=("the time budget ended before every size was tried",) if lab.out_of_time else (),
    )
    ranges = {s.high_axis: position for position, s in enumerate(structures) if s.high_axis is not None}
    described = tuple(describe_size(integer, base, explored, small, facts, axes, ranges) for integer in found)
    facts = facts.model_copy(update={"integers": described})
    facts = facts.model_copy(update={"cost": cost_of(facts, seconds)})
    return facts.model_copy(update={"beside": _beside(lab, facts) if small.accepted else {}})


def _choose(lab: Lab, native: Mapping[str, int], max_elements: int) -> tuple[Trial, Trial]:
    """The trial whose inputs are described (native where it fits) and a cheap accepted trial."""
    made = lab.run({}, upto="model", ceiling=NATIVE_ELEMENTS)
    if made.error and not made.too_large:
        raise _as_error(lab.task, made)
    small: Trial | None = None
    if made.too_large:
        small = reduce(lab, native, elements=SMALL_ELEMENTS)
        if small is not None:
            return small, small
        made = lab.run({}, upto="model", ceiling=max_elements)
        if made.error:
            return made, made
    weight = sum(t.numel() for t in made.inputs.tensors()) if made.inputs else 0
    weight += sum(t.numel() for _, t in state_of(made.model))
    if weight > SMALL_ELEMENTS // 4:
        small = reduce(lab, native, elements=SMALL_ELEMENTS)
        if small is not None:
            return made, small
    full = lab.run({}, ceiling=max_elements)
    if full.accepted and full.seconds > CHEAP_SECONDS:
        small = reduce(lab, native, elements=SMALL_ELEMENTS)
        if small is not None and small.seconds > full.seconds / 2:
            small = None
    return full, small or full


def _as_error(task: Task, trial: Trial) -> Exception:
    """The exception that stopped a trial, to be raised."""
    if trial.fault is not None:
        return trial.fault
    return TaskError(trial.error, task.shown, "correct it")


def _draw(base: Trial, seeds: Sequence[int]) -> list[list[Tensor]]:
    """Samples of every tensor input; more seeds while the inputs are too few to say anything."""
    assert base.instance is not None
    assert base.inputs is not None
    drawn = [base.instance.inputs(seed) for seed in seeds]
    counts = [tensor.numel() for tensor in drawn[0].tensors()]
    extra = seeds[-1] + 1
    while (
        counts and min(counts) * len(drawn) < 4 * ENOUGH_ELEMENTS and len(drawn) < 8 and sum(counts) < 1 << 17
    ):
        drawn.append(base.instance.inputs(extra))
        extra += 1
    return [list(group) for group in zip(*(inputs.tensors() for inputs in drawn), strict=False)]


def _tie_ranges(
    lab: Lab,
    small: Trial,
    structures: list[Structure],
    free: Sequence[TaskInteger],
    values: Mapping[str, int],
) -> list[Structure]:
    """Structures of index inputs, with the size that ends their range where one does.

    An index range is tied to a size when the largest index is that size less one at two other values of it.
    """
    tied = list(structures)
    for position, structure in enumerate(structures):
        if structure.kind != "integer" or structure.has("constant") or structure.low is None:
            continue
        if structure.low < 0 or structure.high is None:
            continue
        for integer in free:
            if integer.value is None or not structure.high < max(integer.value, values[integer.name]) + 1:
                continue
            ends = [_largest(lab, small, integer.name, value, position) for value in (3, 5)]
            offsets = {end - value for end, value in zip(ends, (3, 5), strict=True) if end is not None}
            if None not in ends and len(offsets) == 1 and -1 <= (offset := offsets.pop()) <= 0:
                tied[position] = structure.model_copy(
                    update={
                        "high_axis": integer.name,
                        "high_offset": offset,
                        "high": float(integer.value + offset),
                    }
                )
                break
    return tied


def _largest(lab: Lab, small: Trial, name: str, value: int, position: int) -> int | None:
    """Largest value of an input over a few seeds with one integer changed; None if it cannot be made."""
    trial = lab.run({**small.sizes, name: value}, upto="inputs")
    if trial.instance is None or trial.inputs is None:
        return None
    ends = []
    for seed in range(6):
        try:
            tensors = trial.instance.inputs(seed).tensors()
        except (TaskError, MemoryError):
            return None
        if position >= len(tensors) or not tensors[position].numel():
            return None
        ends.append(int(tensors[position].max()))
    return max(ends)


def _observe(small: Trial, seed: int) -> Behaviour | None:
    """How the reference behaves; None where it does not run, or only without gradients."""
    if not small.accepted or small.instance is None:
        return None
    try:
        return observe(small.instance, small.instance.inputs(seed))
    except (TaskError, MemoryError):
        return None


def _weak(
    lab: Lab, base: Trial, small: Trial, outputs: int, seeds: Sequence[int], slow: float
) -> tuple[tuple[Weakness, ...], float | None]:
    """Weaknesses, at the native sizes where that is cheap enough, and the native forward's seconds.

    Args:
        outputs: elements of the native outputs, as the axes foretell.
        slow: seconds from which a forward is not run again.
    """
    if not small.accepted:
        return (), None
    at = small
    affordable = small is not base and not base.sizes and outputs <= 2 * NATIVE_ELEMENTS
    if affordable and small.seconds * _growth(small, base, outputs) < slow:
        at = lab.run({}, ceiling=0)
    if not at.accepted or at.instance is None:
        return (), None
    if at.seconds > slow:
        return (), None if at.sizes else at.seconds
    with torch.no_grad():
        model = at.instance.build()
        one = forward(at.instance, model, at.instance.inputs(seeds[0]))
        two = forward(at.instance, model, at.instance.inputs(seeds[1]))
    return weaknesses(one, two, at.instance.inputs(seeds[0])), None if at.sizes else at.seconds


def _growth(small: Trial, base: Trial, outputs: int) -> float:
    """How much longer a native forward may take; that of a product grows with the root of its output too."""

    def grown(before: Sequence[Tensor], after: Sequence[Tensor]) -> float:
        return max(1.0, sum(t.numel() for t in after) / max(1, sum(t.numel() for t in before)))

    assert small.inputs is not None
    assert base.inputs is not None
    inputs = grown(small.inputs.tensors(), base.inputs.tensors())
    parameters = grown([t for _, t in state_of(small.model)], [t for _, t in state_of(base.model)])
    made = sum(value.numel() for _, value in leaves(small.outputs) if isinstance(value, Tensor))
    return inputs * parameters * math.sqrt(max(1.0, outputs / max(1, made)))


def _beside(lab: Lab, facts: Study) -> dict[str, int]:
    """Small sizes accepted together: all near one value, else one size after the other from accepted ones."""
    for value in (BESIDE, 7, 5, 3):
        sizes = beside(facts, value)
        if sum(facts.elements(sizes)) <= SMALL_ELEMENTS and lab.run(sizes).accepted:
            return sizes
    wanted = beside(facts, 7)
    sizes = dict(facts.small)
    for group in varying(facts, ("size",)):
        attempt = {**sizes, **{name: wanted[name] for name in group}}
        if attempt != sizes and not lab.out_of_time and lab.run(attempt).accepted:
            sizes = attempt
    return sizes
