"""The judge's side: one candidate output against one truth. Pure; no reference, no replay."""

from __future__ import annotations

import dataclasses
import enum
import math

import torch

from assay.oracle.arithmetic import is_real_or_complex, wide_dtype
from assay.oracle.truth import IndexTruth, LeafTruth, Parts, all_finite, classes


class Reason(enum.StrEnum):
    """Why an output is not right."""

    VALUE = "value"
    """A finite value is outside the tolerance."""
    CLASS_NAN = "class_nan"
    """NaN where there should be none, or none where there should be NaN."""
    CLASS_INF = "class_inf"
    """Infinity where there should be none, none where there should be one, or of the wrong sign."""
    INDEX = "index"
    """An index whose key is not within tolerance, out of range, or chosen twice."""
    INTEGER = "integer"
    """A wrong integer or boolean."""


@dataclasses.dataclass(frozen=True)
class Comparison:
    """Result of `compare`; the fields after `n_decided` describe the worst element."""

    ok: bool
    """Whether no decided element is wrong."""
    n_bad: int
    """Decided elements that are wrong."""
    n_decided: int
    """Elements that decide."""
    n: int
    """Elements of the leaf (complex elements count once)."""
    index: int | None = None
    """Flat index of the worst element, in the leaf."""
    expected: complex | float | int | None = None
    """Value of the float64 replay there."""
    actual: complex | float | int | None = None
    """Value of the candidate there."""
    error: float = 0.0
    """|actual - expected| there; infinite for a class or index error."""
    tolerance: float = 0.0
    """Tolerance there."""
    ratio: float = 0.0
    """error / tolerance there: largest over the decided elements."""
    reason: Reason | None = None
    """Why the worst element is wrong; None if all are right."""
    parts: Parts | None = None
    """Terms of the tolerance there; None for integers and indices."""


def compare(truth: LeafTruth, actual: torch.Tensor) -> Comparison:
    """Compare `actual`, of the truth's shape, with `truth`.

    NaN equals NaN, infinities must agree in sign, complex values are compared as pairs, and undecided
    elements never count. Dtypes are not compared: `actual` is widened. Raises ValueError if the shape
    differs.
    """
    n = truth.y.numel()
    if truth.kind == "none":
        return Comparison(True, 0, 0, 0)
    if tuple(actual.shape) != tuple(truth.y.shape):
        raise ValueError(f"compare: expected shape {tuple(truth.y.shape)}, got {tuple(actual.shape)}")
    actual = actual.detach().to(truth.y.device)
    decided = truth.decided
    n_decided = int(decided.sum())
    if n == 0 or n_decided == 0:
        return Comparison(True, 0, n_decided, n)
    if truth.index is not None:
        return _indices(truth, truth.index, actual, n_decided)
    if not is_real_or_complex(truth.y.dtype):
        return _integers(truth, actual, n_decided)
    y = truth.y
    if not y.is_complex() and actual.is_complex():
        y = y.to(torch.complex128)
    wide = actual.to(torch.complex128 if y.is_complex() else torch.float64)
    error, differs = _errors(y, wide)
    tolerance = truth.tolerance
    if y.is_complex() and truth.kind != "complex":
        tolerance = tolerance.unsqueeze(-1).expand(error.shape)
    if y.is_complex():
        decided = decided.unsqueeze(-1).expand(error.shape)
    ratio = torch.where(error == 0, torch.zeros_like(error), error / tolerance)
    ratio = torch.where(differs, torch.full_like(ratio, math.inf), ratio)
    ratio = torch.where(decided, ratio, torch.zeros_like(ratio))
    bad = ratio > 1.0
    if y.is_complex():
        n_bad = int(bad.any(-1).sum())
    else:
        n_bad = int(bad.sum())
    worst = int(ratio.reshape(-1).argmax())
    element = worst // 2 if y.is_complex() else worst
    expected, got = y.reshape(-1)[element].item(), wide.reshape(-1)[element].item()
    reason = None
    if n_bad:
        reason = Reason.VALUE
        if bool(differs.reshape(-1)[worst]):
            kinds = {int(classes(v.reshape(-1)).reshape(-1)[worst]) for v in (y, wide)}
            reason = Reason.CLASS_NAN if 1 in kinds else Reason.CLASS_INF
    return Comparison(
        ok=n_bad == 0,
        n_bad=n_bad,
        n_decided=n_decided,
        n=n,
        index=element,
        expected=expected,
        actual=got,
        error=math.inf if bool(differs.reshape(-1)[worst]) else float(error.reshape(-1)[worst]),
        tolerance=float(tolerance.expand(error.shape).reshape(-1)[worst]),
        ratio=float(ratio.reshape(-1)[worst]),
        reason=reason,
        parts=truth.parts(worst if truth.kind == "complex" or not y.is_complex() else element),
    )


