"""Running one finding again, from the store alone, and saying what differs from the day it was found."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from assay.environment import describe as describe_environment
from assay.evidence.bundle import input_digest
from assay.evidence.errors import StoreError
from assay.evidence.model import Bundle, FindingRecord, VerdictRecord
from assay.evidence.stage import Stage, restaged, shown_by
from assay.evidence.store import Store
from assay.gates.base import undecided_reason
from assay.probe.record import Record
from assay.report.model import Finding
from assay.run.process import Zygote
from assay.vocabulary import Reason

COMPARED = ("assay", "python", "torch", "triton", "numpy", "machine", "system", "device", "emulated_target", "gpu",
            "compute_capability", "cuda", "driver")
"""What of an environment is compared."""
_CANNOT = frozenset({Reason.NEEDS_GPU, Reason.OUT_OF_MEMORY, Reason.MACHINE, Reason.TOOLCHAIN, Reason.BUDGET,
                     Reason.INTERNAL, Reason.WEIGHTS})
"""Why a probe says nothing here, though it may elsewhere."""


_UNSTEADY = frozenset({Reason.UNINITIALISED, Reason.NOT_REPEATABLE, Reason.OUT_OF_BOUNDS_READ, Reason.STREAM_RACE,
                       Reason.DATA_RACE, Reason.DEPENDS_ON_ADDRESS, Reason.DEPENDS_ON_HISTORY})
"""Faults of a candidate whose other faults depend on what lay in memory, or on what ran before."""


class Outcome(StrEnum):
    """What became of a replay."""

    REPRODUCED = "reproduced"
    NOT_REPRODUCED = "not_reproduced"
    COULD_NOT_RUN = "could_not_run"


@dataclass(frozen=True)
class Replay:
    """One finding run again.

    Attributes:
        outcome: what became of it.
        recorded: the finding as it was kept.
        found: the finding as it shows now; None when it does not.
        same_inputs: whether every input had the bits of then; None where nothing was kept to compare with.
        differences: what of the environment differs: name, then, now.
        why: why it could not run here; empty otherwise.
        record: what came of the probe.
        instead: where it does not show, what the same gate finds on the same probe now.
        unsteady: where it does not show, the finding by which the candidate's results come and go.
    """

    outcome: Outcome
    recorded: Finding
    found: Finding | None
    same_inputs: bool | None
    differences: tuple[tuple[str, str, str], ...]
    why: str = ""
    record: Record | None = None
    instead: Finding | None = None
    unsteady: FindingRecord | None = None


def replay(store: Store, identity: str, zygote: Zygote, *, device: str = "auto", minimal: bool = False,
           sandbox: str | None = None) -> Replay:
    """Run a finding again.

    Args:
        store: where it is kept.
        identity: its id, or the start of it.
        zygote: a warm parent.
        device: `auto` takes the device that it was found on.
        minimal: replay the smallest input that was found for it.
        sandbox: how the candidate is confined.

    Raises StoreError when the store does not have it, or not enough of it.
    """
    found = store.finding(identity)
    verdict = store.verdict(found.verdict)
    bundle = bundle_to_run(found, minimal=minimal)
    recorded = _at_its_smallest(found.finding) if minimal else found.finding
    where, why = place(verdict, device)
    if why:
        return Replay(Outcome.COULD_NOT_RUN, recorded, None, None, (), why)
    target = str(verdict.context.get("target", "sm_90"))
    differences = environment_differences(verdict.report.environment, describe_environment(where, target))
    with restaged(verdict, zygote, device=where, sandbox=sandbox, store=str(store.directory)) as stage:
        result = run_again(stage, bundle, recorded, differences)
    if result.outcome is Outcome.NOT_REPRODUCED:
        restless = next((f for f in store.findings(verdict.id) if f.finding.reason in _UNSTEADY), None)
        return dataclasses.replace(result, unsteady=restless)
    return result


def _at_its_smallest(finding: Finding) -> Finding:
    """The finding with what was seen on its smallest input."""
    small = finding.minimal
    if small is None:
        return finding
    return finding.model_copy(update={name: getattr(small, name) for name in (
        "output", "index", "expected", "actual", "error", "tolerance")})


def run_again(stage: Stage, bundle: Bundle, recorded: Finding,
              differences: tuple[tuple[str, str, str], ...] = ()) -> Replay:
    """Run a bundle and judge it as it was judged."""
    records = stage.records(bundle.probes, bundle.seed)
    shown = shown_by(stage, bundle, records)
    same = _same_inputs(bundle, records)
    why = ""
    if shown is None:
        reason = next((r for r in map(undecided_reason, records) if r in _CANNOT), None)
        if reason is not None:
            from assay.report.words import REASONS

            text = next((r.observation.text or t.text for r in records for t in r.truths
                         if undecided_reason(r) is reason), "")
            why = REASONS.get(reason, reason.value) + (f": {text}" if text else "")
        elif same is False:
            why = "the inputs are not those of then: their recipe gives other bits here"
    outcome = Outcome.REPRODUCED if shown is not None else (
        Outcome.COULD_NOT_RUN if why else Outcome.NOT_REPRODUCED)
    instead = None
    if outcome is Outcome.NOT_REPRODUCED:
        instead = next((f for f in stage.findings(bundle.gate, records) if f.probe == bundle.probe.id), None)
    return Replay(outcome, recorded, shown, same, differences, why, records[bundle.main], instead)


def bundle_to_run(found: FindingRecord, *, minimal: bool) -> Bundle:
    """The bundle of a finding. Raises StoreError when it has none."""
    bundle = found.minimal if minimal else found.bundle
    if bundle is None:
        if minimal:
            raise StoreError("no smallest input was looked for", found.id, f"`assay shrink {found.id}` does")
        raise StoreError("only the report of this finding was kept, not what replays it", found.id,
                         "verify the candidate again with a store")
    return bundle


def place(verdict: VerdictRecord, device: str) -> tuple[str, str]:
    """Device to replay on, and why that cannot be done here (empty when it can)."""
    from assay.verify import resolve_device

    recorded = str(verdict.context.get("device", "cpu"))
    if device != "auto":
        return resolve_device(device), ""
    if recorded == "cuda" and resolve_device("auto") != "cuda":
        return recorded, (f"it was found on {verdict.report.scope}, and no CUDA device is visible here; "
                          "--device cpu tries it under emulation")
    return recorded, ""


def environment_differences(then: dict[str, Any], now: dict[str, Any]) -> tuple[tuple[str, str, str], ...]:
    """What differs between two environments: name, then, now."""
    return tuple((name, str(then.get(name, "none")), str(now.get(name, "none"))) for name in COMPARED
                 if then.get(name) != now.get(name))


def _same_inputs(bundle: Bundle, records: list[Record]) -> bool | None:
    known = [(bundle.inputs[r.probe.id], tuple(input_digest(t) for t in r.truths)) for r in records
             if r.probe.id in bundle.inputs and all(t.ok for t in r.truths)]
    return all(then == now for then, now in known) if known else None
