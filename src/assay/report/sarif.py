"""SARIF 2.1.0: rules are gates, results are findings, for code scanning and editors.

Several reports make one run, because services that read SARIF take one run per tool and category. A result
points to the line that its finding names, else to the definition of the entry point.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Sequence
from pathlib import PurePosixPath
from typing import Any
from urllib.parse import quote

from assay import __version__
from assay.pages import gate_page
from assay.report.exhibit import SourceExcerpt
from assay.report.identity import fingerprints
from assay.report.model import Finding, GateResult, Report, canonical_json
from assay.report.phrases import command, facts, gate_note, names_of, replay_command, scope_text, verdict_text
from assay.report.words import REASONS, printable
from assay.vocabulary import UNDECIDED, Label, Outcome, Tier

SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
LEVELS = {Tier.WRONG: "error", Tier.VIOLATION: "error", Tier.DIVERGENCE: "warning"}
EXIT_CODES = {Label.CONTRACT: 0, Label.REJECTED: 1, Label.SCREENED: 3}
_OBLIGATION = re.compile(r"\*\*Obligation\.\*\*\s+(.*?)\n\n", re.DOTALL)


def render(report: Report) -> str:
    """One report as a SARIF log."""
    return to_sarif([report])


def to_sarif(reports: Sequence[Report]) -> str:
    """A SARIF log with one run. Raises ValueError without a report."""
    if not reports:
        raise ValueError("a SARIF log needs at least one report")
    gates = {gate.id: gate for report in reports for gate in report.gates}
    index = {name: number for number, name in enumerate(gates)}
    run = {
        "tool": {"driver": {
            "name": "Assay", "version": __version__, "semanticVersion": __version__,
            "shortDescription": {"text": "Decides whether a generated GPU kernel is the same program as its "
                                         "reference."},
            "rules": [_rule(gate) for gate in gates.values()],
        }},
        "automationDetails": {"id": _category(reports)},
        "columnKind": "utf16CodeUnits",
        "invocations": [_invocation(report, index) for report in reports],
        "artifacts": _artifacts(reports),
        "results": [result for number, report in enumerate(reports) for result in _results(report, index, number)],
    }
    return canonical_json({"$schema": SCHEMA, "version": "2.1.0", "runs": [run]})


def _category(reports: Sequence[Report]) -> str:
    """What tells runs apart: the task and the candidate of one report, or that there are several."""
    if len(reports) > 1:
        return "assay/several/"
    report = reports[0]
    return f"assay/{quote(report.task.id)}/{quote(PurePosixPath(names_of(report).candidate).name)}/"


def _rule(gate: GateResult) -> dict[str, Any]:
    page = gate_page(gate.slug) or f"# {gate.slug} ({gate.id})\n"
    said = _OBLIGATION.search(page)
    obligation = " ".join(said.group(1).split()) if said else gate.slug
    return {
        "id": gate.id, "name": gate.slug, "shortDescription": {"text": obligation},
        "fullDescription": {"text": obligation}, "help": {"text": page, "markdown": page},
        "defaultConfiguration": {"level": "error"},
        "properties": {"tags": ["correctness", "gpu-kernel", gate.slug], "problem.severity": "error"},
    }


def _invocation(report: Report, index: dict[str, int]) -> dict[str, Any]:
    found: dict[str, Any] = {
        "executionSuccessful": all(gate.outcome is not Outcome.ERROR for gate in report.gates),
        "exitCode": EXIT_CODES[report.label], "exitCodeDescription": verdict_text(report),
        "commandLine": printable(command(report, names_of(report))),
        "properties": {
            "label": report.label.value, "scope": scope_text(report), "seed": str(report.seed),
            "seedCommitment": report.seed_commitment, "probesRun": report.coverage.probes_run,
            "probesPlanned": report.coverage.probes_planned,
            "coverage": {gate.slug: [gate.probes_run, gate.probes_planned] for gate in report.gates},
            "environment": {k: v for k, v in report.environment.items() if isinstance(v, str)},
        },
    }
    open_gates = [gate for gate in report.gates if gate.outcome in UNDECIDED]
    if open_gates:
        found["toolExecutionNotifications"] = [{
            "level": "error" if gate.outcome is Outcome.ERROR else "warning",
            "message": {"text": printable(f"{gate.slug}: {gate.outcome.value}: {gate_note(report, gate)}")},
            "associatedRule": {"id": gate.id, "index": index[gate.id]},
        } for gate in open_gates]
    return found


def _artifacts(reports: Sequence[Report]) -> list[dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {}
    for report in reports:
        names = names_of(report)
        for name, digest, role in ((names.candidate, report.candidate.sha256, "analysisTarget"),
                                   (names.reference, report.task.sha256, "referencedOnCommandLine")):
            # the digest covers the text as read: universal newlines, no byte order mark
            found.setdefault(name, {"location": location(name), "roles": [role],
                                    "properties": {"sourceSha256": digest}})
    return list(found.values())


def _results(report: Report, index: dict[str, int], invocation: int) -> list[dict[str, Any]]:
    blocking = {gate.slug: gate.blocking for gate in report.gates}
    known = {gate.slug: gate.id for gate in report.gates}
    found = []
    # candidates of one task may have the same fault, and share a log
    subject = f"{report.task.id}: {names_of(report).candidate}"
    for finding, name in zip(report.findings, fingerprints(report, subject), strict=True):
        rule = known.get(finding.slug, finding.gate)
        result: dict[str, Any] = {
            "ruleId": rule, "kind": "fail",
            "level": LEVELS[finding.tier] if blocking.get(finding.slug, True) else "note",
            "message": {"text": printable(_message(report, finding))},
            "locations": [_location(report, finding)],
            "partialFingerprints": {"assayFault/v1": name},
            "provenance": {"invocationIndex": invocation},
            "properties": {
                "reason": finding.reason.value, "tier": finding.tier.value,
                "toleranceFree": finding.tolerance_free, "probe": finding.probe,
                "attestedBy": finding.attested_by,
                "replay": printable(replay_command(report, finding, names_of(report))),
                **{label: printable(text) for label, text in facts(report, finding) if label in ("where", "why")},
            },
        }
        if rule in index:
            result["ruleIndex"] = index[rule]
        found.append(result)
    return found


def _message(report: Report, finding: Finding) -> str:
    known = dict(facts(report, finding))
    place = f" at {known['where']}" if known.get("where") else ""
    return (f"{finding.slug}: {REASONS[finding.reason]}. Expected {known['expected']}, got {known['got']}{place}. "
            f"Probe {known['probe']}. This is {known['why']}.")


def _location(report: Report, finding: Finding) -> dict[str, Any]:
    physical: dict[str, Any] = {"artifactLocation": location(names_of(report).candidate)}
    source = finding.source
    if source is not None:
        physical["region"] = {"startLine": source.line, "snippet": {"text": _line(source)}}
        physical["contextRegion"] = {
            "startLine": source.first, "endLine": source.first + len(source.lines) - 1,
            "snippet": {"text": "\n".join(map(printable, source.lines))}}
    else:
        physical["region"] = {"startLine": report.candidate.line or 1}
    kernel = finding.detail.get("kernel")
    found: dict[str, Any] = {"physicalLocation": physical}
    if isinstance(kernel, str) and kernel:
        found["logicalLocations"] = [{"name": printable(kernel), "kind": "function"}]
    return found


def _line(source: SourceExcerpt) -> str:
    return printable(source.lines[source.line - source.first])


def location(path: str) -> dict[str, Any]:
    """A path as SARIF wants it: relative ones from the root of the sources, absolute ones as file URIs."""
    plain = posixpath.normpath(path.replace("\\", "/"))
    if plain.startswith("/"):
        return {"uri": "file://" + quote(plain)}
    if plain.startswith("../"):
        return {"uri": quote(plain)}
    return {"uri": quote(plain), "uriBaseId": "%SRCROOT%"}
