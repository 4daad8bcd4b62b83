"""ALS-02: inputs and parameters unchanged, bit for bit."""

from __future__ import annotations

from collections.abc import Sequence

from assay.gates.base import Context, Verdict, distinct
from assay.probe.model import Probe
from assay.probe.record import Record
from assay.report.model import Finding
from assay.vocabulary import Reason, Tier


class InputMutation:
    """Judged on every probe: the judge reads the inputs' memory back itself."""

    id = "ALS-02"
    slug = "input_mutation"
    aliases: tuple[str, ...] = ("lethe:input_mutation", "veit:purity")
    obligation = "inputs and parameters unchanged, bit for bit"
    opt_in = False

    def plan(self, ctx: Context) -> list[Probe]:
        """Nothing of its own: every probe's inputs are read back."""
        return []

    def judge(self, ctx: Context, records: Sequence[Record]) -> Verdict:
        """A changed input that the reference leaves alone and the contract does not name is a finding."""
        verdict = Verdict()
        for record in records:
            if not record.observation.calls:
                continue
            verdict.decided += 1
            allowed = {i for truth in record.truths for i in truth.mutated}
            for event in record.observation.memory:
                if event.kind != "input" or event.leaf in allowed or self._waived(ctx, event.leaf):
                    continue
                verdict.findings.append(Finding(
                    gate=self.id, slug=self.slug, reason=Reason.INPUT_CHANGED, tier=Tier.VIOLATION,
                    tolerance_free=True, output=f"input {_name(ctx, event.leaf)}", index=event.index,
                    expected=event.before, actual=event.after, detail={"elements": event.count},
                    probe=record.probe.id))
            changed = [n for n in record.observation.parameters_changed if not ctx.study.stateful]
            for name in changed[:1]:
                verdict.findings.append(Finding(
                    gate=self.id, slug=self.slug, reason=Reason.PARAMETER_CHANGED, tier=Tier.VIOLATION,
                    tolerance_free=True, output=f"parameter {name}", expected="unchanged", actual="changed",
                    attested_by="worker", probe=record.probe.id))
        verdict.findings = distinct(verdict.findings)
        return verdict

    def _waived(self, ctx: Context, leaf: int) -> bool:
        named = ctx.contract.memory.inplace
        return str(leaf) in named or _name(ctx, leaf) in named


def _name(ctx: Context, leaf: int) -> str:
    leaves = ctx.study.tensor_inputs()
    return ".".join(str(p) for p in leaves[leaf].path) if leaf < len(leaves) else str(leaf)
