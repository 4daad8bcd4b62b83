"""MEM-01: no read or write outside the buffers given."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from assay.gates import sanitized
from assay.gates.base import Context, Verdict, distinct, own
from assay.gates.numbers import first_difference, same_bits, shown
from assay.gates.steadiness import explained_by_rounding, repeats
from assay.probe import sizes
from assay.probe.model import Call, Draw, Probe
from assay.probe.record import Record
from assay.report.model import Finding
from assay.vocabulary import EffortTier, Reason, Tier

PADDINGS = ((255, "nan", "a5"), (0, "zero", "5a"))
"""Byte of red zones round inputs, answer of a load outside, byte of fences round allocations."""
MEMCHECKED = 2
"""Sizes that are run under memcheck in the deep tier, the small ones first."""
TAILS = {EffortTier.QUICK: 2, EffortTier.STANDARD: 4, EffortTier.DEEP: 16}


class Bounds:
    """Red zones read back by the judge, two paddings compared, on CPU each access of a kernel checked."""

    id = "MEM-01"
    slug = "bounds"
    aliases: tuple[str, ...] = ("veit:memory-safety", "memcheck")
    obligation = "no read or write outside the buffers given"
    opt_in = False

    def plan(self, ctx: Context) -> list[Probe]:
        """The same draw between red zones of NaN and of zeros: at plain sizes, and where tails exist.

        Outputs and scratch that the candidate allocates through torch lie between fences, of another byte in
        each of the two.
        """
        tails = sizes.plan_sizes(ctx.study, ctx.blocks, ctx.element_limit // 4, ctx.tier.value)
        places = [("", dict(ctx.small)), *((v.name, dict(v.sizes)) for v in tails[: TAILS[ctx.tier]])]
        checked = sanitized.probes(self, ctx, "memcheck", places[:MEMCHECKED])
        return checked + [
            Probe(
                id=f"{self.slug}/{name + '/' if name else ''}pad-{pad}",
                gate=self.slug,
                kind=name or "padding",
                sizes=at,
                draws=(Draw(seed=ctx.draw_seed(self.slug, name)),),
                calls=(Call(), Call(storage="same")) if not name else (Call(),),
                conditions=(f"pad:{pad}", f"poison:{poison}", f"fence:{fence}", "fresh:00"),
            )
            for name, at in places
            for pad, poison, fence in PADDINGS
        ]

    def judge(self, ctx: Context, records: Sequence[Record]) -> Verdict:
        """Any changed red zone, any access outside a buffer, any result that depends on the padding."""
        verdict = Verdict()
        records, checked = sanitized.apart(records)
        for record in records:
            seen = record.observation
            if seen.status == "not_run" or not (seen.calls or seen.facts.get("access")):
                continue
            verdict.decided += 1
            for event in seen.memory:
                if event.kind == "outside":
                    verdict.findings.append(
                        self._found(
                            record,
                            Reason.OUT_OF_BOUNDS_WRITE,
                            "red zone unchanged",
                            f"{event.count} bytes changed, {event.distance:+d} bytes from input {event.leaf}",
                            {},
                            False,
                        )
                    )
            verdict.findings += self._attested(record)
        mine = own(self, records)
        steady = repeats(ctx, [r for r in records if r.probe.kind in ("padding", "repeat", "stream")])
        for kind in dict.fromkeys(r.probe.kind for r in mine):
            pair = [r for r in mine if r.probe.kind == kind]
            if steady and not explained_by_rounding(ctx, pair):
                verdict.findings += self._paddings(pair)
        verdict.findings = distinct(sanitized.joined(verdict.findings, self._accesses(checked, verdict)))
        return verdict

    def _accesses(self, records: Sequence[Record], verdict: Verdict) -> list[Finding]:
        """Accesses of the candidate's kernels that memcheck found outside every allocation."""
        reasons = {"read": Reason.OUT_OF_BOUNDS_READ, "write": Reason.OUT_OF_BOUNDS_WRITE}
        return [
            sanitized.finding(self, record, report, reasons[kind], "every access inside a buffer")
            for record, report in sanitized.reports(records, verdict)
            if (kind := str(report.get("kind"))) in reasons
        ]

    def _attested(self, record: Record) -> list[Finding]:
        """What only the worker can see: accesses of interpreted kernels, and fences round allocations."""
        found = []
        for fault in record.observation.facts.get("access", [])[:4]:
            reason = Reason.OUT_OF_BOUNDS_READ if fault.get("kind") == "read" else Reason.OUT_OF_BOUNDS_WRITE
            buffer = f" of {fault['argument_name']}" if fault.get("argument_name") else ""
            found.append(
                self._found(
                    record,
                    reason,
                    "every access inside a buffer",
                    f"{fault.get('kernel')}, candidate.py:{fault.get('line')}: {fault.get('kind')} "
                    f"{_far(fault.get('distance'))}{buffer}",
                    _detail(fault),
                    True,
                )
            )
        for fence in record.observation.facts.get("fences", [])[:4]:
            found.append(
                self._found(
                    record,
                    Reason.OUT_OF_BOUNDS_WRITE,
                    "red zone unchanged",
                    f"{fence.get('bytes')} bytes changed, {_far(fence.get('distance'))} of an allocation "
                    f"{fence.get('allocation')}",
                    {},
                    True,
                )
            )
        return found

    def _paddings(self, records: Sequence[Record]) -> list[Finding]:
        """A result that differs between the two paddings at one size."""
        if len(records) != 2 or not all(r.comparable for r in records):
            return []
        first, second = (r.observation.calls[0].outputs for r in records)
        for a, b in zip(first, second, strict=False):
            if a.shape == b.shape and a.dtype == b.dtype and not same_bits(a.tensor, b.tensor):
                index = first_difference(a.tensor, b.tensor)
                one, two = a.tensor[index].item(), b.tensor[index].item()
                return [
                    Finding(
                        gate=self.id,
                        slug=self.slug,
                        reason=Reason.OUT_OF_BOUNDS_READ,
                        tier=Tier.WRONG,
                        tolerance_free=True,
                        output=a.path,
                        index=index,
                        expected="independent of what lies outside",
                        actual=f"{shown(one)} or {shown(two)} by the padding",
                        probe=records[1].probe.id,
                    )
                ]
        return []

    def _found(
        self,
        record: Record,
        reason: Reason,
        expected: str,
        actual: str,
        detail: dict[str, object],
        by_worker: bool,
    ) -> Finding:
        return Finding(
            gate=self.id,
            slug=self.slug,
            reason=reason,
            tier=Tier.WRONG,
            tolerance_free=True,
            expected=expected,
            actual=actual[:300],
            detail=detail,
            probe=record.probe.id,
            attested_by="worker" if by_worker else "judge",
        )


def _far(distance: Any) -> str:
    if not isinstance(distance, int):
        return "outside"
    return f"{distance} bytes past the end" if distance > 0 else f"{-distance} bytes before the start"


def _detail(fault: dict[str, Any]) -> dict[str, object]:
    names = ("kernel", "line", "kind", "distance", "argument_name", "lanes", "program")
    return {name: fault[name] for name in names if fault.get(name) is not None}
