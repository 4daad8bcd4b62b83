"""Confront controls and faults with the oracle."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch.utils import _pytree as pytree

from assay import oracle
from assay.calibration.model import SHORT, Control, Fault, Half
from assay.oracle.compare import compare
from assay.oracle.reference import quiet_state
from assay.oracle.truth import POOLED, Evaluation, LeafTruth
from assay.probe import values
from assay.probe.structure import infer

MARGIN = 2.0
"""Every control of the calibration half must pass with a tolerance this many times smaller."""
DRAWS = 4
"""Draws of a task's own generator that a fault is tried on."""
JOINT, ALONE = 28, 14
"""Variations of all inputs together, and of one input, as many as the standard tier tries."""
STRUCTURE_SEEDS = (11, 12, 13)
"""Draws from which the structure of a task's inputs is inferred."""
ALONE_FIRST = ("wide10", "narrow", "all_negative", "constant_rows", "zeros")
"""Variations of one input that come first."""


@dataclasses.dataclass(frozen=True)
class ControlResult:
    """One control under the oracle."""

    name: str
    """Identity of the control."""
    operator: str
    """Its operator."""
    dtype: str
    """Its dtype, short."""
    data: str
    """Its data kind."""
    half: Half
    """Which half of the controls it belongs to."""
    native: bool
    """Whether it is the reference as torch runs it."""
    finding: bool
    """Whether the oracle holds something against it: a false alarm."""
    ratio: float
    """Largest error ÷ tolerance."""
    needed: float
    """Smallest λ with which it passes: the largest error beyond output rounding ÷ (b + c·rms(b))."""
    decided: float
    """Share of the elements that decide."""
    unmodelled: tuple[str, ...]
    """Operators that the replay treated conservatively."""


@dataclasses.dataclass(frozen=True)
class FaultResult:
    """One fault under the oracle."""

    name: str
    """What is wrong."""
    kind: str
    """`semantic` or `precision`."""
    caught: bool
    """Whether a finding stands, attributed to the right arithmetic where the fault is one of precision."""
    probes: int
    """Inputs tried until then."""
    on: str
    """The variation that showed it, or the attribution."""
    ratio: float
    """Error ÷ tolerance there, or the largest one met."""
    size: float
    """Relative root mean square error on the task's first draw."""


def leaves_of(value: Any) -> list[torch.Tensor]:
    """Leaves of an output as tensors on the CPU or where they are."""
    found = pytree.tree_leaves(value, is_leaf=lambda v: v is None)
    return [v if isinstance(v, torch.Tensor) else torch.as_tensor(v) for v in found]


def placed(inputs: Iterable[Any], device: str) -> list[Any]:
    """Inputs on a device."""
    return [v.to(device) if isinstance(v, torch.Tensor) else v for v in inputs]


def needed_factor(truth: LeafTruth, actual: torch.Tensor) -> float:
    """Smallest λ at which `actual` is within the tolerance of every decided element; infinite if none is."""
    result = compare(truth, actual)
    if result.n_decided == 0 or (result.ok and (truth.exact or truth.kind not in ("float", "complex"))):
        return 0.0
    if truth.exact or truth.kind not in ("float", "complex") or math.isinf(result.ratio):
        return math.inf
    error = actual.to(truth.y.dtype) - truth.y
    decided = truth.decided
    if error.is_complex():
        error, decided = torch.view_as_real(error), decided.unsqueeze(-1).expand(*decided.shape, 2)
    beyond = torch.nan_to_num(error).abs() - truth.unit * truth.magnitude - truth.floor
    level = truth.spread + POOLED * truth.pooled
    factor = torch.where(beyond > 0, beyond / level, torch.zeros_like(beyond))
    return float(factor[decided].max())


def measure_control(control: Control, evaluation: Evaluation, inputs: list[Any]) -> ControlResult:
    """Run a control on `inputs` and compare it with the evaluation of its reference there."""
    # Convolutions use TF32 on a GPU unless told otherwise: that is another precision than declared.
    with quiet_state(), torch.no_grad():
        actual = leaves_of(control.candidate(*inputs))
    pairs = list(zip(evaluation.leaves, actual, strict=True))
    results = [compare(truth, value) for truth, value in pairs]
    total = sum(r.n for r in results)
    return ControlResult(
        name=control.name,
        operator=control.operator,
        dtype=SHORT[control.dtype],
        data=control.data,
        half=control.half,
        native=control.algorithm == "native",
        finding=not all(r.ok for r in results),
        ratio=max(r.ratio for r in results),
        needed=max(needed_factor(truth, value) for truth, value in pairs),
        decided=sum(r.n_decided for r in results) / total if total else 0.0,
        unmodelled=evaluation.unmodelled,
    )


