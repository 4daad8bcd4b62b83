"""Which arithmetic a candidate really used: its residual against what each lower precision would leave.

Pure, and runs in the judge; what the modes leave is evaluated beside the reference, see `assay.oracle.modes`.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from assay.oracle.arithmetic import Arithmetic
from assay.oracle.compare import compare
from assay.oracle.evaluate import PRODUCTS, evaluate
from assay.oracle.modes import LeafMode, ModeTruth, alternatives, products_in
from assay.oracle.reference import Reference
from assay.oracle.truth import POOLED, Evaluation, LeafTruth

MATCH = 0.8
"""Correlation of residual and prediction from which a mode counts as recognised."""
ACCOUNTED = 0.99
"""The same where rounding has to be all that is wrong: later operands that round another way take less."""
LEFT = 0.2
"""Root mean square that may then be left of a residual, relative to the residual's own."""
UNLIKE = 0.2
"""Correlation below which a residual does not follow a mode's prediction even in part."""
TYPICAL = 1.0 / 3.0
"""Root mean square of an honest residual ÷ (b + c·rms(b)): the model grants the worst legal order."""
STRUCTURED = 0.5
"""Correlation of residual and result from which an error is a wrong factor rather than rounding."""

EXACT_SLACK = 16.0
"""Units of rounding granted to a result that is exact in the declared arithmetic, when explained by another."""

_Pair = tuple[int, LeafTruth, torch.Tensor]
"""Index of a leaf, its truth, and the candidate's signed residual there."""


@dataclasses.dataclass(frozen=True)
class Fingerprint:
    """The arithmetic that explains a candidate's residual."""

    mode: str | None
    """`declared`, one of the modes, or None where no mode explains the residual."""
    recognised: bool
    """Whether the residual follows the mode's prediction element by element (always for `declared`).
    Otherwise the mode would merely allow an error of that size, which a fault of the same size also has."""
    also: tuple[str, ...]
    """Other modes that explain it as well."""
    ratios: dict[str, float]
    """Largest residual ÷ tolerance, by mode, `declared` included."""
    correlation: dict[str, float]
    """Correlation of the residual with the mode's prediction, for modes that predict one."""
    effective_bits: float
    """Significand bits of the arithmetic that would leave this residual; at most those declared."""
    identifiable: dict[str, bool]
    """Whether this probe would have told a kernel in that mode from one in the declared arithmetic."""
    accounted: tuple[str, ...] = ()
    """Modes whose prediction, taken away from the residual, leaves nothing that the declared arithmetic does not
    grant. Where the reference makes several products, whose later operands depend on the roundings of earlier
    ones: modes that leave little of a residual, which they grant, and which does not follow the result."""


