"""Which probes show a finding together. Pure: judges records again, runs nothing.

A gate may need more than one record to see a fault: the other half of a pair, or a control that says the fault is
not there anyway. Judging is pure, so the records that matter are found by judging fewer of them.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Sequence

from assay.evidence.model import Bundle
from assay.gates import GATES, Context
from assay.judging import visible
from assay.probe.record import Record, Truth
from assay.report.model import Finding
from assay.run import codec

REDUCE_SECONDS = 2.0
"""Time for finding the records that one finding needs, where it needs others than controls."""

Shows = Callable[[Sequence[Record]], bool]


def bundle_of(ctx: Context, records: Sequence[Record], finding: Finding, seed: int) -> Bundle | None:
    """The probes that show a finding; None where the records do not (its probe is not among them).

    Args:
        ctx: what gates judge with.
        records: every record of the verification.
        finding: one of its findings.
        seed: seed of the plan.
    """
    needed = needed_records(ctx, records, finding)
    if not needed:
        return None
    return Bundle(
        gate=finding.slug, reason=finding.reason.value, output=finding.output,
        probes=tuple(r.probe for r in needed), seed=seed,
        main=next(i for i, r in enumerate(needed) if r.probe.id == finding.probe),
        inputs={r.probe.id: tuple(input_digest(t) for t in r.truths) for r in needed if all(t.ok for t in r.truths)})


def needed_records(ctx: Context, records: Sequence[Record], finding: Finding) -> list[Record]:
    """The records with which alone the gate still makes the finding, in the order of the plan."""
    main = next((r for r in records if r.probe.id == finding.probe), None)
    gate = GATES.get(finding.slug)
    if main is None or gate is None:
        return []

    def shows(some: Sequence[Record]) -> bool:
        kept = {r.probe.id for r in some}
        # gates read records in the order of the plan
        judged = gate.judge(ctx, visible(gate, [r for r in records if r.probe.id in kept]))
        return any(same_fault(f, finding) and f.probe == finding.probe for f in judged.findings)

    family = [r for r in records if r.probe.gate == main.probe.gate and r is not main]
    own = main.probe.gate == finding.slug
    controls = [r for r in family if own and "control" in r.probe.kind]
    group = [r for r in family if r.probe.kind == main.probe.kind and r not in controls]
    judged_by = [r for r in records if r.probe.gate == finding.slug and r is not main]
    wider = [controls, [*controls, *group], family, [*family, *judged_by], [r for r in records if r is not main]]
    for others in wider:
        others = list({r.probe.id: r for r in others}.values())
        if shows([main, *others]):
            fixed = [r for r in others if r in controls]
            loose = [r for r in others if r not in controls]
            kept = {r.probe.id for r in [main, *fixed, *_fewest([main, *fixed], loose, shows)]}
            return [r for r in records if r.probe.id in kept]
    return [main]


def same_fault(found: Finding, wanted: Finding) -> bool:
    """Whether two findings are of one kind: gate, reason and output."""
    return (found.slug, found.reason, found.output) == (wanted.slug, wanted.reason, wanted.output)


def _fewest(fixed: Sequence[Record], loose: list[Record], shows: Shows) -> list[Record]:
    """A part of `loose` of which nothing can be left out, as far as the time goes."""
    deadline = time.monotonic() + REDUCE_SECONDS
    size = max(1, len(loose) // 2)
    while loose:
        start = 0
        while start < len(loose) and time.monotonic() < deadline:
            fewer = [*loose[:start], *loose[start + size:]]
            if shows([*fixed, *fewer]):
                loose = fewer
            else:
                start += size
        if size == 1 or time.monotonic() >= deadline:
            break
        size //= 2
    return loose


def input_digest(truth: Truth) -> str:
    """SHA-256 of the tensor inputs of one draw: their dtypes, shapes and bytes."""
    digest = hashlib.sha256()
    for tensor in truth.inputs:
        digest.update(f"{codec.dtype_name(tensor.dtype)}{list(tensor.shape)}".encode())
        digest.update(codec.tensor_bytes(tensor))
    return digest.hexdigest()