def measure_controls(chosen: Iterable[Control], device: str = "cpu") -> Iterator[ControlResult]:
    """Results of controls, in order; neighbours that share reference and data share one evaluation."""
    groups = itertools.groupby(chosen, key=lambda c: (c.operator, c.dtype, c.data))
    for _, group in groups:
        evaluation: Evaluation | None = None
        inputs: list[Any] = []
        for control in group:
            if evaluation is None:
                inputs = placed(control.make(), device)
                evaluation = oracle.evaluate(control.reference, inputs)
                if evaluation.raised is not None or evaluation.replay_error is not None:
                    raise RuntimeError(f"{control.name}: {evaluation.raised or evaluation.replay_error}")
            yield measure_control(control, evaluation, inputs)


def standard_probes(fault: Fault) -> Iterator[tuple[str, list[Any]]]:
    """Inputs that the standard tier would try on the fault's task: draws, then variations of their values."""
    samples = [fault.make(seed) for seed in STRUCTURE_SEEDS]
    structures = [
        infer(column) if isinstance(column[0], torch.Tensor) else None for column in zip(*samples, strict=True)
    ]
    names = [values.variants(s) if s is not None else () for s in structures]
    for i in range(DRAWS):
        yield f"draw {i}", fault.make(100 + i)

    def varied(name: str, positions: set[int], seed: int) -> list[Any]:
        made = []
        for i, (value, structure) in enumerate(zip(fault.make(seed), structures, strict=True)):
            legal = structure is not None and i in positions and name in names[i]
            made.append(values.apply(name, value, structure, seed) if legal else value)  # type: ignore[arg-type]
        return made

    turns = itertools.zip_longest(*dict.fromkeys(names))
    joint = list(dict.fromkeys(n for turn in turns for n in turn if n is not None))
    everywhere = set(range(len(structures)))
    for number, name in enumerate(joint[:JOINT]):
        yield name, varied(name, everywhere, 200 + number)
    first = sorted(joint, key=lambda n: ALONE_FIRST.index(n) if n in ALONE_FIRST else len(ALONE_FIRST))
    alone = [(n, i) for n in first for i in everywhere if n in names[i]] if len(structures) > 1 else []
    for number, (name, i) in enumerate(alone[: max(ALONE, len(structures))]):
        yield f"{name} on input {i}", varied(name, {i}, 300 + number)


def measure_fault(fault: Fault, device: str = "cpu") -> FaultResult:
    """Try a fault: semantic ones on the standard tier's inputs until one shows it, others on a draw."""
    return _semantic(fault, device) if fault.kind == "semantic" else _precision(fault, device)


def _semantic(fault: Fault, device: str) -> FaultResult:
    largest = size = 0.0
    count = 0
    for name, made in standard_probes(fault):
        count += 1
        inputs = placed(made, device)
        evaluation = oracle.evaluate(fault.reference, inputs)
        with quiet_state(), torch.no_grad():
            actual = leaves_of(fault.candidate(*inputs))
        if len(actual) != len(evaluation.leaves):
            continue
        ratio = max(compare(t, a).ratio for t, a in zip(evaluation.leaves, actual, strict=True))
        largest = max(largest, ratio)
        if count == 1:
            size = _size(evaluation, actual)
        if ratio > 1.0:
            return FaultResult(fault.name, fault.kind, True, count, name, ratio, size)
    return FaultResult(fault.name, fault.kind, False, count, "", largest, size)


def _precision(fault: Fault, device: str) -> FaultResult:
    inputs = placed(fault.make(100), device)
    evaluation = oracle.evaluate(fault.reference, inputs)
    modes = oracle.alternatives(fault.reference, inputs, arithmetic=evaluation.arithmetic)
    with quiet_state(), torch.no_grad():
        actual = leaves_of(fault.candidate(*inputs))
    found = oracle.attribute(evaluation, modes, actual)
    ratio = found.ratios["declared"]
    right = ratio > 1.0 and found.mode in fault.modes
    size = _size(evaluation, actual)
    return FaultResult(fault.name, fault.kind, right, 1, found.mode or "no arithmetic", ratio, size)


def _size(evaluation: Evaluation, actual: list[torch.Tensor]) -> float:
    """Root mean square of the error relative to that of the result, over the finite elements."""
    error = result = 0.0
    for truth, value in zip(evaluation.leaves, actual, strict=True):
        y, wide = truth.y.double(), value.double()
        use = torch.isfinite(y) & torch.isfinite(wide)
        error += float((wide - y)[use].square().sum())
        result += float(y[use].square().sum())
    return math.sqrt(error / result) if result > 0.0 else math.inf
