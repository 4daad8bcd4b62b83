"""ORD-02: same input, same bits, or the class that the contract declares."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from assay.gates import sanitized
from assay.gates.base import Context, Verdict, distinct, own, undecided_reason
from assay.gates.numbers import compare_call, finding, first_difference, same_bits, same_form, shown
from assay.probe.model import Call, Draw, Probe
from assay.probe.record import Record
from assay.report.model import Finding
from assay.vocabulary import Reason, Tier

ORDER = "order"
"""Kind of the probes whose programs run in another order."""
ORDERS = {
    "reverse": "the last program of each launch runs first",
    "snapshot": "no program sees what others of its launch have stored",
}
"""Two of the orders that a GPU may choose, where a kernel orders nothing itself."""
LAST_ONE_WINS = frozenset({
    "scatter", "scatter_", "index_put", "index_put_", "_index_put_impl_", "index_copy", "index_copy_", "put", "put_",
    "masked_scatter", "masked_scatter_",
})
"""Operators whose result hangs on an order that they leave open, where indices repeat."""


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
        return [
            Probe(id=f"{self.slug}/{name}", gate=self.slug, kind="repeat", sizes=sizes, calls=calls,
                  draws=(Draw(seed=ctx.draw_seed(self.slug, name)),))
            for name, sizes in places.items()
        ] + self._orders(ctx, places) + sanitized.probes(self, ctx, "racecheck", [("", ctx.small)])

    def _orders(self, ctx: Context, places: dict[str, dict[str, int]]) -> list[Probe]:
        """One call per place and order, on the draw of the repeated calls; only interpreted programs can be ordered."""
        if ctx.device != "cpu" or not {"triton", "gluon"} & {ctx.language, *ctx.languages}:
            return []
        return [
            Probe(id=f"{self.slug}/{order}@{name}", gate=self.slug, kind=ORDER, sizes=sizes, calls=(Call(),),
                  draws=(Draw(seed=ctx.draw_seed(self.slug, name)),), conditions=(f"order:{order}",))
            for name, sizes in places.items() for order in ORDERS
        ]

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
        ordered = [r for r in records if r.probe.kind == ORDER]
        plain = [r for r in own(self, records) if r.probe.kind != ORDER]
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
        """Wrong in one order of its programs and right in another: nothing orders them, and something has to.

        An order in which it does not end says nothing: it may order its programs in a way that is not known here.
        """
        control = [r for r in plain if (r.probe.sizes, r.probe.draws) == (record.probe.sizes, record.probe.draws)]
        if not control or not control[0].comparable or not record.comparable:
            return
        right = compare_call(control[0], 0)
        if not right or not all(c.result.ok for c in right) or not record.observation.facts.get("reordered"):
            return
        if LAST_ONE_WINS & set(record.truths[0].ops):
            return
        verdict.decided += 1
        order = dict(c.split(":", 1) for c in record.probe.conditions)["order"]
        conflict: dict[str, Any] = next(iter(record.observation.facts.get("conflicts") or []), {})
        place = {key: conflict[key] for key in ("kernel", "line") if conflict.get(key)}
        if conflict:
            done = "reads what another stores" if conflict.get("kind") == "read" else "stores over another's value"
            place["place"] = f"{conflict.get('kernel')}, candidate.py:{conflict.get('line')}: a program {done}"
        for compared in compare_call(record, 0):
            if not compared.result.ok:
                one = finding(self, record, compared)
                detail = {**one.detail, "schedule": ORDERS[order], **place}
                verdict.findings.append(one.model_copy(update={"reason": Reason.DATA_RACE, "detail": detail}))

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
