"""EXC-01: NaN and signed infinities arrive where the reference puts them."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from assay.gates.base import Context, Verdict, distinct, fault_finding, own, single, undecided_reason
from assay.gates.numbers import class_reason, compare_call, finding, same_form, shown, unravel
from assay.oracle import LeafTruth
from assay.probe.model import Draw, Injection, Probe
from assay.probe.record import FAULTS, Output, Record
from assay.report.model import Finding
from assay.vocabulary import EffortTier, Reason, Tier

POSITIONS = {
    EffortTier.QUICK: (0.41,),
    EffortTier.STANDARD: (0.0, 0.41, 0.9999),
    EffortTier.DEEP: (0.0, 0.13, 0.25, 0.41, 0.5, 0.77, 0.9999),
}


class Nonfinite:
    """One special value at a time in one element of one input, then several scattered."""

    id = "EXC-01"
    slug = "nonfinite"
    aliases = ("lethe:EXC-01", "veit:exceptional-values")
    obligation = "NaN and signed Inf arrive where the reference puts them"
    opt_in = False

    def plan(self, ctx: Context) -> list[Probe]:
        """Each wanted value at an edge, inside and at the end of each floating input."""
        wanted = [v for v, policy in (("nan", ctx.contract.exceptional.nan), ("inf", ctx.contract.exceptional.inf),
                                      ("-inf", ctx.contract.exceptional.inf)) if policy != "ignore"]
        probes = []
        floating = [i for i, leaf in enumerate(ctx.study.tensor_inputs())
                    if leaf.dtype.startswith(("float", "bfloat"))]
        for i in floating:
            for value in wanted:
                places = POSITIONS[ctx.tier] if value == "nan" else POSITIONS[ctx.tier][:2]
                for place in places:
                    probes.append(self._probe(ctx, f"{value}@{i}:{place:g}", (Injection(leaf=i, position=place, value=value),)))
        if floating and "nan" in wanted and not ctx.quick:
            # one kind only: mixed infinities would meet in sums, and then a skipped structural zero shows
            scattered = tuple(Injection(leaf=i, position=(k * 0.137 + 0.05 * i) % 1, value="nan")
                              for i in floating for k in range(6))
            probes.append(self._probe(ctx, "scattered", scattered))
        return probes

    def _probe(self, ctx: Context, name: str, injections: tuple[Injection, ...]) -> Probe:
        return single(self, name, Draw(seed=ctx.draw_seed(self.slug, name), injections=injections), ctx.small,
                      kind=injections[0].value)

    def judge(self, ctx: Context, records: Sequence[Record]) -> Verdict:
        """Compare the class of every decided element; then the finite rest."""
        policy = ctx.contract.exceptional
        if policy.nan == "ignore" and policy.inf == "ignore":
            return Verdict(inapplicable=Reason.BY_CONTRACT)
        mine = own(self, records)
        if not mine:
            return Verdict(inapplicable=Reason.NO_SUCH_INPUT, note="no floating input")
        verdict = Verdict()
        for record in mine:
            if (reason := undecided_reason(record)) is not None:
                verdict.undecided[reason] += 1
            elif record.observation.status in FAULTS:
                verdict.decided += 1
                verdict.findings.append(fault_finding(self, record, Tier.VIOLATION))
            elif not same_form(record.truths[0], record.observation.calls[0]):
                verdict.undecided[Reason.SHAPE] += 1
            else:
                verdict.decided += 1
                verdict.findings += self._classes(record)
        verdict.findings = distinct(verdict.findings)
        return verdict

    def _classes(self, record: Record) -> list[Finding]:
        found = []
        truth = record.truths[0]
        for output, leaf in zip(record.observation.calls[0].outputs, truth.leaves, strict=True):
            if leaf.kind not in ("float", "complex"):
                continue
            index = _class_differs(leaf, output)
            if index is not None:
                expected, actual = leaf.native[index].item(), output.tensor[index].item()
                found.append(Finding(
                    gate=self.id, slug=self.slug, reason=class_reason(expected, actual), tier=Tier.VIOLATION,
                    tolerance_free=True, output=output.path, index=index, expected=shown(expected),
                    actual=shown(actual), detail={"injected": record.probe.kind}, probe=record.probe.id))
        if not found:
            for compared in compare_call(record, 0):
                if not compared.result.ok and compared.truth.kind in ("float", "complex"):
                    leak = finding(self, record, compared, Tier.VIOLATION)
                    found.append(leak.model_copy(update={"reason": Reason.LEAKED}))
        return found


def _kinds(tensor: torch.Tensor) -> torch.Tensor:
    """0 finite, 1 NaN, 2 +Inf, 3 -Inf; a complex number takes the larger of its parts' kinds."""
    if tensor.is_complex():
        parts = torch.view_as_real(tensor)
        return _kinds(parts).amax(dim=-1)
    kinds = torch.zeros(tensor.shape, dtype=torch.uint8)
    kinds[torch.isnan(tensor)] = 1
    kinds[torch.isposinf(tensor)] = 2
    kinds[torch.isneginf(tensor)] = 3
    return kinds


def _class_differs(leaf: LeafTruth, output: Output) -> tuple[int, ...] | None:
    """First element whose class differs where native and float64 reference agree on one."""
    native, wide, actual = _kinds(leaf.native), _kinds(leaf.y), _kinds(output.tensor)
    wrong = (native != actual) & (native == wide) & leaf.decided
    if not bool(wrong.any()):
        return None
    return unravel(int(wrong.reshape(-1).nonzero()[0]), tuple(leaf.native.shape))
