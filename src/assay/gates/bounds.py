"""MEM-01: no read or write outside the buffers given."""

from __future__ import annotations

from collections.abc import Sequence

from assay.gates.base import Context, Verdict, distinct, own
from assay.gates.numbers import first_difference, same_bits, shown
from assay.probe.model import Call, Draw, Probe
from assay.probe.record import Record
from assay.report.model import Finding
from assay.vocabulary import Reason, Tier


class Bounds:
    """Red zones read back by the judge, two paddings compared, and on CPU every access of a kernel checked."""

    id = "MEM-01"
    slug = "bounds"
    aliases = ("veit:memory-safety",)
    obligation = "no read or write outside the buffers given"
    opt_in = False

    def plan(self, ctx: Context) -> list[Probe]:
        """The same draw between red zones of NaN and between red zones of zeros."""
        draw = Draw(seed=ctx.draw_seed(self.slug))
        return [
            Probe(id=f"{self.slug}/pad-{pad}", gate=self.slug, kind="padding", sizes=ctx.small, draws=(draw,),
                  calls=(Call(), Call(storage="same")), conditions=(f"pad:{pad}", f"poison:{poison}"))
            for pad, poison in ((255, "nan"), (0, "zero"))
        ]

    def judge(self, ctx: Context, records: Sequence[Record]) -> Verdict:
        """Any changed red zone, any access outside a buffer, any result that depends on the padding."""
        verdict = Verdict()
        for record in records:
            seen = record.observation
            if seen.status == "not_run" or not (seen.calls or seen.facts.get("access")):
                continue
            verdict.decided += 1
            for event in seen.memory:
                if event.kind == "outside":
                    verdict.findings.append(self._found(
                        record, Reason.OUT_OF_BOUNDS_WRITE, "red zone unchanged",
                        f"{event.count} bytes changed, {event.distance:+d} bytes from input {event.leaf}", {}, False))
            for fault in seen.facts.get("access", [])[:4]:
                write = fault.get("kind") == "write"
                reason = Reason.OUT_OF_BOUNDS_WRITE if write else Reason.OUT_OF_BOUNDS_READ
                verdict.findings.append(self._found(
                    record, reason, "every access inside a buffer",
                    f"{fault.get('kernel')} line {fault.get('line')}: {fault.get('kind')} "
                    f"{fault.get('distance')} bytes outside", dict(fault), True))
        verdict.findings = distinct(verdict.findings + self._paddings(own(self, records)))
        return verdict

    def _paddings(self, records: Sequence[Record]) -> list[Finding]:
        if len(records) != 2 or not all(r.comparable for r in records):
            return []
        if any(not all(same_bits(a.tensor, b.tensor) for a, b in zip(one.outputs, two.outputs, strict=False))
               for one, two in (r.observation.calls[:2] for r in records)):
            # it does not repeat itself anyway: the padding explains nothing
            return []
        first, second = (r.observation.calls[0].outputs for r in records)
        for a, b in zip(first, second, strict=False):
            if a.shape == b.shape and a.dtype == b.dtype and not same_bits(a.tensor, b.tensor):
                index = first_difference(a.tensor, b.tensor)
                return [Finding(
                    gate=self.id, slug=self.slug, reason=Reason.OUT_OF_BOUNDS_READ, tier=Tier.WRONG,
                    tolerance_free=True, output=a.path, index=index, expected="independent of what lies outside",
                    actual=f"{shown(a.tensor[index].item())} or {shown(b.tensor[index].item())} by the padding",
                    probe=records[1].probe.id)]
        return []

    def _found(self, record: Record, reason: Reason, expected: str, actual: str, detail: dict[str, object],
               by_worker: bool) -> Finding:
        return Finding(gate=self.id, slug=self.slug, reason=reason, tier=Tier.WRONG, tolerance_free=True,
                       expected=expected, actual=actual[:300], detail=detail, probe=record.probe.id,
                       attested_by="worker" if by_worker else "judge")
