"""From records to gate results, a label and a report. Pure: runs nothing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from assay.gates import Context, Gate, Verdict, races, sanitized
from assay.gates.base import NEED_ONE_RESULT, SILENT
from assay.gates.numbers import closest
from assay.illustration import fingerprints, illustrated
from assay.probe.record import Record
from assay.report.model import (
    CandidateInfo,
    Coverage,
    Finding,
    GateResult,
    Report,
    TaskInfo,
    Timing,
)
from assay.vocabulary import Label, Outcome, Reason, Tier

APART = frozenset({"compile", sanitized.KIND, races.KIND})
"""Kinds of probes that only the gate that planned them can make something of: they bring no outputs, or those of a run
in another order than anyone else's."""


def visible(gate: Gate, records: Sequence[Record]) -> list[Record]:
    """What a gate may judge: every record but those of compilations and of instrumented runs that others planned."""
    return [r for r in records if r.probe.kind not in APART or r.probe.gate == gate.slug]


def gate_result(gate: Gate, ctx: Context, records: Sequence[Record], blocking: bool,
                trials: Sequence[Sequence[Record]] = ()) -> tuple[GateResult, Verdict]:
    """Judge one gate. A fault of the gate itself is its outcome `error`, never a pass.

    Args:
        gate: the gate.
        ctx: what it judges with.
        records: of the plan.
        blocking: whether it decides the label.
        trials: records of what failed before on this gate, each set by itself; only their findings count.
    """
    planned = sum(1 for r in records if r.probe.gate == gate.slug)
    if ctx.study.random and gate.slug in NEED_ONE_RESULT:
        return GateResult(id=gate.id, slug=gate.slug, outcome=Outcome.NOT_APPLICABLE,
                          reason=Reason.REFERENCE_RANDOM, blocking=blocking, probes_planned=planned,
                          note="the reference is random: only its distribution is an obligation"), Verdict()
    try:
        verdict = gate.judge(ctx, visible(gate, records))
        for trial in trials:
            names = {r.probe.id for r in trial}
            again = gate.judge(ctx, visible(gate, among(records, trial)))
            known = {(f.reason, f.output) for f in verdict.findings}
            verdict.findings += [f for f in again.findings if f.probe in names and (f.reason, f.output) not in known]
    except Exception as error:
        note = f"{type(error).__name__}: {error}"[:300]
        return GateResult(id=gate.id, slug=gate.slug, outcome=Outcome.ERROR, reason=Reason.INTERNAL,
                          blocking=blocking, probes_planned=planned, note=note), Verdict()
    undecided = Counter({k: v for k, v in verdict.undecided.items() if k not in SILENT})
    outcome, reason = _outcome(verdict, undecided)
    if outcome is Outcome.PASS and (claim := _claim(gate, records)) is not None:
        # a probe that the candidate's own word took out of the count may be the one it would have failed
        outcome, reason = Outcome.INCONCLUSIVE, claim
    return GateResult(
        id=gate.id, slug=gate.slug, outcome=outcome, reason=reason, blocking=blocking,
        probes_planned=max(planned, verdict.decided + sum(verdict.undecided.values())),
        probes_run=verdict.decided, probes_undecided=sum(undecided.values()),
        undecided={k.value: v for k, v in sorted(verdict.undecided.items())}, note=verdict.note,
        findings=len(verdict.findings),
    ), verdict


def among(records: Sequence[Record], trial: Sequence[Record]) -> list[Record]:
    """The records of a plan with those of a trial in place of their own kind, so that its controls stay."""
    kinds = {(r.probe.gate, r.probe.kind) for r in trial}
    return [*(r for r in records if (r.probe.gate, r.probe.kind) not in kinds), *trial]


CLAIMS = {"needs_gpu": Reason.NEEDS_GPU, "toolchain": Reason.TOOLCHAIN, "weights": Reason.WEIGHTS,
          "machine": Reason.MACHINE, "unavailable": Reason.INTERNAL}
"""Observations that decide nothing because the candidate's own process says so, or ended and nobody saw why."""


def _claim(gate: Gate, records: Sequence[Record]) -> Reason | None:
    """Why the candidate would not run a probe that this gate planned; None when it ran all of them."""
    said = (r.observation.status for r in records if r.probe.gate == gate.slug and r.probe.kind not in APART)
    return next((CLAIMS[status] for status in said if status in CLAIMS), None)


