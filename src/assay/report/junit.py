"""JUnit XML: one test case per gate, for CI systems that show test results.

A gate that fails without taking the label away (advisory, or waived by the policy) is `skipped` with its
findings, so that the colour of the run is that of the verdict.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from xml.etree import ElementTree

from assay.report.model import GateResult, Report
from assay.report.phrases import (
    cautions,
    coverage_text,
    effort_text,
    facts,
    gate_note,
    headline,
    names_of,
    replay_command,
    scope_text,
    verdict_text,
)
from assay.vocabulary import Label, Outcome

_NOT_XML = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
MESSAGE_CHARS = 300


def render(report: Report) -> str:
    """One report as JUnit XML."""
    return to_junit([report])


def to_junit(reports: Sequence[Report]) -> str:
    """JUnit XML with one suite per report, in the shape of Jenkins' junit-10 schema."""
    suites = [_suite(report, number) for number, report in enumerate(reports)]
    root = ElementTree.Element("testsuites", {
        "name": "assay", **{name: str(sum(int(suite.get(name, 0)) for suite in suites))
                            for name in ("tests", "failures", "errors")},
        "time": f"{sum(report.timing.total_s for report in reports):.3f}",
    })
    root.extend(suites)
    ElementTree.indent(root)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ElementTree.tostring(root, encoding="unicode") + "\n"


def _suite(report: Report, number: int) -> ElementTree.Element:
    cases = [_case(report, gate) for gate in report.gates]
    count = {tag: sum(case.find(tag) is not None for case in cases) for tag in ("failure", "error", "skipped")}
    suite = ElementTree.Element("testsuite", {
        "name": _xml(f"assay {report.task.id}: {names_of(report).candidate}"), "id": str(number),
        "tests": str(len(cases)), "failures": str(count["failure"]), "errors": str(count["error"]),
        "skipped": str(count["skipped"]), "time": f"{report.timing.total_s:.3f}",
    })
    properties = ElementTree.SubElement(suite, "properties")
    for name, value in _properties(report):
        ElementTree.SubElement(properties, "property", {"name": _xml(name), "value": _xml(value)})
    suite.extend(cases)
    out = [verdict_text(report), effort_text(report), *(f"{label}: {text}" for label, text in cautions(report))]
    ElementTree.SubElement(suite, "system-out").text = _xml("\n".join(out))
    return suite


def _properties(report: Report) -> list[tuple[str, str]]:
    names = names_of(report)
    fixed = [
        ("label", report.label.value), ("scope", report.scope), ("conditions", scope_text(report)),
        ("tier", report.tier), ("seed", str(report.seed)), ("seed_commitment", report.seed_commitment),
        ("reference", names.reference), ("candidate", names.candidate),
        ("reference_sha256", report.task.sha256), ("candidate_sha256", report.candidate.sha256),
        ("probes", f"{report.coverage.probes_run}/{report.coverage.probes_planned}"),
    ]
    versions = [(f"environment.{k}", v) for k, v in sorted(report.environment.items()) if isinstance(v, str)]
    coverage = [(f"coverage.{gate.slug}", coverage_text(gate)) for gate in report.gates]
    return [(name, value) for name, value in [*fixed, *versions, *coverage] if value]


def _case(report: Report, gate: GateResult) -> ElementTree.Element:
    case = ElementTree.Element("testcase", {
        "classname": _xml(f"assay.{report.task.id}"), "name": f"{gate.slug} ({gate.id})",
        "assertions": str(gate.probes_run),
    })
    note = gate_note(report, gate)
    if gate.outcome is Outcome.FAIL:
        tag = "failure" if gate.blocking and report.label is Label.REJECTED else "skipped"
        text = "\n\n".join(_finding(report, gate))
        message = note if tag == "failure" else f"does not block: {note}"
        kind = next((f.reason.value for f in report.findings if f.slug == gate.slug), "fail")
        _child(case, tag, message, kind, text)
    elif gate.outcome is Outcome.ERROR:
        _child(case, "error", note or "fault of the verifier itself", gate.reason.value if gate.reason else "internal",
               note)
    elif gate.outcome is not Outcome.PASS:
        words = {Outcome.INCONCLUSIVE: "inconclusive", Outcome.NOT_APPLICABLE: "not applicable"}[gate.outcome]
        _child(case, "skipped", f"{words}: {note}" if note else words, gate.reason.value if gate.reason else words, "")
    elif note:
        ElementTree.SubElement(case, "system-out").text = _xml(note)
    return case


def _finding(report: Report, gate: GateResult) -> list[str]:
    found = []
    for finding in report.findings:
        if finding.slug == gate.slug:
            rows = [*facts(report, finding), ("replay", replay_command(report, finding, names_of(report)))]
            found.append("\n".join([headline(finding), *(f"  {label:<10} {text}" for label, text in rows)]))
    return found


def _child(case: ElementTree.Element, tag: str, message: str, kind: str, text: str) -> None:
    child = ElementTree.SubElement(case, tag, {"message": _xml(message[:MESSAGE_CHARS]), "type": kind})
    if text:
        child.text = _xml(text)


def _xml(text: str) -> str:
    """Text without the characters that XML 1.0 cannot hold."""
    return _NOT_XML.sub("\N{REPLACEMENT CHARACTER}", text)
