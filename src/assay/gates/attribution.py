"""Which arithmetic explains a wrong result: the declared one, a lower mode, or none."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

import torch

from assay import oracle
from assay.gates.base import Gate
from assay.gates.numbers import Compared, compare_record, finding
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
    "fast_math": Reason.PRECISION_FAST_MATH,
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
NOISE_ELEMENTS = 64
"""Fewest elements whose residuals can be told from a smooth function."""
NOISE_SHARE = 0.2
"""Share of a residual's square that a fit may explain of noise, beyond what its freedom explains of any."""
ALIKE = 0.3
"""Correlation of residual and prediction below which a mode of operands explains nothing."""


def fingerprint_of(record: Record, call: int = 0) -> Fingerprint | None:
    """The arithmetic that explains one call of a record; None where the truth carries no modes."""
    truth = record.truth_of(call)
    outputs = record.observation.calls[call].outputs
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
    seen = oracle.attribute(evaluation, truth.modes, [o.tensor for o in outputs])
    settled = record.settled
    if settled is None or settled in seen.accounted or seen.ratios.get(settled, math.inf) > 1.0:
        return seen
    # what it computes in is known: it owes what a contract that declares that mode would ask for
    return dataclasses.replace(seen, accounted=(*seen.accounted, settled))


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


def attributed(found: Finding, compared: Compared, seen: Fingerprint, mode: str, settled: bool = False) -> Finding:
    """The finding as the mode that explains it: a divergence, or wrong where next to no bit is right.

    Where other results have settled the mode, bits that it costs an ill-conditioned result are no fault beside it.
    """
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
    tier = Tier.DIVERGENCE if settled or bits >= PLAINLY_WRONG_BITS else Tier.WRONG
    return found.model_copy(update={"reason": MODE_REASON[mode], "tier": tier, "detail": detail})


def mode_shown(record: Record) -> str | None:
    """The mode whose prediction of rounded operands accounts for all that is wrong in a record; None without."""
    found: set[str] = set()
    for call in dict.fromkeys(c.call for c in compare_record(record) if not c.result.ok):
        seen = fingerprint_of(record, call)
        found.add(next(iter(seen.accounted), "") if seen is not None else "")
    return next(iter(found)) or None if len(found) == 1 else None


def numeric_findings(gate: Gate, record: Record, compared: Sequence[Compared],
                     tier: Tier = Tier.WRONG) -> list[Finding]:
    """Findings for the outputs that are not right: of a lower mode where one accounts for a call, else of `tier`."""
    found: list[Finding] = []
    for call in dict.fromkeys(c.call for c in compared):
        own = [c for c in compared if c.call == call]
        wrong = [c for c in own if not c.result.ok]
        if not wrong:
            continue
        seen = fingerprint_of(record, call) if wrong_values(own) else None
        mode = accounting(seen, own) if seen is not None else None
        for c in wrong:
            plain = with_bits(finding(gate, record, c, tier), c)
            found.append(plain if seen is None or mode is None else attributed(
                plain, c, seen, mode, mode == record.settled))
    return found


def wrong_values(compared: Sequence[Compared]) -> bool:
    """Whether some outputs are wrong, and all of those by finite values, as lower precision makes them."""
    wrong = [c for c in compared if not c.result.ok]
    return bool(wrong) and all(c.result.reason is oracle.Reason.VALUE for c in wrong)


def accounted_for(record: Record, compared: Sequence[Compared]) -> bool:
    """Whether a lower mode accounts for every call that is wrong."""
    for call in dict.fromkeys(c.call for c in compared if not c.result.ok):
        own = [c for c in compared if c.call == call]
        seen = fingerprint_of(record, call) if wrong_values(own) else None
        if seen is None or accounting(seen, own) is None:
            return False
    return True


