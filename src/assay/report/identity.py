"""What makes findings of two reports the same fault."""

from __future__ import annotations

import hashlib
import json
from collections import Counter

from assay.report.model import Finding, Report

Fault = tuple[str, str, str, str, int]
"""Gate, reason, output, kernel, and a number among faults that agree in all of these."""


def faults(report: Report) -> dict[Fault, Finding]:
    """The findings by what stays when seeds, lines and measured numbers change, in their order."""
    seen: Counter[tuple[str, str, str, str]] = Counter()
    named: dict[Fault, Finding] = {}
    for finding in report.findings:
        key = (finding.slug, finding.reason.value, finding.output or "", str(finding.detail.get("kernel") or ""))
        named[*key, seen[key]] = finding
        seen[key] += 1
    return named


def fingerprint(subject: str, fault: Fault) -> str:
    """A name for a fault that is the same in every report on a subject, such as a task: 32 hexadecimal digits."""
    text = json.dumps([subject, *fault])
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:32]


def fingerprints(report: Report, subject: str | None = None) -> list[str]:
    """The name of each finding of a report, in their order; the subject is the task where none is given."""
    return [fingerprint(report.task.id if subject is None else subject, fault) for fault in faults(report)]
