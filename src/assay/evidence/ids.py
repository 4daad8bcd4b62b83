"""Content hashes: the names of findings and verdicts, the same on every machine."""

from __future__ import annotations

import hashlib
import json
from typing import Any

from assay.report.model import Finding, Report

FINDING_DIGITS = 12
VERDICT_DIGITS = 16


def data_digest(data: Any) -> str:
    """SHA-256, as hexadecimal, of JSON data whatever the order of its keys."""
    text = json.dumps(data, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def finding_id(report: Report, finding: Finding) -> str:
    """Name of a finding: the task, the candidate, the contract, the fault, and the experiment that shows it.

    Measured numbers are left out, and so are machine and device: the same fault found on two of them has one
    name.
    """
    probe = report.probes.get(finding.probe)
    experiment = probe.digest() if probe is not None else finding.probe
    return data_digest([report.task.sha256, report.candidate.sha256, report.contract, finding.slug,
                        finding.reason.value, finding.output, experiment])[:FINDING_DIGITS]


def verdict_id(report: Report) -> str:
    """Name of a verdict: everything in its report but the seconds spent and what files were called."""
    return data_digest(report.model_dump(mode="json", exclude={"timing", "names"}))[:VERDICT_DIGITS]


def with_ids(report: Report) -> Report:
    """The report with the name of each finding."""
    named = tuple(f.model_copy(update={"id": finding_id(report, f)}) for f in report.findings)
    return report.model_copy(update={"findings": named})
