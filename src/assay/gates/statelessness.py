"""STA-01: the result is independent of call history, of object identity and of addresses."""

from __future__ import annotations

from collections.abc import Sequence

from assay.gates.base import Context, Verdict, distinct, own, undecided_reason
from assay.gates.numbers import compare_call, finding
from assay.probe import values
from assay.probe.model import Call, Draw, Probe
from assay.probe.record import Record
from assay.vocabulary import Reason, Tier

# call by call, what a wrong result there gives away
_MEANING = (
    Reason.VALUE, Reason.DEPENDS_ON_HISTORY, Reason.DEPENDS_ON_HISTORY, Reason.STALE_RESULT,
    Reason.STALE_RESULT, Reason.DEPENDS_ON_ADDRESS,
)


class Statelessness:
    """A, B, A again; new values in old tensors; the same tensors again; A at new addresses."""

    id = "STA-01"
    slug = "statelessness"
    aliases = ("lethe:state", "veit:referential-transparency")
    obligation = "result independent of call history, of object identity and of addresses"
    opt_in = False

    def plan(self, ctx: Context) -> list[Probe]:
        """Six calls on three draws, and on one more with parameters replaced after construction."""
        if ctx.study.random or ctx.study.stateful:
            return []
        calls = (Call(draw=0), Call(draw=1), Call(draw=0), Call(draw=2, storage="overwrite"),
                 Call(draw=2, storage="same"), Call(draw=1))
        return [Probe(id=f"{self.slug}/history", gate=self.slug, kind="history", sizes=ctx.small, calls=calls,
                      draws=self._draws(ctx))]

    def _draws(self, ctx: Context) -> tuple[Draw, ...]:
        """Three draws in which every input changes, also one that the generator always makes alike."""
        fixed = {
            i: values.variants(leaf.structure) for i, leaf in enumerate(ctx.study.tensor_inputs())
            if leaf.structure is not None and leaf.structure.has("constant")
        }
        names = list(dict.fromkeys(name for group in fixed.values() for name in group))
        draws = [Draw(seed=ctx.draw_seed(self.slug, i)) for i in range(3)]
        for i, name in enumerate(names[:2], start=1):
            takers = tuple(leaf for leaf, group in fixed.items() if name in group)
            draws[i] = draws[i].model_copy(update={"variant": name, "leaves": takers})
        return tuple(draws)

    def judge(self, ctx: Context, records: Sequence[Record]) -> Verdict:
        """A call that is wrong after an earlier one was right shows state."""
        if ctx.study.random:
            return Verdict(inapplicable=Reason.REFERENCE_RANDOM)
        if ctx.study.stateful:
            return Verdict(inapplicable=Reason.BY_CONTRACT, note="the reference keeps state between calls")
        verdict = Verdict()
        for record in own(self, records):
            if (reason := undecided_reason(record)) is not None:
                verdict.undecided[reason] += 1
                continue
            if not record.observation.calls or any(not c.result.ok for c in compare_call(record, 0)):
                # wrong from the first call on: nothing to do with history
                verdict.undecided[Reason.VALUE] += 1
                continue
            verdict.decided += 1
            for number in range(1, len(record.observation.calls)):
                bad = [c for c in compare_call(record, number) if not c.result.ok]
                for compared in bad:
                    found = finding(self, record, compared, Tier.VIOLATION)
                    verdict.findings.append(found.model_copy(update={"reason": _MEANING[number]}))
        verdict.findings = distinct(verdict.findings)
        return verdict