def attribute(
    evaluation: Evaluation, modes: Sequence[ModeTruth], actual: Sequence[torch.Tensor]
) -> Fingerprint:
    """Attribute the residual of `actual`, the candidate's output leaves, to a mode. Pure.

    `actual` holds one tensor per leaf of the evaluation; leaves that are no floating tensors are ignored, as
    are undecided and non-finite elements.
    """
    every = [
        (i, truth, _residual(truth, value))
        for i, (truth, value) in enumerate(zip(evaluation.leaves, actual, strict=True))
        if truth.kind in ("float", "complex") and truth.y.numel()
    ]
    pairs = [pair for pair in every if not pair[1].exact]
    declared = max((compare(truth, actual[i]).ratio for i, truth, _ in pairs), default=0.0)
    ratios = {"declared": declared}
    correlation: dict[str, float] = {}
    identifiable: dict[str, bool] = {}
    explains: list[tuple[float, bool, float, str]] = []
    # Rounded inputs leave one residual; operands of products may be rounded at more than one place.
    has_products = bool(PRODUCTS & set(evaluation.ops))
    structured = abs(_correlation(pairs, [truth.y for _, truth, _ in pairs])) > STRUCTURED
    for mode in modes:
        used = [
            (truth, residual, mode.leaves[i]) for i, truth, residual in pairs if mode.leaves[i] is not None
        ]
        worst = visible = squares = 0.0
        for truth, residual, leaf in used:
            assert leaf is not None
            use = _usable(truth)
            level = leaf.spread + POOLED * leaf.pooled
            worst = max(worst, _largest((residual.abs() / _granted(truth, leaf))[use]))
            squares += float((residual / level.clamp(min=truth.floor))[use].square().sum())
            signal = leaf.shifts[0].abs() if leaf.shifts else leaf.spread
            visible = max(visible, _largest((signal / truth.tolerance)[use]))
        ratios[mode.mode] = worst
        identifiable[mode.mode] = visible > 1.0
        ways = min((len(leaf.shifts) for _, _, leaf in used if leaf is not None), default=0)
        if ways:
            correlation[mode.mode] = max(
                _correlation(
                    [pair for pair in pairs if mode.leaves[pair[0]] is not None],
                    [leaf.shifts[way] for _, _, leaf in used if leaf is not None],
                )
                for way in range(ways)
            )
        if not math.isfinite(declared) or declared <= 1.0 or not identifiable[mode.mode]:
            continue
        if correlation.get(mode.mode, 0.0) >= MATCH:
            explains.append((-round(correlation[mode.mode], 3), False, 0.0, mode.mode))
        elif worst <= 1.0 and not structured:
            count = sum(int(_usable(truth).sum()) for truth, _, _ in used)
            size = math.sqrt(squares / max(1, count))
            unlike = not has_products and correlation.get(mode.mode, 1.0) < UNLIKE
            explains.append((0.0, unlike, abs(math.log2(max(size, 1e-300) / TYPICAL)), mode.mode))
    best: str | None
    also: tuple[str, ...]
    if declared <= 1.0:
        best, recognised, also = "declared", True, ()
    elif explains:
        # A recognised prediction beats a mere bound, and that a prediction that the residual does not follow;
        # then comes the mode whose errors are of the residual's size, and among equals the finer one.
        ranked = sorted(explains, key=lambda item: item[:3])
        names = [name for *_, name in ranked]
        best, recognised, also = names[0], ranked[0][0] < 0.0, tuple(names[1:])
    else:
        best, recognised, also = None, False, ()
    bits = _bits(evaluation, pairs)
    accounted = tuple(m.mode for m in modes if _accounts(evaluation, m, every))
    return Fingerprint(best, recognised, also, ratios, correlation, bits, identifiable, accounted)


def _accounts(evaluation: Evaluation, mode: ModeTruth, pairs: Sequence[_Pair]) -> bool:
    """Whether one way of rounding that the mode predicts accounts for the residual on every leaf."""
    leaves = [(pair, leaf) for pair in pairs if (leaf := mode.leaves[pair[0]]) is not None]
    several = products_in(evaluation.ops) > 1
    for way in range(min((len(leaf.shifts) for _, leaf in leaves), default=0)):
        rests = [(i, truth, residual - leaf.shifts[way]) for (i, truth, residual), leaf in leaves]
        whole = all(
            _within(truth, residual, rest, evaluation.arithmetic)
            for ((_, truth, residual), _), (_, _, rest) in zip(leaves, rests, strict=True)
        )
        if whole:
            return True
        predicted = [leaf.shifts[way] for _, leaf in leaves]
        follows = _correlation([pair for pair, _ in leaves], predicted) >= ACCOUNTED
        if not several or not follows or any(t.exact for (_, t, _), _ in leaves):
            continue
        granted = all(
            _largest((rest.abs() / _granted(truth, leaf))[_usable(truth)]) <= 1.0
            for ((_, truth, _), leaf), (_, _, rest) in zip(leaves, rests, strict=True)
        )
        # as many times the prediction would follow it too
        rounding = granted and _power(rests) <= LEFT**2 * _power([pair for pair, _ in leaves])
        if rounding and abs(_correlation(rests, [truth.y for (_, truth, _), _ in leaves])) <= STRUCTURED:
            return True
    return False


def _granted(truth: LeafTruth, leaf: LeafMode) -> torch.Tensor:
    """Error that a mode's arithmetic may leave of each element: no less than the declared one, of fewer runs or not."""
    coarser = truth.lam * (leaf.spread + POOLED * leaf.pooled) + truth.unit * truth.magnitude + truth.floor
    return torch.maximum(coarser, truth.tolerance)