def accounting(seen: Fingerprint, compared: Sequence[Compared]) -> str | None:
    """The lower mode that accounts for all that is wrong in one call, so that nothing else can be; None without.

    Stricter than `explanation`, which names what a residual looks like: an error that a mode would merely allow
    may be a fault of that size. Evidence is a prediction that leaves nothing over; results that are all numbers of
    a half format, off by one rounding or by what looks like the noise of a half accumulator; or, for approximate
    intrinsics, that the source names them, and noise.
    """
    for mode in (seen.mode, *MODE_REASON):
        if mode in seen.accounted:
            return mode
    wrong = [c for c in compared if not c.result.ok]
    halves = (("fp16", torch.float16), ("bf16", torch.bfloat16))
    for name, dtype in halves:
        if all(_is_rounded_to(c, dtype) and _within_half(c, dtype) for c in wrong):
            return name
    if any(follows_result(c) for c in wrong):
        return None
    for name, dtype in halves:
        allowed = seen.identifiable.get(f"{name}_accumulate") and seen.ratios.get(f"{name}_accumulate", math.inf) <= 1.0
        if allowed and all(_is_rounded_to(c, dtype) and _is_noise(c) for c in wrong):
            return f"{name}_accumulate"
    allowed = seen.identifiable.get("fast_math") and seen.ratios.get("fast_math", math.inf) <= 1.0
    return "fast_math" if allowed and all(map(_is_noise, wrong)) else None


def _is_rounded_to(compared: Compared, dtype: torch.dtype) -> bool:
    """Whether a wider output holds only numbers of a half format, although the right results are none of them."""
    actual = compared.output.tensor
    if actual.dtype not in (torch.float32, torch.float64):
        return False
    use = compared.truth.decided & torch.isfinite(actual)
    seen, right = actual[use].double(), compared.truth.y[use].float()
    moved = (actual[use] - right).abs() > compared.truth.tolerance[use]
    finer = (right != right.to(dtype).float())[moved].double().mean()
    return bool((seen == seen.to(dtype).double()).all()) and bool(finer > 0.5)


def _within_half(compared: Compared, dtype: torch.dtype) -> bool:
    """Whether a result is off by no more than one rounding to a half format, beside what is granted anyway."""
    truth, info = compared.truth, torch.finfo(dtype)
    error = (compared.output.tensor.double() - truth.y).abs()
    rounding = torch.clamp(0.5 * info.eps * truth.magnitude, min=0.5 * info.smallest_normal * info.eps)
    use = truth.decided & torch.isfinite(truth.y)
    return bool((error[use] <= (rounding + truth.tolerance)[use]).all())


def _is_noise(compared: Compared) -> bool:
    """Whether a residual is no smooth function of the result, nor the same along rows or columns, as a fault is.

    Judged by the share of its square that a fit explains; too little data is no noise.
    """
    y = compared.truth.y
    if y.is_complex():
        return False
    wide = compared.output.tensor.to(y.dtype)
    use = torch.isfinite(y) & torch.isfinite(wide) & compared.truth.decided
    if int(use.sum()) < NOISE_ELEMENTS:
        return False
    # each element counts by the error that it may have, so that the largest alone do not decide
    residual = torch.where(use, (wide - y) / compared.truth.tolerance.clamp(min=1e-300), 0.0)
    size = torch.where(use, y, 0.0) / float(y[use].abs().amax().clamp(min=1e-300))
    power = float(residual.square().sum())
    columns = [use.double(), size, size.abs(), size.square(), size**3, size.sign() * size.abs().sqrt()]
    basis = torch.stack([(c * use / compared.truth.tolerance.clamp(min=1e-300)).reshape(-1) for c in columns], 1)
    basis = basis / basis.norm(dim=0).clamp(min=1e-300)
    fit = torch.linalg.lstsq(basis, residual.reshape(-1, 1), driver="gelsd").solution
    shares = [(float((basis @ fit).square().sum()), len(columns))]
    for axis in range(residual.dim()):
        counts = use.sum(axis).clamp(min=1)
        shares.append((float((residual.sum(axis).square() / counts).sum()), counts.numel()))
    many = int(use.sum())
    return power > 0.0 and all(share / power <= NOISE_SHARE + 2.0 * free / many for share, free in shares)
