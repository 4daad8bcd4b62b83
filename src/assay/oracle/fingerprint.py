"""Which arithmetic a candidate really used: its residual against what each lower precision would leave.

`alternatives` runs in the reference worker and needs no candidate: for each mode coarser than the declared
one it gives the spread that mode's rounding causes and, where the mode is a deterministic rounding of
operands, the error it predicts element by element. `attribute` is pure and runs in the judge.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch.utils import _pytree as pytree

from assay.oracle.arithmetic import UNIT, Arithmetic, arithmetic_for, is_real_or_complex, round_to
from assay.oracle.compare import compare
from assay.oracle.evaluate import evaluate, replaying
from assay.oracle.reference import (
    Reference,
    copied_inputs,
    copied_module,
    quiet_state,
    task_dtype,
)
from assay.oracle.replay import NeedsSerial, Replay
from assay.oracle.truth import POOLED, Evaluation, LeafTruth

MODE_RUNS = 6
"""Perturbed runs per mode."""
PRODUCTS = {"mm", "bmm", "mv", "dot", "vdot", "convolution", "_convolution", "convolution_backward"}
"""Operators whose operands a mode may round."""
MATCH = 0.8
"""Correlation of residual and prediction from which a mode counts as recognised."""
UNLIKE = 0.2
"""Correlation below which a residual does not follow a mode's prediction even in part."""
TYPICAL = 1.0 / 3.0
"""Root mean square of an honest residual ÷ (b + c·rms(b)): the model grants the worst legal order."""
STRUCTURED = 0.5
"""Correlation of residual and result from which an error is a wrong factor rather than rounding."""

_Pair = tuple[int, LeafTruth, torch.Tensor]
"""Index of a leaf, its truth, and the candidate's signed residual there."""


@dataclasses.dataclass(frozen=True)
class LeafMode:
    """One output leaf under one mode, as real pairs for complex leaves."""

    spread: torch.Tensor
    """Root mean square deviation under the mode's rounding, float64, shape of the truth's spread."""
    pooled: torch.Tensor
    """Its pooled rms, broadcastable."""
    shifts: tuple[torch.Tensor, ...]
    """Predicted errors: the exact run with operands really rounded (each way the mode may round), minus y.
    Empty if nothing can be predicted."""


@dataclasses.dataclass(frozen=True)
class ModeTruth:
    """What one mode would do to every leaf."""

    mode: str
    """tf32, fp16, bf16 (operands rounded to it), fp16_accumulate or bf16_accumulate."""
    arithmetic: Arithmetic
    """The arithmetic of the mode."""
    leaves: list[LeafMode | None]
    """By leaf of the evaluation; None for leaves that are no floating tensors."""

    def to_parts(self) -> tuple[dict[str, Any], dict[str, torch.Tensor]]:
        """JSON-able fields and tensors; `from_parts` is the inverse."""
        tensors: dict[str, torch.Tensor] = {}
        for i, leaf in enumerate(self.leaves):
            if leaf is not None:
                tensors[f"{i}.spread"] = leaf.spread.contiguous().cpu()
                tensors[f"{i}.pooled"] = leaf.pooled.contiguous().cpu()
                tensors.update({f"{i}.shift.{j}": t.contiguous().cpu() for j, t in enumerate(leaf.shifts)})
        meta = {"mode": self.mode, "arithmetic": self.arithmetic.to_json(), "leaves": len(self.leaves)}
        return meta, tensors

    @classmethod
    def from_parts(cls, meta: dict[str, Any], tensors: dict[str, torch.Tensor]) -> ModeTruth:
        """Rebuild from `to_parts`."""
        leaves: list[LeafMode | None] = []
        for i in range(meta["leaves"]):
            if f"{i}.spread" in tensors:
                shifts = tuple(tensors[f"{i}.shift.{j}"] for j in range(2) if f"{i}.shift.{j}" in tensors)
                leaves.append(LeafMode(tensors[f"{i}.spread"], tensors[f"{i}.pooled"], shifts))
            else:
                leaves.append(None)
        return cls(meta["mode"], Arithmetic.from_json(meta["arithmetic"]), leaves)


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


def modes_below(declared: Arithmetic) -> dict[str, Arithmetic]:
    """Modes coarser than `declared`, finest first."""
    found: dict[str, Arithmetic] = {}
    current = declared.product_operands
    level = UNIT[current] if current is not None else declared.unit
    if level < UNIT["tf32"]:
        found["tf32"] = dataclasses.replace(declared, matmul="tf32")
    for name in ("fp16", "bf16"):
        if level < UNIT[name]:
            found[name] = dataclasses.replace(declared, operands=name, matmul="ieee")
    for name in ("fp16", "bf16"):
        if declared.unit < UNIT[name]:
            found[f"{name}_accumulate"] = dataclasses.replace(declared, accumulate=name)
    return found


