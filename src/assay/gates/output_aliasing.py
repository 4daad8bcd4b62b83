"""ALS-01: an output shares no storage with an input or with an earlier output."""

from __future__ import annotations

from collections.abc import Sequence

from assay.gates.base import Context, Verdict, distinct, own, undecided_reason
from assay.gates.numbers import first_difference, same_bits, shown
from assay.probe.model import Call, Draw, Probe
from assay.probe.record import Output, Record
from assay.report.model import Finding
from assay.vocabulary import Reason, Tier


class OutputAliasing:
    """Two calls with other inputs; the first result must stay what it was."""

    id = "ALS-01"
    slug = "output_aliasing"
    aliases = ("lethe:output_aliasing", "veit:aliasing")
    obligation = "output shares no storage with an input or with an earlier output"
    opt_in = False

    def plan(self, ctx: Context) -> list[Probe]:
        """Three calls on two draws."""
        draws = tuple(Draw(seed=ctx.draw_seed(self.slug, i)) for i in range(2))
        return [Probe(id=f"{self.slug}/keep", gate=self.slug, kind="alias", sizes=ctx.small, draws=draws,
                      calls=(Call(draw=0), Call(draw=1), Call(draw=0)))]

    def judge(self, ctx: Context, records: Sequence[Record]) -> Verdict:
        """Storages are compared as the worker reports them; changed results are found by their bytes."""
        if ctx.contract.memory.aliasing == "allow":
            return Verdict(inapplicable=Reason.BY_CONTRACT)
        verdict = Verdict()
        for record in own(self, records):
            if (reason := undecided_reason(record)) is not None:
                verdict.undecided[reason] += 1
            elif len(record.observation.calls) < 2:
                verdict.undecided[Reason.RAISED] += 1
            else:
                verdict.decided += 1
                verdict.findings += self._earlier(record)
                verdict.findings += self._inputs(ctx, record)
        verdict.findings = distinct(verdict.findings)
        return verdict

    def _earlier(self, record: Record) -> list[Finding]:
        found = []
        calls = record.observation.calls
        for number, late in enumerate(record.observation.late or ()):
            for then, now in zip(calls[number].outputs, late, strict=True):
                if not same_bits(then.tensor, now):
                    index = first_difference(then.tensor, now)
                    found.append(self._finding(record, Reason.EARLIER_OUTPUT_CHANGED, then,
                                               shown(then.tensor[index].item()), shown(now[index].item()), index))
        if found:
            return found
        for number, call in enumerate(calls[1:], start=1):
            for output in call.outputs:
                for earlier in calls[number - 1].outputs:
                    if _overlap(output, earlier):
                        found.append(self._finding(record, Reason.ALIASES_EARLIER_OUTPUT, output,
                                                   "a storage of its own", f"the storage of call {number - 1}", None))
        return found

    def _inputs(self, ctx: Context, record: Record) -> list[Finding]:
        if all(truth.aliases for truth in record.truths) and ctx.contract.memory.aliasing == "reference":
            return []
        return [
            self._finding(record, Reason.ALIASES_INPUT, output, "a storage of its own", "the storage of an input",
                          None)
            for number, call in enumerate(record.observation.calls)
            for output in call.outputs
            if output.storage_bytes and any(
                start <= output.storage_ptr < end
                for start, end in record.observation.facts.get("inputs", {}).get(str(number), ()))
        ]

    def _finding(self, record: Record, reason: Reason, output: Output, expected: str, actual: str,
                 index: tuple[int, ...] | None) -> Finding:
        return Finding(gate=self.id, slug=self.slug, reason=reason, tier=Tier.VIOLATION, tolerance_free=True,
                       output=output.path, index=index, expected=expected, actual=actual, probe=record.probe.id,
                       attested_by="judge" if reason is Reason.EARLIER_OUTPUT_CHANGED else "worker")


def _overlap(a: Output, b: Output) -> bool:
    return bool(a.storage_bytes and b.storage_bytes and a.storage_ptr and a.storage_ptr == b.storage_ptr)
