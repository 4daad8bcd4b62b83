"""STM-01: runs on the current stream, and is finished when that stream is."""

from __future__ import annotations

from collections.abc import Sequence

from assay.gates.base import Context, Verdict, distinct, fault_finding, own, undecided_reason
from assay.gates.numbers import compare_call, finding
from assay.probe.model import Call, Draw, Probe
from assay.probe.record import FAULTS, Record
from assay.vocabulary import Reason, Tier


class Streams:
    """New values written behind a long sleep on a side stream, the call on it, and a copy of the result there."""

    id = "STM-01"
    slug = "streams"
    aliases = ("veit:stream-order",)
    obligation = "runs on the current stream; finished when that stream is; device errors surface as errors"
    opt_in = False

    def plan(self, ctx: Context) -> list[Probe]:
        """One probe of several calls: the first compiles, which would hide the race."""
        if ctx.device != "cuda" or ctx.study.random or not ctx.study.tensor_inputs():
            return []
        draws = tuple(Draw(seed=ctx.draw_seed(self.slug, i)) for i in range(3))
        calls = (Call(draw=0), Call(draw=1, storage="overwrite"), Call(draw=2, storage="overwrite"),
                 Call(draw=1, storage="overwrite"))
        return [Probe(id=f"{self.slug}/busy", gate=self.slug, kind="stream", sizes=ctx.sizes, draws=draws,
                      calls=calls, conditions=("stream:1",))]

    def judge(self, ctx: Context, records: Sequence[Record]) -> Verdict:
        """Right on the default stream and wrong behind a busy one is a race."""
        if ctx.device != "cuda":
            return Verdict(inapplicable=Reason.NEEDS_GPU)
        if ctx.study.random:
            return Verdict(inapplicable=Reason.REFERENCE_RANDOM)
        mine = own(self, records)
        if not mine:
            return Verdict(inapplicable=Reason.NO_SUCH_INPUT, note="no tensor input")
        verdict = Verdict()
        for record in mine:
            if (reason := undecided_reason(record)) is not None:
                verdict.undecided[reason] += 1
            elif record.observation.status in FAULTS:
                verdict.decided += 1
                verdict.findings.append(fault_finding(self, record, Tier.WRONG))
            elif any(not c.result.ok for c in compare_call(record, 0)):
                verdict.undecided[Reason.VALUE] += 1
            else:
                verdict.decided += 1
                for call in range(1, len(record.observation.calls)):
                    verdict.findings += [
                        finding(self, record, c).model_copy(update={"reason": Reason.STREAM_RACE})
                        for c in compare_call(record, call) if not c.result.ok
                    ]
        verdict.findings = distinct(verdict.findings)
        return verdict
