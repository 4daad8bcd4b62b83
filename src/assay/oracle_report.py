"""What the oracle makes of a task: each output's tolerance, where it comes from, and what it would catch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import torch

from assay.contract import Contract
from assay.errors import InputError
from assay.gates.attribution import WORDS
from assay.oracle import LeafTruth, ModeTruth
from assay.probe.model import Draw
from assay.probe.record import Truth
from assay.run.process import Zygote
from assay.run.reference import ReferenceFailed, ReferenceSession
from assay.task import Task, load_task
from assay.verify import numerics


@dataclass(frozen=True)
class ModeLine:
    """What one coarser arithmetic would leave on one output.

    Attributes:
        mode: name of the mode, such as `tf32`.
        error: root mean square of the error it would make, in the unit of the output.
        ratio: largest error ÷ tolerance over the decided elements.
    """

    mode: str
    error: float
    ratio: float

    @property
    def caught(self) -> bool:
        """Whether the tolerance tells it from the declared arithmetic on this draw."""
        return self.ratio > 1.0


@dataclass(frozen=True)
class OutputReport:
    """The tolerance of one output.

    Attributes:
        path: the output's place in what the reference returns; `out` for a bare tensor.
        dtype: its native dtype.
        shape: its shape.
        kind: `float`, `complex`, `int` or `bool`.
        exact: whether every bit is owed.
        ranked: whether it holds indices that are judged by the keys they point to.
        decided: elements that decide.
        elements: elements in all.
        scale: median of |y|.
        tolerance: smallest, median and largest tolerance over the decided elements.
        parts: terms of the tolerance at the element of median tolerance: spread, pooled, output, floor.
        native: largest error ÷ tolerance of the reference in its own dtype.
        dominant: operator that contributes most to the spread.
        modes: what coarser arithmetic would leave, finest first.
    """

    path: str
    dtype: str
    shape: tuple[int, ...]
    kind: str
    exact: bool
    ranked: bool
    decided: int
    elements: int
    scale: float
    tolerance: tuple[float, float, float]
    parts: dict[str, float]
    native: float
    dominant: str | None
    modes: tuple[ModeLine, ...]


@dataclass(frozen=True)
class OracleReport:
    """The tolerances of a task on one draw of its own inputs.

    Attributes:
        task: name of the task.
        sizes: overrides of its integers; empty for the native sizes.
        accumulate: format of accumulation that the tolerances grant.
        operands: format that operands of products may be rounded to; None for their own.
        random: whether the reference draws random numbers.
        unmodelled: operators treated conservatively.
        outputs: one for each output tensor.
    """

    task: str
    sizes: dict[str, int]
    accumulate: str
    operands: str | None
    random: bool
    unmodelled: tuple[str, ...]
    outputs: tuple[OutputReport, ...]

    def __str__(self) -> str:
        """Text for people, up to 80 columns wide where names are short."""
        return "\n".join(_lines(self)) + "\n"


def oracle_report(
    reference: str | Path | Task,
    *,
    sizes: Mapping[str, int] | None = None,
    dtype: str | None = None,
    variant: str = "task",
    seed: int = 0,
    contract: Contract | None = None,
    zygote: Zygote | None = None,
) -> OracleReport:
    """Evaluate a task's reference once, in a process of its own, and describe its tolerances.

    Args:
        reference: the task or the path of its file.
        sizes: overrides of the task's integers; None for those that its study ran at.
        dtype: dtype that floating inputs and parameters are cast to, such as `bfloat16`; None for their own.
        variant: variation of the inputs (`assay.probe.values`).
        seed: seed of the inputs.
        contract: whose numerics the tolerances grant; None for the defaults.
        zygote: a warm parent to use; None starts one for this call.

    Raises:
        InputError: the task cannot be loaded or run, or does not take the sizes or the variation.
    """
    if zygote is None:
        with Zygote() as own:
            return oracle_report(
                reference, sizes=sizes, dtype=dtype, variant=variant, seed=seed, contract=contract, zygote=own
            )
    task = reference if isinstance(reference, Task) else load_task(reference)
    session = ReferenceSession(zygote, task, numerics(contract or Contract()))
    try:
        study = session.study()
        unknown = set(sizes or {}) - set(study.native())
        if unknown:
            raise InputError(
                f"the task has no size `{min(unknown)}`",
                "sizes",
                f"its sizes: {', '.join(study.native()) or 'none'}",
            )
        at = dict(study.sizes if sizes is None else sizes)
        truth = session.truth(at, dtype, Draw(seed=seed, variant=variant), seed, modes="few")
    except ReferenceFailed as error:
        raise InputError(
            f"the reference could not be run: {error}", task.shown, "make it run on its own"
        ) from None
    finally:
        session.close()
    if not truth.ok:
        raise InputError(
            f"the reference gives nothing to judge by: {truth.text}",
            task.shown,
            "choose other sizes, another dtype or another variation",
        )
    return _report(task, at, truth)


def _report(task: Task, sizes: dict[str, int], truth: Truth) -> OracleReport:
    assert truth.arithmetic is not None
    outputs = tuple(
        _output(path, leaf, [(mode, mode.leaves[i]) for mode in truth.modes])
        for i, (path, leaf) in enumerate(zip(truth.paths, truth.leaves, strict=True))
    )
    return OracleReport(
        task.id,
        sizes,
        truth.arithmetic.accumulate,
        truth.arithmetic.product_operands,
        truth.random,
        truth.unmodelled,
        outputs,
    )


def _output(path: str, leaf: LeafTruth, modes: list[tuple[ModeTruth, object]]) -> OutputReport:
    from assay.oracle import compare

    decided = leaf.decided
    shape = tuple(leaf.y.shape)
    level, parts = (0.0, 0.0, 0.0), {"spread": 0.0, "pooled": 0.0, "output": 0.0, "floor": 0.0}
    use = decided.unsqueeze(-1).expand(leaf.spread.shape) if leaf.kind == "complex" else decided
    tolerance = leaf.tolerance
    if leaf.kind in ("float", "complex") and bool(use.any()):
        known = tolerance[use]
        level = (float(known.min()), float(known.median()), float(known.max()))
        middle = int((tolerance - level[1]).abs().where(use, torch.inf).reshape(-1).argmin())
        found = leaf.parts(middle)
        parts = {"spread": found.spread, "pooled": found.pooled, "output": found.output, "floor": found.floor}
    magnitude = leaf.magnitude[use] if leaf.kind in ("float", "complex") else torch.zeros(0)
    lines = tuple(line for mode, own in modes if (line := _mode(mode.mode, own, leaf, use)) is not None)
    return OutputReport(
        path=path,
        dtype=leaf.dtype.removeprefix("torch."),
        shape=shape,
        kind=leaf.kind,
        exact=leaf.exact,
        ranked=leaf.index is not None,
        decided=int(decided.sum()),
        elements=leaf.y.numel(),
        scale=float(magnitude.median()) if magnitude.numel() else 0.0,
        tolerance=level,
        parts=parts,
        native=compare(leaf, leaf.native).ratio,
        dominant=leaf.dominant,
        modes=lines,
    )


def _mode(name: str, own: object, leaf: LeafTruth, use: torch.Tensor) -> ModeLine | None:
    from assay.oracle.modes import LeafMode

    if not isinstance(own, LeafMode) or not bool(use.any()):
        return None
    signal = (own.shifts[0].abs() if own.shifts else own.spread)[use]
    ratio = torch.where(signal == 0, 0.0, signal / leaf.tolerance[use])
    return ModeLine(name, float(signal.square().mean().sqrt()), float(ratio.max()))


def _lines(report: OracleReport) -> Iterator[str]:
    at = ", ".join(f"{name}={value}" for name, value in report.sizes.items()) or "native sizes"
    yield f"{report.task}  ({at})"
    operands = f", operands of products in {report.operands}" if report.operands else ""
    yield f"accumulation in {report.accumulate}{operands}"
    if report.unmodelled:
        yield f"treated conservatively: {', '.join(report.unmodelled)}"
    if report.random:
        yield "the reference draws random numbers: tolerances hold for the numbers drawn"
    for output in report.outputs:
        yield ""
        yield from _output_lines(output)


def _output_lines(output: OutputReport) -> Iterator[str]:
    shape = " x ".join(map(str, output.shape)) or "scalar"
    yield f"output {output.path or 'the tensor returned'}: {output.dtype}, {shape}"
    share = f"{output.decided} of {output.elements} elements"
    if output.ranked:
        yield f"  every index has to point to the right key, or to one within its rounding, on {share}"
        return
    if output.kind not in ("float", "complex"):
        yield f"  every value has to be equal, on {share}"
        return
    if output.exact:
        yield f"  every partial result is representable: every bit is owed, on {share}"
        return
    low, middle, high = output.tolerance
    relative = f", {middle / output.scale:.1e} of the median |y| {output.scale:.3g}" if output.scale else ""
    yield f"  tolerance   {middle:.2e} (from {low:.1e} to {high:.1e}){relative}"
    parts = ", ".join(f"{name} {value:.1e}" for name, value in output.parts.items())
    yield f"  of which    {parts}"
    yield f"  mostly      {output.dominant or 'rounding of the output'}"
    yield f"  decides     {share}; the reference itself reaches {output.native:.2f} of it"
    for line in output.modes:
        if line.error == 0.0:
            continue
        verdict = (
            f"{line.ratio:.1f} times the tolerance" if line.caught else "within the tolerance: not told apart"
        )
        yield f"  {WORDS.get(line.mode, line.mode)} would err by {line.error:.1e}, {verdict}"
