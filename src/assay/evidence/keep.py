"""Keeping one verification: what replays its findings, their tensors, and the names under which they are found."""

from __future__ import annotations

import time
import warnings
from collections.abc import Mapping, Sequence

from assay.contract.domain import Declared
from assay.evidence import context as contexts
from assay.evidence.bundle import bundle_of
from assay.evidence.capture import capture
from assay.evidence.errors import StoreError, StoreWarning
from assay.evidence.first import Trial
from assay.evidence.ids import with_ids
from assay.evidence.model import Bundle, Captured, Evidence
from assay.evidence.store import Store
from assay.gates import Context
from assay.probe.record import Record
from assay.report.model import Report
from assay.task import Candidate, Task
from assay.vocabulary import Reason

CAPTURED_FINDINGS = 40
"""Most findings of one verdict whose tensors are kept, the first of each gate and reason."""
CAPTURE_SECONDS = 20.0


def evidence_of(report: Report, ctx: Context, declared: Mapping[int, Declared], records: Sequence[Record],
                trials: Sequence[Trial] = ()) -> Evidence:
    """What replays the findings of a report that has ids, and their tensors.

    Args:
        report: the report.
        ctx: what its gates judged with.
        declared: inputs whose domain the contract changes, by position.
        records: of its plan.
        trials: earlier failures that were tried first.
    """
    by_id = {r.probe.id: r for r in [*records, *(r for trial in trials for r in trial.records)]}
    origin = {p.id: trial for trial in trials for p in trial.bundle.probes}
    deadline = time.monotonic() + CAPTURE_SECONDS
    bundles: dict[str, Bundle] = {}
    captured: dict[str, Captured] = {}
    seen: set[tuple[str, Reason]] = set()
    for finding in report.findings:
        trial = origin.get(finding.probe)
        among, seed = (records, ctx.seed) if trial is None else (trial.records, trial.bundle.seed)
        bundle = bundle_of(ctx, among, finding, seed)
        if bundle is not None:
            bundles[finding.id] = bundle
        kind = (finding.slug, finding.reason)
        if finding.probe not in by_id:
            continue
        if kind in seen:
            captured[finding.id] = Captured({}, "an earlier finding of this gate and reason has its tensors")
        elif len(seen) >= CAPTURED_FINDINGS or time.monotonic() > deadline:
            captured[finding.id] = Captured({}, "too many findings: the recipe alone is kept")
        else:
            seen.add(kind)
            captured[finding.id] = capture(by_id[finding.probe])
    return Evidence(contexts.to_json(ctx, declared), bundles, captured)


def keep(directory: str, report: Report, task: Task, candidate: Candidate, ctx: Context,
         declared: Mapping[int, Declared], records: Sequence[Record], trials: Sequence[Trial] = ()) -> Report:
    """Keep a verdict in a store; the report with the ids of its findings.

    A store that refuses it costs a StoreWarning: the report comes back as it is.
    """
    named = with_ids(report)
    try:
        with Store.open(directory, create=True) as store:
            evidence = evidence_of(named, ctx, declared, records, trials)
            store.put_report(named, task, candidate, ctx.contract, evidence)
    except StoreError as error:
        warnings.warn(f"this verdict was not kept: {error}", StoreWarning, stacklevel=2)
        return report
    return named
