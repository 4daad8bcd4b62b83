"""ORD-02: same input, same bits, or the class that the contract declares."""

from __future__ import annotations

from collections.abc import Sequence

from assay.gates import races, sanitized
from assay.gates.base import Context, Verdict, distinct, own, undecided_reason
from assay.gates.numbers import compare_call, finding, first_difference, same_bits, same_form, shown
from assay.probe.model import Call, Draw, Probe
from assay.probe.record import Record
from assay.report.model import Finding
from assay.vocabulary import Reason, Tier


class Repeatability:
    """The same values several times: at other addresses, and in the very same tensors."""

    id = "ORD-02"
    slug = "repeatability"
    aliases = ("lethe:ORD-02", "veit:determinism")
    obligation = "same input, same bits, or the declared class: bitwise, bounded, none"
    opt_in = False

    def plan(self, ctx: Context) -> list[Probe]:
        """Five calls on one draw, at the native sizes and at small ones."""
        if ctx.contract.determinism == "none" or ctx.study.random or "output" in ctx.study.stateful:
            return []
        # where the reference changes its inputs, the very same tensors hold other values the second time
        again = Call() if ctx.study.mutates else Call(storage="same")
        calls = (Call(), Call(), again, Call(), again)
        places = {"native": ctx.sizes, "small": ctx.small}
        if ctx.small == ctx.sizes or ctx.quick:
            places.pop("native")
        probes = [
            Probe(id=f"{self.slug}/{name}", gate=self.slug, kind="repeat", sizes=sizes, calls=calls,
                  draws=(Draw(seed=ctx.draw_seed(self.slug, name)),))
            for name, sizes in places.items()
        ]
        for once in [probe.model_copy(update={"calls": calls[:1]}) for probe in probes]:
            probes += races.in_orders(ctx, once)
        return probes + sanitized.probes(self, ctx, "racecheck", [("", ctx.small)])

    def judge(self, ctx: Context, records: Sequence[Record]) -> Verdict:
        """Bit for bit against the first call; within the oracle's bound when that is what was declared."""
        if ctx.contract.determinism == "none":
            return Verdict(inapplicable=Reason.BY_CONTRACT)
        if ctx.study.random:
            return Verdict(inapplicable=Reason.REFERENCE_RANDOM, note="the reference draws random numbers")
        if "output" in ctx.study.stateful:
            return Verdict(inapplicable=Reason.NOTHING_TO_VARY,
                           note="the reference's own result changes from call to call")
        verdict = Verdict()
        records, checked = sanitized.apart(records)
        ordered = [r for r in records if r.probe.kind == races.KIND]
        plain = [r for r in own(self, records) if r.probe.kind != races.KIND]
        for record in plain:
            if (reason := undecided_reason(record)) is not None:
                verdict.undecided[reason] += 1
            elif len(record.observation.calls) < 2:
                verdict.undecided[Reason.RAISED] += 1
            else:
                verdict.decided += 1
                bounded = ctx.contract.determinism == "bounded"
                verdict.findings += self._bounded(record) if bounded else self._bitwise(record)
        verdict.findings += [
            sanitized.finding(self, record, report, Reason.DATA_RACE, "a barrier between the two accesses")
            for record, report in sanitized.reports(checked, verdict) if report.get("kind") == "race"]
        if not verdict.findings:
            for record in ordered:
                self._raced(record, plain, verdict)
        verdict.findings = distinct(verdict.findings)
        return verdict

    def _raced(self, record: Record, plain: Sequence[Record], verdict: Verdict) -> None:
        """Wrong in one order of its programs and right in another: nothing orders them, and something has to."""
        control = next((r for r in plain if r.probe.id == races.of_control(record)), None)
        if control is None or not control.comparable or not races.tells(record):
            return
        right = compare_call(control, 0)
        if not right or not all(c.result.ok for c in right):
            return
        verdict.decided += 1
        wrong = [c for c in compare_call(record, 0) if not c.result.ok]
        verdict.findings += [races.raced(record, finding(self, record, c)) for c in wrong]

    def _bitwise(self, record: Record) -> list[Finding]:
        first = record.observation.calls[0]
        for number, call in enumerate(record.observation.calls[1:], start=1):
            for a, b in zip(first.outputs, call.outputs, strict=False):
                if a.shape == b.shape and a.dtype == b.dtype and not same_bits(a.tensor, b.tensor):
                    index = first_difference(a.tensor, b.tensor)
                    return [Finding(
                        gate=self.id, slug=self.slug, reason=Reason.NOT_REPEATABLE, tier=Tier.VIOLATION,
                        tolerance_free=True, output=a.path, index=index, expected=shown(a.tensor[index].item()),
                        actual=shown(b.tensor[index].item()), detail={"call": number}, probe=record.probe.id)]
        return []

    def _bounded(self, record: Record) -> list[Finding]:
        first = record.observation.calls[0]
        found = []
        for number in range(1, len(record.observation.calls)):
            call = record.observation.calls[number]
            differs = any(not same_bits(a.tensor, b.tensor)
                          for a, b in zip(first.outputs, call.outputs, strict=False))
            if differs and same_form(record.truth_of(number), call):
                found += [finding(self, record, c) for c in compare_call(record, number) if not c.result.ok]
        return found
