"""Which arithmetic explains a wrong result: the declared one, a lower mode, or none."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

from assay import oracle
from assay.gates.numbers import Compared
from assay.oracle import Evaluation, Fingerprint
from assay.probe.record import Record
from assay.report.model import Finding
from assay.report.words import MODES
from assay.vocabulary import Reason, Tier

MODE_REASON = {
    "tf32": Reason.PRECISION_TF32,
    "bf16": Reason.PRECISION_BF16,
    "fp16": Reason.PRECISION_FP16,
    "fp16_accumulate": Reason.NARROW_ACCUMULATOR,
    "bf16_accumulate": Reason.NARROW_ACCUMULATOR,
}
"""Reason for each mode of the oracle's fingerprint."""
WORDS = {mode: MODES[mode] for mode in MODE_REASON}
"""Each mode as people say it."""
PLAINLY_WRONG_BITS = 4.0
"""With fewer bits than this that agree with the truth, a result is wrong rather than less precise."""
TELLING_ELEMENTS = 8
"""Fewest elements whose residuals can be told from a wrong formula's."""
STRUCTURED = 0.5
"""Correlation of residual and result, both about their means, from which an error is no rounding."""
ALIKE = 0.3
"""Correlation of residual and prediction below which a mode of operands explains nothing."""


def fingerprint_of(record: Record) -> Fingerprint | None:
    """The arithmetic that explains a record's first call; None where the truth carries no modes."""
    truth = record.truth_of(0)
    outputs = record.observation.calls[0].outputs
    if not truth.modes or truth.arithmetic is None or len(outputs) != len(truth.leaves):
        return None
    if any(o.shape != tuple(leaf.y.shape) for o, leaf in zip(outputs, truth.leaves, strict=True)):
        return None
    evaluation = Evaluation(
        leaves=list(truth.leaves),
        raised=None,
        unmodelled=truth.unmodelled,
        ops=truth.ops,
        random=truth.random,
        seconds=0.0,
        arithmetic=truth.arithmetic,
    )
    return oracle.attribute(evaluation, truth.modes, [o.tensor for o in outputs])


def effective_bits(compared: Compared) -> float:
    """-log2 of the largest residual relative to the output's scale: bits that agree with the truth.

    The scale of an element is the larger of |y| there and the root mean square of y over the output, so that
    an element near zero does not decide; non-finite and undecided elements are left out. From -64 to 64.
    """
    y = compared.truth.y
    wide = compared.output.tensor.to(y.dtype)
    use = torch.isfinite(y.abs()) & torch.isfinite(wide.abs()) & compared.truth.decided
    if (not y.is_floating_point() and not y.is_complex()) or not bool(use.any()):
        return 64.0
    size, residual = y[use].abs(), (wide[use] - y[use]).abs()
    scale = torch.maximum(size, size.square().mean().sqrt())
    worst = float((residual / scale.clamp(min=1e-300)).max())
    return _bounded(-math.log2(worst)) if worst > 0.0 else 64.0


def _bounded(bits: float) -> float:
    return max(-64.0, min(64.0, bits))


def follows_result(compared: Compared) -> bool:
    """Whether the residual goes with the result, as rounding never does, or is too little data to tell.

    Both are taken about their means, so that a constant in place of the result shows as well as a factor.
    """
    y = compared.truth.y
    wide = compared.output.tensor.to(y.dtype)
    use = torch.isfinite(y.abs()) & torch.isfinite(wide.abs()) & compared.truth.decided
    if int(use.sum()) < TELLING_ELEMENTS or y.is_complex():
        return not y.is_complex()
    residual = (wide - y)[use]
    size = y[use] - y[use].mean()
    residual = residual - residual.mean()
    norm = float(size.norm() * residual.norm())
    # three standard deviations of the correlation of independent numbers, where those are many enough
    limit = min(0.9, max(STRUCTURED, 3.0 / math.sqrt(residual.numel())))
    return norm == 0.0 or abs(float((size * residual).sum())) > limit * norm


def with_bits(found: Finding, compared: Compared) -> Finding:
    """The finding with the bits of its output that agree with the truth."""
    if compared.truth.kind not in ("float", "complex"):
        return found
    return found.model_copy(
        update={"detail": {**found.detail, "effective_bits": round(effective_bits(compared), 1)}}
    )


def explanation(seen: Fingerprint, compared: Sequence[Compared]) -> str | None:
    """The lower mode that explains what is wrong among some outputs; None where there is none.

    A mode whose prediction the residual follows element by element explains it. An accumulator
    predicts only a size: it explains residuals of that size that neither follow the result nor are
    too few to tell. Operands rounded to a format do predict their error, so a residual of the right
    size that has nothing in common with the prediction is not explained by them.
    """
    if seen.recognised:
        return seen.mode if seen.mode in MODE_REASON else None
    if any(follows_result(c) for c in compared if not c.result.ok):
        return None
    for mode in ("fp16_accumulate", "bf16_accumulate"):
        if seen.identifiable.get(mode) and seen.ratios.get(mode, math.inf) <= 1.0:
            return mode
    if seen.mode in MODE_REASON and seen.correlation.get(seen.mode, 0.0) >= ALIKE:
        return seen.mode
    return None


def attributed(found: Finding, compared: Compared, seen: Fingerprint, mode: str) -> Finding:
    """The finding as the mode that explains it: a divergence, or wrong where next to no bit is right."""
    bits = effective_bits(compared)
    detail = {
        **found.detail,
        "mode": mode,
        "recognised": seen.recognised,
        "effective_bits": round(bits, 1),
        "arithmetic_bits": round(_bounded(seen.effective_bits), 1),
    }
    others = [name for name in (seen.mode, *seen.also) if name in MODE_REASON and name != mode]
    if others:
        detail["also"] = others
    if mode in seen.correlation:
        detail["correlation"] = round(seen.correlation[mode], 3)
    tier = Tier.DIVERGENCE if bits >= PLAINLY_WRONG_BITS else Tier.WRONG
    return found.model_copy(update={"reason": MODE_REASON[mode], "tier": tier, "detail": detail})