def _within(truth: LeafTruth, residual: torch.Tensor, rest: torch.Tensor, declared: Arithmetic) -> bool:
    """Whether the declared arithmetic grants what a prediction leaves of a residual, and that is not most of it."""
    use = _usable(truth)
    residual, rest = residual.abs()[use], rest.abs()[use]
    tolerance = truth.tolerance.expand(truth.spread.shape)[use]
    if truth.exact:
        # operands that a mode has rounded are no longer on the grid that makes sums of them exact
        tolerance = EXACT_SLACK * declared.unit * (truth.magnitude[use] + residual) + truth.floor
    wrong = residual > tolerance
    return bool((rest <= tolerance).all()) and bool((rest[wrong] <= 0.5 * residual[wrong]).all())


def _correlation(pairs: Sequence[_Pair], predictions: Sequence[torch.Tensor]) -> float:
    """Correlation of signed residuals with predictions over all leaves, weighted by the declared spread."""
    dots = squares = powers = 0.0
    for (_, truth, residual), predicted in zip(pairs, predictions, strict=True):
        use = _usable(truth)
        if predicted.is_complex():
            predicted = torch.view_as_real(predicted.resolve_conj())
        weight = _weight(truth, residual)[use]
        r, p = residual[use], predicted[use]
        dots += float((r * p * weight).sum())
        squares += float((r.square() * weight).sum())
        powers += float((p.square() * weight).sum())
    return dots / math.sqrt(squares * powers) if squares > 0.0 and powers > 0.0 else 0.0


def _weight(truth: LeafTruth, residual: torch.Tensor) -> torch.Tensor:
    """By which elements count, so that no single large one decides; shape of the residual."""
    return (1.0 / (truth.spread + truth.pooled + truth.floor).square()).expand(residual.shape)


def _power(pairs: Sequence[_Pair]) -> float:
    """Weighted sum of the squares of residuals over all leaves."""
    return sum(
        float((residual.square() * _weight(truth, residual))[_usable(truth)].sum()) for _, truth, residual in pairs
    )


def _usable(truth: LeafTruth) -> torch.Tensor:
    decided = truth.decided
    finite = torch.isfinite(truth.y)
    use = decided & finite
    return use.unsqueeze(-1).expand(truth.spread.shape) if truth.kind == "complex" else use


def _residual(truth: LeafTruth, actual: torch.Tensor) -> torch.Tensor:
    wide = actual.detach().to(truth.y.device).to(truth.y.dtype)
    residual = wide - truth.y
    if residual.is_complex():
        residual = torch.view_as_real(residual.resolve_conj())
    return torch.nan_to_num(residual, nan=0.0, posinf=0.0, neginf=0.0)


def _largest(values: torch.Tensor) -> float:
    return float(values.max()) if values.numel() else 0.0


def _bits(evaluation: Evaluation, pairs: Sequence[_Pair]) -> float:
    """-log2 of the unit roundoff that scales the declared spread to the residual beyond output rounding."""
    declared = -math.log2(evaluation.arithmetic.unit)
    left = right = 0.0
    for _, truth, residual in pairs:
        use = _usable(truth)
        beyond = (residual.abs() - truth.unit * truth.magnitude).clamp(min=0.0)
        level = (truth.spread + truth.pooled).clamp(min=truth.floor)
        left += float((beyond / level)[use].square().sum())
        right += float(use.sum())
    if left == 0.0 or right == 0.0:
        return declared
    return min(declared, declared - math.log2(math.sqrt(left / right)))


def fingerprint(
    module: Reference,
    inputs: Sequence[Any],
    actual: Sequence[torch.Tensor],
    kwargs: Mapping[str, Any] | None = None,
    *,
    arithmetic: Arithmetic | None = None,
) -> Fingerprint:
    """`evaluate`, `alternatives` and `attribute` in one process, for use without workers."""
    evaluation = evaluate(module, inputs, kwargs, arithmetic=arithmetic)
    modes = alternatives(module, inputs, kwargs, arithmetic=evaluation.arithmetic)
    return attribute(evaluation, modes, actual)