def _outcome(verdict: Verdict, undecided: Counter[Reason]) -> tuple[Outcome, Reason | None]:
    if verdict.findings:
        return Outcome.FAIL, verdict.findings[0].reason
    if verdict.inapplicable is not None:
        return Outcome.NOT_APPLICABLE, verdict.inapplicable
    most = undecided.most_common(1)
    if verdict.decided == 0:
        if most:
            return Outcome.INCONCLUSIVE, most[0][0]
        silent = verdict.undecided.most_common(1)
        return Outcome.NOT_APPLICABLE, silent[0][0] if silent else Reason.NOTHING_TO_VARY
    if sum(undecided.values()) > verdict.decided:
        return Outcome.INCONCLUSIVE, most[0][0]
    return Outcome.PASS, None


def rejects(finding: Finding, ctx: Context, blocking: bool) -> bool:
    """True when a finding alone takes the label away."""
    allowed = finding.tier is Tier.DIVERGENCE and "divergence" in ctx.contract.policy.allow_tiers
    return blocking and not allowed


def is_blocking(gate: Gate, ctx: Context) -> bool:
    """Whether the contract lets this gate decide the label."""
    policy = ctx.contract.policy
    if gate.slug in policy.advisory:
        return False
    return policy.blocking is None or gate.slug in policy.blocking


def make_report(
    gates: Sequence[Gate], ctx: Context, records: Sequence[Record], *, task: TaskInfo, candidate: CandidateInfo,
    scope: str, environment: dict[str, Any], timing: Timing, seed_commitment: str = "", seed_nonce: str = "",
    source: str = "", trials: Sequence[tuple[str, Sequence[Record]]] = (),
) -> Report:
    """Judge every gate and put the verdict together.

    `source` is the candidate's, for lines that findings name. `trials` are records of what other candidates of
    the task failed on before, each set with the slug of the gate that they failed; they can add findings and
    nothing else.
    """
    results, findings = [], []
    rejected = False
    ratios: list[float] = []
    for gate in gates:
        blocking = is_blocking(gate, ctx)
        again = [trial for slug, trial in trials if slug == gate.slug]
        with closest() as seen:
            result, verdict = gate_result(gate, ctx, records, blocking, again)
        ratios += seen
        results.append(result)
        findings += verdict.findings
        rejected = rejected or any(rejects(f, ctx, blocking) for f in verdict.findings)
    open_gates = [r for r in results if r.blocking and r.outcome in (Outcome.INCONCLUSIVE, Outcome.ERROR)]
    passed = [r for r in results if r.outcome is Outcome.PASS]
    if rejected:
        label = Label.REJECTED
    elif open_gates or not passed or (ctx.contract.policy.scope == "gpu" and ctx.device == "cpu"):
        label = Label.SCREENED
    else:
        label = Label.CONTRACT
    by_id = {r.probe.id: r for r in [*records, *(r for _, trial in trials for r in trial)]}
    needed = {f.probe for f in findings}
    unmodelled = sorted({name for r in records for t in r.truths for name in t.unmodelled})
    return Report(
        label=label, scope=scope, tier=ctx.tier.value, task=task, candidate=candidate, gates=tuple(results),
        findings=illustrated(findings, by_id, source),
        precision=fingerprints(records), probes={k: by_id[k].probe for k in sorted(by_id) if k in needed},
        coverage=Coverage(
            probes_planned=len(records),
            probes_run=sum(1 for r in records if r.observation.status != "not_run"),
            probes_undecided=sum(1 for r in records if not r.comparable and r.observation.status != "raised"),
            gates_passed=len(passed), gates_undecided=len(open_gates),
            probes_replayed=sum(len(trial) for _, trial in trials),
            gates_need_gpu=tuple(r.slug for r in results if r.outcome is Outcome.NOT_APPLICABLE
                                 and r.reason is Reason.NEEDS_GPU),
            unmodelled=tuple(unmodelled),
            closest=float(f"{max(ratios):.4g}") if ratios else None,
            attested_by_worker=tuple(sorted({f"{f.slug}:{f.reason.value}" for f in findings
                                             if f.attested_by == "worker"})),
        ),
        contract=ctx.contract.model_dump(mode="json"), environment=environment, seed=ctx.seed, timing=timing,
        seed_commitment=seed_commitment, seed_nonce=seed_nonce,
    )
