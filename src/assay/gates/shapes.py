"""CMP-03: right at every size the task admits."""

from __future__ import annotations

from collections.abc import Sequence

from assay.gates.base import Context, Verdict, distinct, own, single
from assay.gates.ordinary import judge_record, wrong_plainly
from assay.probe import huge, sizes
from assay.probe.model import Call, Draw, Probe
from assay.probe.record import Record
from assay.vocabulary import EffortTier, Reason, Tier

FAR = 8.0
"""Growth of the work from which a size counts as far from the native ones."""
FAR_SECONDS = 3.0
"""Seconds that a call at such a size may take, as its growth foretells."""
LIMITS = {EffortTier.QUICK: 4, EffortTier.STANDARD: 24, EffortTier.DEEP: 96}


class Shapes:
    """Other values of the task's own integers, so that weights, ties and structure follow."""

    id = "CMP-03"
    slug = "shapes"
    aliases = ("lethe:CMP-03", "veit:shape-generality")
    obligation = "right at every size the task admits"
    opt_in = False

    def plan(self, ctx: Context) -> list[Probe]:
        """One draw at each planned size, and one at the sizes that values are judged at, as control."""
        variants = sizes.plan_sizes(ctx.study, ctx.blocks, ctx.element_limit, ctx.tier.value)
        if not variants:
            return []
        control = single(self, "control", Draw(seed=ctx.draw_seed("shapes", "control")), ctx.sizes,
                         kind="control")
        # far from the native sizes only where that cannot be taken for a hang
        cheap = [v for v in variants if v.growth < FAR or v.growth * ctx.call_seconds <= FAR_SECONDS]
        return [control] + [
            single(self, variant.name, Draw(seed=ctx.draw_seed("shapes", variant.name)), dict(variant.sizes),
                   kind="far" if variant.growth >= FAR else "call")
            for variant in cheap[: LIMITS[ctx.tier]]
        ] + self._huge(ctx)

    def _huge(self, ctx: Context) -> list[Probe]:
        """A small batch repeated to the native length; in the deep tier, past the limits of the device."""
        if ctx.device != "cuda" or ctx.quick:
            return []
        batches = huge.at_native(ctx.study, ctx.sizes, ctx.device_bytes)
        if ctx.deep:
            batches = huge.plan(ctx.study, ctx.sizes, ctx.device_bytes) or batches
        return [
            Probe(id=f"{self.slug}/{batch.name}", gate=self.slug, sizes=batch.sizes, conditions=(batch.condition,),
                  kind="huge-control" if batch.name == "control" else "huge",
                  draws=(Draw(seed=ctx.draw_seed(self.slug, "huge")),),
                  calls=(Call(), Call(storage="same"), Call(storage="same")))
            for batch in batches
        ]

    def judge(self, ctx: Context, records: Sequence[Record]) -> Verdict:
        """Within tolerance at every size; refusing a size, or failing there, breaks the clause."""
        mine = own(self, records)
        if not mine:
            return Verdict(inapplicable=Reason.NOTHING_TO_VARY, note="no size of this task can be varied")
        verdict = Verdict()
        varied = [r for r in mine if r.probe.kind != "control"]
        if wrong_plainly(r for r in mine if r.probe.kind == "control"):
            # wrong at its native sizes already: other sizes tell nothing of the obligation
            verdict.undecided[Reason.VALUE] += len(varied)
            return verdict
        controls = [r for r in varied if r.probe.kind == "huge-control"]
        if wrong_plainly(controls):
            # rows of this task, or of this candidate, are not independent: repeating them says nothing
            varied = [r for r in varied if not r.probe.kind.startswith("huge")]
        for record in varied:
            if record.probe.kind == "far" and record.observation.status == "timed_out":
                # slower than its growth foretold, as work that grows with the square of a size is
                verdict.undecided[Reason.BUDGET] += 1
                continue
            judge_record(self, record, verdict, Tier.WRONG, fault_tier=Tier.VIOLATION,
                         refused=Reason.SIZE_REJECTED)
        native = ctx.study.native()
        tried = sorted({f"{k}={v}" for r in varied for k, v in r.probe.sizes.items() if v != native.get(k)})
        verdict.note = f"{len(varied)} sizes: " + ", ".join(tried[:12]) + (", …" if len(tried) > 12 else "")
        verdict.findings = distinct(verdict.findings)
        return verdict