def alternatives(
    module: Reference,
    inputs: Sequence[Any],
    kwargs: Mapping[str, Any] | None = None,
    *,
    arithmetic: Arithmetic | None = None,
    runs: int = MODE_RUNS,
    seed: int = 7,
) -> list[ModeTruth]:
    """What each mode coarser than `arithmetic` would do, for `attribute`. Same arguments as `evaluate`.

    A mode that rounds operands of products acts on the inputs instead where the reference has no product.
    A mode whose evaluation fails is left out.
    """
    values = (list(inputs), dict(kwargs or {}))
    dtype = task_dtype(module, values)
    declared = arithmetic if arithmetic is not None else arithmetic_for(dtype)

    def plain(mode: Arithmetic, operands: str | None, given: str | None) -> tuple[Replay, list[Any]]:
        replay = Replay(mode, runs=0, seed=seed, task_dtype=dtype, rounded=operands)
        own = copied_module(module, replay)
        positional, keywords = copied_inputs(values, replay)
        if given is not None:
            positional, keywords = pytree.tree_map(lambda t: _rounded(t, given), (positional, keywords))
        with quiet_state(), torch.no_grad(), replaying(replay):
            out = own(*positional, **keywords)
        return replay, pytree.tree_leaves(out, is_leaf=lambda v: v is None)

    found: list[ModeTruth] = []
    try:
        exact, y = plain(declared, None, None)
    except (Exception, NeedsSerial):
        return []
    has_products = bool(PRODUCTS & set(exact.ops))
    for name, mode in modes_below(declared).items():
        if name == "tf32" and not has_products:
            continue
        evaluation = evaluate(module, inputs, kwargs, arithmetic=mode, runs=runs, seed=seed)
        if evaluation.raised is not None or evaluation.replay_error is not None:
            continue
        ways = [] if name.endswith("_accumulate") else [name]
        if name == "tf32":
            ways.append("tf32 truncated")
        shifts: list[list[torch.Tensor]] = [[] for _ in y]
        for way in ways:
            try:
                _, moved = plain(mode, way if has_products else None, None if has_products else way)
            except (Exception, NeedsSerial):
                continue
            for own, a, b in zip(shifts, moved, y, strict=True):
                shift = _difference(a, b)
                if shift is not None:
                    own.append(shift)
        leaves: list[LeafMode | None] = []
        for truth, predicted in zip(evaluation.leaves, shifts, strict=True):
            if truth.kind not in ("float", "complex"):
                leaves.append(None)
                continue
            spread, pooled = truth.spread, truth.pooled
            if not has_products and predicted:
                # Rounded inputs are no operation of the replay: their effect is the prediction itself.
                level = predicted[0].abs()
                spread = torch.hypot(spread, level)
                pooled = torch.hypot(pooled.expand(spread.shape), level.square().mean().sqrt())
            leaves.append(LeafMode(spread, pooled, tuple(predicted)))
        found.append(ModeTruth(name, mode, leaves))
    return found


def _rounded(value: Any, name: str) -> Any:
    if isinstance(value, torch.Tensor) and is_real_or_complex(value.dtype):
        return round_to(value, name)
    return value


def _difference(moved: Any, y: Any) -> torch.Tensor | None:
    if not isinstance(y, torch.Tensor) or not is_real_or_complex(y.dtype) or moved.shape != y.shape:
        return None
    shift = moved - y
    if shift.is_complex():
        shift = torch.view_as_real(shift.resolve_conj())
    return torch.nan_to_num(shift, nan=0.0, posinf=0.0, neginf=0.0)


def attribute(
    evaluation: Evaluation, modes: Sequence[ModeTruth], actual: Sequence[torch.Tensor]
) -> Fingerprint:
    """Attribute the residual of `actual`, the candidate's output leaves, to a mode. Pure.

    `actual` holds one tensor per leaf of the evaluation; leaves that are no floating tensors are ignored, as
    are undecided and non-finite elements.
    """
    pairs = [
        (i, truth, _residual(truth, value))
        for i, (truth, value) in enumerate(zip(evaluation.leaves, actual, strict=True))
        if truth.kind in ("float", "complex") and truth.y.numel() and not truth.exact
    ]
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
            tolerance = truth.lam * level + truth.unit * truth.magnitude + truth.floor
            worst = max(worst, _largest((residual.abs() / tolerance)[use]))
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
    return Fingerprint(best, recognised, also, ratios, correlation, bits, identifiable)


def _correlation(pairs: Sequence[_Pair], predictions: Sequence[torch.Tensor]) -> float:
    """Correlation of signed residuals with predictions over all leaves, weighted by the declared spread."""
    dots = squares = powers = 0.0
    for (_, truth, residual), predicted in zip(pairs, predictions, strict=True):
        use = _usable(truth)
        if predicted.is_complex():
            predicted = torch.view_as_real(predicted.resolve_conj())
        # No single large element decides.
        weight = (1.0 / (truth.spread + truth.pooled + truth.floor).square()).expand(residual.shape)[use]
        r, p = residual[use], predicted[use]
        dots += float((r * p * weight).sum())
        squares += float((r.square() * weight).sum())
        powers += float((p.square() * weight).sum())
    return dots / math.sqrt(squares * powers) if squares > 0.0 and powers > 0.0 else 0.0


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
