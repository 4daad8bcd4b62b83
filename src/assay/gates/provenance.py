"""INT-02: the work is done by the candidate's own kernel, where the contract asks for one."""

from __future__ import annotations

from collections.abc import Sequence

from assay.gates.base import Context, Verdict, distinct
from assay.probe.model import Probe
from assay.probe.record import Record
from assay.report.model import Finding
from assay.vocabulary import Reason, Tier


class Provenance:
    """Counts kernel launches that completed, on every probe that answered."""

    id = "INT-02"
    slug = "provenance"
    aliases = ("lethe:provenance",)
    obligation = "the work is done by the candidate's own kernel, where the contract asks for one"
    opt_in = False

    def plan(self, ctx: Context) -> list[Probe]:
        """Nothing of its own."""
        return []

    def judge(self, ctx: Context, records: Sequence[Record]) -> Verdict:
        """A candidate that defines kernels has to run them."""
        wanted = ctx.contract.provenance
        if wanted == "none":
            return Verdict(inapplicable=Reason.BY_CONTRACT)
        if wanted == "auto" and ctx.language == "torch":
            return Verdict(inapplicable=Reason.BY_CONTRACT, note="a plain torch candidate owes no kernel")
        verdict = Verdict()
        answered = [r for r in records if r.observation.ran and r.probe.gate == "values"]
        for record in answered:
            facts = record.observation.facts
            if "launch_count" not in facts:
                verdict.undecided[Reason.NEEDS_GPU] += 1
                continue
            verdict.decided += 1
            launches = facts.get("launches", [])
            done = [launch for launch in launches if launch.get("completed")]
            if done:
                continue
            tried = sorted({str(launch.get("kernel")) for launch in launches})
            reason = Reason.KERNEL_NEVER_RAN if tried or ctx.language != "torch" else Reason.NO_OWN_KERNEL
            actual = f"no launch of {', '.join(tried)} completed" if tried else "no kernel was launched"
            error = next((launch.get("error") for launch in launches if launch.get("error")), None)
            verdict.findings.append(Finding(
                gate=self.id, slug=self.slug, reason=reason, tier=Tier.VIOLATION, tolerance_free=True,
                expected="a kernel of its own does the work", actual=actual,
                detail={"error": str(error)[:300]} if error else {}, attested_by="worker", probe=record.probe.id))
        verdict.findings = distinct(verdict.findings)
        return verdict
