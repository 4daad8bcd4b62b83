"""STA-01: the result is independent of call history, of object identity and of addresses."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from assay.gates.base import Context, Verdict, distinct, own, undecided_reason
from assay.gates.numbers import compare_call, finding
from assay.probe import values
from assay.probe.model import Call, Draw, Probe
from assay.probe.record import Record
from assay.report.model import Finding
from assay.vocabulary import EffortTier, Reason, Tier

_HISTORY = (
    (Call(draw=0), Reason.VALUE),
    (Call(draw=1), Reason.DEPENDS_ON_HISTORY),
    (Call(draw=0), Reason.DEPENDS_ON_HISTORY),
    (Call(draw=2, storage="overwrite"), Reason.STALE_RESULT),
    (Call(draw=2, storage="same"), Reason.STALE_RESULT),
    (Call(draw=1), Reason.DEPENDS_ON_ADDRESS),
    (Call(draw=0, storage="reused"), Reason.STALE_RESULT),
)
"""Calls on one instance, and what a wrong result there gives away."""
_COMPARISONS = frozenset({"equal", "eq", "ne", "all", "any", "allclose", "isclose", "is_nonzero"})
CALLS = {EffortTier.QUICK: 8, EffortTier.STANDARD: 32, EffortTier.DEEP: 128}
"""Calls of one instance, where they take no longer than `LONG_SECONDS`."""
LONG_SECONDS = 4.0


class Statelessness:
    """Calls in turn on old and new values, objects, addresses, weights and instances."""

    id = "STA-01"
    slug = "statelessness"
    aliases: tuple[str, ...] = ("lethe:state", "veit:referential-transparency")
    obligation = "result independent of call history, of object identity and of addresses"
    opt_in = False

    def plan(self, ctx: Context) -> list[Probe]:
        """Histories of calls: other values and places, other weights, another instance, and many calls."""
        if ctx.study.random or ctx.study.stateful:
            return []
        draws = self._draws(ctx)
        history = [call for call, _ in _HISTORY]
        probes = [self._probe(ctx, "history", draws, history)]
        trained = any(p.requires_grad for p in ctx.study.parameters)
        first = draws[0].model_copy(update={"parameters": 0})
        if trained:
            other = first.model_copy(update={"parameters": 1})
            probes.append(
                self._probe(
                    ctx, "weights", (first, other), [Call(draw=0), Call(draw=1, storage="same"), Call(draw=0)]
                )
            )
        second = draws[1].model_copy(update={"parameters": 1 if trained else None})
        probes.append(
            self._probe(
                ctx,
                "instances",
                (first, second),
                [Call(draw=0), Call(draw=1, instance=1), Call(draw=0), Call(draw=1, instance=1)],
            )
        )
        wanted = CALLS[ctx.tier]
        if ctx.call_seconds > 0:
            wanted = min(wanted, max(4, int(LONG_SECONDS / ctx.call_seconds)))
        probes.append(
            self._probe(ctx, "long", draws[:2], [Call(draw=i % 2) for i in range(wanted)], ("work:1", "hold:1"))
        )
        return probes

    def _probe(
        self,
        ctx: Context,
        kind: str,
        draws: tuple[Draw, ...],
        calls: Iterable[Call],
        conditions: tuple[str, ...] = (),
    ) -> Probe:
        if ctx.study.mutates:
            # the reference changes its inputs: the very same tensors hold other values the second time
            calls = [c.model_copy(update={"storage": "fresh"}) if c.storage == "same" else c for c in calls]
        return Probe(
            id=f"{self.slug}/{kind}",
            gate=self.slug,
            kind=kind,
            sizes=ctx.small,
            draws=draws,
            calls=tuple(calls),
            conditions=conditions,
        )

    def _draws(self, ctx: Context) -> tuple[Draw, ...]:
        """Three draws in which every input changes, also one that the generator always makes alike."""
        fixed = {
            i: values.variants(leaf.structure)
            for i, leaf in enumerate(ctx.study.tensor_inputs())
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
            if record.probe.kind in ("weights", "instances") and _wrong_with_other_weights(records):
                verdict.undecided[Reason.VALUE] += 1
                continue
            verdict.decided += 1
            for number in range(1, len(record.observation.calls)):
                bad = [c for c in compare_call(record, number) if not c.result.ok]
                for compared in bad:
                    found = finding(self, record, compared, Tier.VIOLATION)
                    verdict.findings.append(
                        found.model_copy(update={"reason": _meaning(record.probe, number)})
                    )
            verdict.findings += self._remembered(record)
        verdict.findings = distinct(verdict.findings)
        return verdict

    def _remembered(self, record: Record) -> list[Finding]:
        """A repeated input that took no work, although both inputs did when they were new."""
        per_call = record.observation.facts.get("per_call", [])
        if (
            record.probe.kind != "long"
            or len(per_call) < 3
            or not (_works(per_call[0]) and _works(per_call[1]))
        ):
            return []
        return [
            Finding(
                gate=self.id,
                slug=self.slug,
                reason=Reason.STALE_RESULT,
                tier=Tier.VIOLATION,
                tolerance_free=True,
                expected="every call computes its result",
                actual=f"call {number} ran no kernel and no operation, call {number % 2} did",
                detail={"call": number},
                probe=record.probe.id,
                attested_by="worker",
            )
            for number, seen in enumerate(per_call[2:], start=2)
            if not _works(seen)
        ][:1]


def _meaning(probe: Probe, number: int) -> Reason:
    if probe.kind == "history":
        return _HISTORY[number][1]
    return Reason.STALE_RESULT if probe.kind == "weights" else Reason.DEPENDS_ON_HISTORY


def _wrong_with_other_weights(records: Sequence[Record]) -> bool:
    """Whether a fresh instance that is given those weights at once is wrong as well."""
    return any(
        not c.result.ok
        for r in records
        if r.probe.gate == "values" and r.probe.parameters == 1 and r.comparable
        for c in compare_call(r, 0)
    )


def _works(seen: dict[str, Any]) -> bool:
    """Whether a call did more than compare what it was given with something."""
    library = seen.get("library") or {}
    return bool(seen.get("launches") or seen.get("own") or set(library) - _COMPARISONS)
