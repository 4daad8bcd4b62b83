"""CFG-01: every autotune configuration right by itself, first call as later calls."""

from __future__ import annotations

from collections.abc import Sequence

from assay.gates.attribution import accounted_for, numeric_findings
from assay.gates.base import Context, Verdict, distinct, fault_finding, own, undecided_reason
from assay.gates.numbers import compare_record, decides
from assay.probe import sizes
from assay.probe.model import Call, Draw, Probe
from assay.probe.record import FAULTS, Record
from assay.report.model import Finding
from assay.vocabulary import EffortTier, Reason, Tier

CONFIGS = {EffortTier.QUICK: 4, EffortTier.STANDARD: 12, EffortTier.DEEP: 64}


class Schedules:
    """Each configuration in turn, and a first call during which all of them are tried."""

    id = "CFG-01"
    slug = "schedules"
    aliases: tuple[str, ...] = ("veit:schedule-independence", "autotune")
    obligation = "every autotune configuration right by itself, first call as later calls"
    opt_in = False

    def plan(self, ctx: Context) -> list[Probe]:
        """Per place: no configuration forced (the control), each forced, and tuning at the first call."""
        count = min(max(ctx.configs.values(), default=0), CONFIGS[ctx.tier])
        if count == 0:
            return []
        probes = []
        tails = sizes.plan_sizes(ctx.study, ctx.blocks, ctx.element_limit // 4, ctx.tier.value)
        places = [("", dict(ctx.small)), *((v.name, dict(v.sizes)) for v in tails[: 0 if ctx.quick else 1])]
        for name, at in places:
            draws = tuple(Draw(seed=ctx.draw_seed(self.slug, name, i)) for i in range(2))
            stem = f"{name}/" if name else ""
            probes.append(self._probe(f"{stem}default", name, at, draws[:1], (Call(),), ()))
            probes.append(
                self._probe(
                    f"{stem}tuning",
                    name,
                    at,
                    draws,
                    (Call(), Call(storage="same"), Call(draw=1)),
                    ("tune:1",),
                )
            )
            if count > 1:
                probes += [
                    self._probe(f"{stem}config-{i}", name, at, draws[:1], (Call(),), (f"config:{i}",))
                    for i in range(count)
                ]
        return probes

    def _probe(
        self,
        name: str,
        kind: str,
        at: dict[str, int],
        draws: tuple[Draw, ...],
        calls: tuple[Call, ...],
        conditions: tuple[str, ...],
    ) -> Probe:
        return Probe(
            id=f"{self.slug}/{name}",
            gate=self.slug,
            kind=kind or "native",
            sizes=at,
            draws=draws,
            calls=calls,
            conditions=conditions,
        )

    def judge(self, ctx: Context, records: Sequence[Record]) -> Verdict:
        """Within tolerance under every configuration and when tuning, where the control is right."""
        mine = own(self, records)
        if not ctx.configs or not mine:
            return Verdict(inapplicable=Reason.NOTHING_TO_VARY, note="no kernel is autotuned")
        verdict = Verdict()
        right = {r.probe.kind for r in mine if not r.probe.conditions and _right(r)}
        for record in mine:
            if (reason := undecided_reason(record)) is not None:
                verdict.undecided[reason] += 1
            elif record.probe.kind not in right:
                # wrong whatever the schedule: another gate says so
                verdict.undecided[Reason.VALUE] += 1
            elif record.probe.conditions:
                verdict.decided += 1
                verdict.findings += self._findings(record)
        tried = sum(1 for r in mine if r.probe.conditions and r.probe.conditions[0].startswith("config:"))
        names = ", ".join(f"{name}: {count}" for name, count in ctx.configs.items())
        verdict.note = f"configurations {names}; {tried} probes force one"
        verdict.findings = distinct(verdict.findings)
        return verdict

    def _findings(self, record: Record) -> list[Finding]:
        condition = record.probe.conditions[0]
        detail = {
            "schedule": "all configurations at the first call"
            if condition == "tune:1"
            else f"configuration {condition.split(':')[1]}"
        }
        if record.observation.status in FAULTS:
            found = [fault_finding(self, record, Tier.WRONG)]
        elif condition == "tune:1":
            found = self._tuned(record)
        else:
            found = numeric_findings(self, record, compare_record(record))
        return [f.model_copy(update={"detail": {**f.detail, **detail}}) for f in found]

    def _tuned(self, record: Record) -> list[Finding]:
        found = numeric_findings(self, record, compare_record(record))
        # what less precision accounts for has no need of a history
        return [f.model_copy(update={"reason": Reason.DEPENDS_ON_HISTORY}) if f.tier is Tier.WRONG else f
                for f in found]


def _right(record: Record) -> bool:
    if not record.comparable:
        return False
    compared = compare_record(record)
    return decides(compared) and accounted_for(record, compared)
