"""Comparing a record's outputs with its truths, for every gate that judges numbers."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

import torch

from assay import oracle
from assay.gates.base import Gate
from assay.oracle import Comparison, LeafTruth
from assay.probe.record import CallResult, Output, Record, Truth
from assay.report.model import Finding
from assay.vocabulary import Reason, Tier

REASONS = {
    oracle.Reason.VALUE: Reason.VALUE,
    oracle.Reason.INDEX: Reason.INDEX,
    oracle.Reason.INTEGER: Reason.INTEGER,
}


@dataclass(frozen=True)
class Compared:
    """One output of one call against its truth."""

    call: int
    output: Output
    truth: LeafTruth
    result: Comparison


def same_form(truth: Truth, call: CallResult) -> bool:
    """True when the outputs have the reference's structure and shapes, so that values can be compared."""
    return (call.structure == truth.structure and len(call.outputs) == len(truth.leaves)
            and all(o.shape == tuple(leaf.y.shape) for o, leaf in zip(call.outputs, truth.leaves, strict=True)))


def compare_call(record: Record, call: int) -> list[Compared]:
    """Compare every output of one call; empty when the form differs, which another gate reports.

    Empty too where the reference is random: another draw of it is as right.
    """
    truth, seen = record.truth_of(call), record.observation.calls[call]
    if truth.random or not same_form(truth, seen):
        return []
    compared = [Compared(call, output, leaf, oracle.compare(leaf, output.tensor))
                for output, leaf in zip(seen.outputs, truth.leaves, strict=True)]
    if (ratios := _RATIOS.get()) is not None:
        ratios += [c.result.ratio for c in compared if c.result.ok]
    return compared


_RATIOS: ContextVar[list[float] | None] = ContextVar("ratios", default=None)


@contextmanager
def closest() -> Iterator[list[float]]:
    """Error over tolerance of every comparison in the block that was right, in the list given."""
    ratios: list[float] = []
    token = _RATIOS.set(ratios)
    try:
        yield ratios
    finally:
        _RATIOS.reset(token)


def compare_record(record: Record) -> list[Compared]:
    """Compare every output of every call."""
    return [c for call in range(len(record.observation.calls)) for c in compare_call(record, call)]


def decides(compared: list[Compared]) -> bool:
    """False when most elements of every output decide nothing, or there was nothing to compare."""
    total = sum(c.result.n for c in compared)
    decided = sum(c.result.n_decided for c in compared)
    return bool(compared) and (total == 0 or 2 * decided >= total or any(not c.result.ok for c in compared))


def unravel(index: int, shape: tuple[int, ...]) -> tuple[int, ...]:
    """Row-major index of a flat position."""
    found = []
    for size in reversed(shape):
        found.append(index % size)
        index //= size
    return tuple(reversed(found))


def shown(value: object) -> str:
    """A number as text that round-trips."""
    if isinstance(value, float):
        return repr(value)
    return str(value)


def class_reason(expected: object, actual: object) -> Reason:
    """Reason for two numbers of different class: NaN, infinity or finite."""
    e = abs(expected) if isinstance(expected, complex) else expected
    a = abs(actual) if isinstance(actual, complex) else actual
    e = float(e) if isinstance(e, (int, float)) else math.nan
    a = float(a) if isinstance(a, (int, float)) else math.nan
    if math.isnan(e):
        return Reason.NAN_SWALLOWED
    if math.isnan(a):
        return Reason.NAN_MINTED
    if math.isinf(e) and math.isinf(a):
        return Reason.INF_SIGN
    return Reason.INF_SWALLOWED if math.isinf(e) else Reason.INF_MINTED


def finding(gate: Gate, record: Record, compared: Compared, tier: Tier = Tier.WRONG) -> Finding:
    """The finding for an output that is not right, with its arithmetic."""
    result = compared.result
    assert result.reason is not None
    assert result.index is not None
    reason = REASONS.get(result.reason) or class_reason(result.expected, result.actual)
    detail: dict[str, object] = {"wrong_elements": result.n_bad, "elements": result.n}
    if result.parts is not None and math.isfinite(result.ratio):
        detail["ratio"] = result.ratio
        detail["tolerance_parts"] = {"spread": result.parts.spread, "pooled": result.parts.pooled,
                                     "output": result.parts.output, "floor": result.parts.floor}
    if compared.truth.dominant:
        detail["dominant_operation"] = compared.truth.dominant
    if len(record.probe.calls) > 1:
        detail["call"] = compared.call
    finite = math.isfinite(result.error)
    return Finding(
        gate=gate.id, slug=gate.slug, reason=reason, tier=tier,
        tolerance_free=reason in (Reason.INDEX, Reason.INTEGER) or compared.truth.exact or not finite,
        output=compared.output.path, index=unravel(result.index, compared.output.shape),
        expected=shown(result.expected), actual=shown(result.actual),
        error=result.error if finite else None, tolerance=result.tolerance, detail=detail, probe=record.probe.id,
    )


def same_bits(a: torch.Tensor, b: torch.Tensor) -> bool:
    """True when two tensors have one dtype, shape and bit pattern."""
    if a.dtype != b.dtype or a.shape != b.shape:
        return False
    if a.numel() == 0:
        return True
    return torch.equal(_bytes(a), _bytes(b))


def first_difference(a: torch.Tensor, b: torch.Tensor) -> tuple[int, ...]:
    """Index of the first element whose bits differ; tensors of one dtype and shape that do differ."""
    return unravel(int(differing(a, b).reshape(-1).nonzero()[0]), tuple(a.shape))


def differing(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """bool, of the tensors' shape: elements whose bits differ; tensors of one dtype and shape."""
    if a.numel() == 0:
        return torch.zeros(a.shape, dtype=torch.bool)
    return (_bytes(a).reshape(a.numel(), -1) != _bytes(b).reshape(b.numel(), -1)).any(dim=1).reshape(a.shape)


def _bytes(tensor: torch.Tensor) -> torch.Tensor:
    dense = tensor.contiguous()
    return dense.as_strided((dense.numel(),), (1,)).view(torch.uint8)