def _errors(y: torch.Tensor, actual: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """|actual - y| where both are finite (0 elsewhere), and where their classes differ. Pairs for complex."""
    if not y.is_complex() and all_finite(y) and all_finite(actual):
        return (actual - y).abs_(), torch.zeros(y.shape, dtype=torch.bool, device=y.device)
    expected_class, actual_class = classes(y), classes(actual)
    if y.is_complex():
        y, actual = torch.view_as_real(y.resolve_conj()), torch.view_as_real(actual.resolve_conj())
    error = torch.where((expected_class == 0) & (actual_class == 0), (actual - y).abs(), torch.zeros_like(y))
    return error, expected_class != actual_class


def excess(truth: LeafTruth, actual: torch.Tensor) -> torch.Tensor:
    """bool, shape of the leaf: where `actual` is outside the truth's tolerance, decided or not."""
    if truth.index is not None:
        return _wrong_indices(truth, truth.index, actual.reshape(truth.y.shape))
    if not is_real_or_complex(truth.y.dtype):
        return actual != truth.y
    error, differs = _errors(truth.y, actual.to(wide_dtype(truth.y.dtype)))
    bad = differs | (error > truth.tolerance)
    return bad.any(-1) if truth.y.is_complex() else bad


def ratios(truth: LeafTruth, actual: torch.Tensor) -> torch.Tensor:
    """float64, shape of the leaf: error ÷ tolerance of each element, for a picture of where it is wrong.

    Infinite where no tolerance would help (another class, a wrong index or integer), NaN where an element
    decides nothing, 0 where it does not differ. `actual` has the truth's shape.
    """
    actual = actual.detach().to(truth.y.device)
    if truth.index is not None or not is_real_or_complex(truth.y.dtype):
        found = torch.zeros(truth.y.shape, dtype=torch.float64, device=truth.y.device)
        found[excess(truth, actual)] = math.inf
    else:
        error, differs = _errors(truth.y, actual.to(wide_dtype(truth.y.dtype)))
        # a subnormal tolerance may leave 0 / 0
        found = torch.where(error == 0, torch.zeros_like(error), error / truth.tolerance)
        found = torch.where(differs, torch.full_like(found, math.inf), found)
        if truth.y.is_complex():
            found = found.amax(-1)
    return torch.where(truth.decided, found, torch.full_like(found, math.nan))


def _integers(truth: LeafTruth, actual: torch.Tensor, n_decided: int) -> Comparison:
    bad = (actual != truth.y) & truth.decided
    n_bad = int(bad.sum())
    if n_bad == 0:
        return Comparison(True, 0, n_decided, truth.y.numel())
    worst = int(bad.reshape(-1).to(torch.int8).argmax())
    expected, got = truth.y.reshape(-1)[worst].item(), actual.reshape(-1)[worst].item()
    return Comparison(
        ok=False,
        n_bad=n_bad,
        n_decided=n_decided,
        n=truth.y.numel(),
        index=worst,
        expected=expected,
        actual=got,
        error=float(abs(got - expected)),
        ratio=math.inf,
        reason=Reason.INTEGER,
    )


def _wrong_indices(truth: LeafTruth, index: IndexTruth, actual: torch.Tensor) -> torch.Tensor:
    n = index.keys.shape[-1]
    if actual.is_floating_point():
        chosen = torch.where(actual == actual.round(), actual, torch.full_like(actual, -1.0)).to(torch.int64)
    else:
        chosen = actual.to(torch.int64)
    expected = truth.y.to(torch.int64)
    if n == 0:
        return chosen != expected
    inside = (chosen >= 0) & (chosen < n)
    safe = torch.where(inside, chosen, expected)
    tolerance = index.tolerance.expand(index.keys.shape)
    wanted, got = index.keys[index.row, expected], index.keys[index.row, safe]
    allowed = tolerance[index.row, expected] + tolerance[index.row, safe]
    if wanted.is_floating_point():
        same_class = classes(wanted) == classes(got)
        near = torch.where(classes(wanted) == 0, (got - wanted).abs() <= allowed, same_class) & same_class
    else:
        near = got == wanted
    if index.rule == "first":
        # Where nothing was rounded, the choice among equal keys is documented.
        near = torch.where(allowed == 0, chosen == expected, near)
    bad = ~(inside & near)
    if index.distinct and actual.numel():
        pairs = (index.row * n + safe).reshape(-1)
        counts = torch.bincount(pairs, minlength=int(index.keys.shape[0]) * n)
        seen_by_expected = torch.bincount((index.row * n + expected).reshape(-1), minlength=counts.numel())
        repeated = (counts > seen_by_expected.clamp(min=1))[pairs].reshape(bad.shape)
        bad = bad | repeated
    return bad


def _indices(truth: LeafTruth, index: IndexTruth, actual: torch.Tensor, n_decided: int) -> Comparison:
    bad = _wrong_indices(truth, index, actual) & truth.decided
    n_bad = int(bad.sum())
    if n_bad == 0:
        return Comparison(True, 0, n_decided, truth.y.numel())
    worst = int(bad.reshape(-1).to(torch.int8).argmax())
    row, n = int(index.row.reshape(-1)[worst]), index.keys.shape[-1]
    expected, got = int(truth.y.reshape(-1)[worst]), actual.reshape(-1)[worst].item()
    error, tolerance = math.inf, 0.0
    if isinstance(got, int) and 0 <= got < n:
        error = abs(float(index.keys[row, got]) - float(index.keys[row, expected]))
        levels = index.tolerance.expand(index.keys.shape)
        tolerance = float(levels[row, got] + levels[row, expected])
    return Comparison(
        ok=False,
        n_bad=n_bad,
        n_decided=n_decided,
        n=truth.y.numel(),
        index=worst,
        expected=expected,
        actual=got,
        error=error,
        tolerance=tolerance,
        ratio=math.inf,
        reason=Reason.INDEX,
    )
