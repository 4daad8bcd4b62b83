"""Judging one record by its values alone: what the gates of values, sizes and layouts share."""

from __future__ import annotations

from collections.abc import Iterable

from assay.gates.attribution import accounted_for, numeric_findings
from assay.gates.base import Gate, Verdict, fault_finding, undecided_reason
from assay.gates.numbers import compare_record, decides, same_form
from assay.probe.record import FAULTS, Record
from assay.vocabulary import Reason, Tier


def judge_record(gate: Gate, record: Record, verdict: Verdict, tier: Tier, *, fault_tier: Tier | None = None,
                 refused: Reason = Reason.RAISED) -> None:
    """Add what one record shows to a verdict.

    Args:
        gate: whose verdict.
        record: one probe's truth and observation.
        verdict: changed in place.
        tier: of its findings.
        fault_tier: of findings that the candidate did not answer; None for the same.
        refused: what it is called when the candidate raises.
    """
    if (reason := undecided_reason(record)) is not None:
        verdict.undecided[reason] += 1
    elif record.observation.status in FAULTS:
        verdict.decided += 1
        found = fault_finding(gate, record, fault_tier or tier)
        if found.reason is Reason.RAISED:
            found = found.model_copy(update={"reason": refused})
        verdict.findings.append(found)
    elif any(truth.random for truth in record.truths):
        # each call draws anew: only distributions can be compared
        verdict.undecided[Reason.REFERENCE_RANDOM] += 1
    else:
        compared = compare_record(record)
        if not decides(compared):
            calls = enumerate(record.observation.calls)
            formed = all(same_form(record.truth_of(i), call) for i, call in calls)
            verdict.undecided[Reason.UNSTABLE_REFERENCE if formed else Reason.SHAPE] += 1
            return
        verdict.decided += 1
        verdict.findings += numeric_findings(gate, record, compared, tier)


def wrong_plainly(controls: Iterable[Record]) -> bool:
    """True when ordinary probes were answered, and every one of them wrongly.

    What a gate varies then explains nothing: the candidate is wrong without it. Right in a lower precision than
    declared is not wrong.
    """
    answered = [r for r in controls if r.observation.status in FAULTS or (r.comparable and compare_record(r))]
    return bool(answered) and all(r.observation.status in FAULTS or _wrong(r) for r in answered)


def _wrong(record: Record) -> bool:
    compared = compare_record(record)
    return any(not c.result.ok for c in compared) and not accounted_for(record, compared)
