"""CMP-03: right at every size the task admits."""

from __future__ import annotations

from collections.abc import Sequence

from assay.gates.base import Context, Verdict, distinct, fault_finding, own, single, undecided_reason
from assay.gates.numbers import compare_record, decides, finding
from assay.probe import sizes
from assay.probe.model import Draw, Probe
from assay.probe.record import FAULTS, Record
from assay.vocabulary import EffortTier, Reason, Tier

LIMITS = {EffortTier.QUICK: 4, EffortTier.STANDARD: 24, EffortTier.DEEP: 96}


class Shapes:
    """Other values of the task's own integers, so that weights, ties and structure follow."""

    id = "CMP-03"
    slug = "shapes"
    aliases = ("lethe:CMP-03", "veit:shape-generality")
    obligation = "right at every size the task admits"
    opt_in = False

    def plan(self, ctx: Context) -> list[Probe]:
        """One draw at each planned size."""
        variants = sizes.plan_sizes(ctx.study, ctx.blocks, ctx.element_limit, ctx.tier.value)
        return [
            single(self, variant.name, Draw(seed=ctx.draw_seed("shapes", variant.name)), dict(variant.sizes))
            for variant in variants[: LIMITS[ctx.tier]]
        ]

    def judge(self, ctx: Context, records: Sequence[Record]) -> Verdict:
        """Within tolerance at every size; refusing a size, or failing there, breaks the clause."""
        verdict = Verdict()
        mine = own(self, records)
        if not mine:
            return Verdict(inapplicable=Reason.NOTHING_TO_VARY, note="no size of this task can be varied")
        for record in mine:
            if (reason := undecided_reason(record)) is not None:
                verdict.undecided[reason] += 1
            elif record.observation.status in FAULTS:
                verdict.decided += 1
                found = fault_finding(self, record, Tier.VIOLATION)
                if found.reason is Reason.RAISED:
                    found = found.model_copy(update={"reason": Reason.SIZE_REJECTED})
                verdict.findings.append(found)
            else:
                compared = compare_record(record)
                if not decides(compared):
                    verdict.undecided[Reason.UNSTABLE_REFERENCE] += 1
                    continue
                verdict.decided += 1
                verdict.findings += [finding(self, record, c) for c in compared if not c.result.ok]
        tried = sorted({f"{k}={v}" for r in mine for k, v in r.probe.sizes.items()
                        if v != ctx.study.native().get(k)})
        verdict.note = f"{len(mine)} sizes: " + ", ".join(tried[:12]) + (", …" if len(tried) > 12 else "")
        verdict.findings = distinct(verdict.findings)
        return verdict
