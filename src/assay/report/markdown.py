"""A summary in GitHub's Markdown, for the page of a CI run or a comment.

Whatever a candidate or a task may have chosen is written with entities, so that nothing in it is read as
Markdown or HTML.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from assay.report.model import Finding, Report
from assay.report.phrases import (
    candidate_text,
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
from assay.report.words import OUTCOMES, printable
from assay.vocabulary import UNDECIDED, Label, Outcome

LIMIT = 1_000_000
"""Bytes that a summary may take; GitHub shows none above 1 MiB."""
MARKS = {Label.REJECTED: "❌", Label.SCREENED: "⚠️", Label.CONTRACT: "✅"}
_SPECIAL = re.compile(r"[&<>|*`\[\]~#!@\\$]|(?<![A-Za-z0-9])_|_(?![A-Za-z0-9])|:(?=//)|(?<=www)\.")


def render(report: Report) -> str:
    """One report as Markdown of less than `LIMIT` bytes; findings that do not fit are counted."""
    head = "\n".join(_head(report)) + "\n"
    foot = "\n".join(_foot(report)) + "\n"
    room = LIMIT - len(head.encode()) - len(foot.encode()) - 200
    shown = []
    for number, finding in enumerate(report.findings, 1):
        block = "\n".join(_finding(report, finding, number)) + "\n"
        room -= len(block.encode())
        if room < 0:
            left = len(report.findings) - number + 1
            shown.append(f"\n{left} more finding{'s' if left > 1 else ''}, in the JSON report.\n")
            break
        shown.append(block)
    return head + "".join(shown) + foot


def _head(report: Report) -> Iterator[str]:
    names = names_of(report)
    yield f"## {MARKS[report.label]} Assay: {report.label.value}"
    yield ""
    yield f"{escaped(verdict_text(report))}."
    yield ""
    yield f"- candidate {escaped(candidate_text(report, names))}"
    yield f"- reference {escaped(names.reference)}"
    yield f"- scope {escaped(scope_text(report))}"
    yield f"- {escaped(effort_text(report))}"
    for label, text in cautions(report):
        yield f"- {label}: {escaped(text)}"
    telling = [g for g in report.gates if g.outcome is Outcome.FAIL or g.outcome in UNDECIDED]
    rest = [g for g in report.gates if g not in telling]
    for title, gates in (("", telling), (f"{len(rest)} gates passed or not applicable", rest)):
        if not gates:
            continue
        yield ""
        if title and telling:
            yield f"<details><summary>{title}</summary>"
            yield ""
        yield "| gate | outcome | probes | |"
        yield "|---|---|--:|---|"
        for gate in gates:
            outcome = f"**{OUTCOMES[gate.outcome]}**" if gate in telling else OUTCOMES[gate.outcome]
            yield f"| {escaped(gate.slug)} | {outcome} | {coverage_text(gate)} | {escaped(gate_note(report, gate))} |"
        if title and telling:
            yield ""
            yield "</details>"


def _finding(report: Report, finding: Finding, number: int) -> Iterator[str]:
    yield ""
    yield f"### {number}. {escaped(headline(finding))}"
    yield ""
    yield "| | |"
    yield "|---|---|"
    for label, text in facts(report, finding):
        yield f"| {label} | {escaped(text)} |"
    if finding.source is not None:
        numbered = "\n".join(f"{'>' if n == finding.source.line else ' '} {n:>5}  {printable(text)}"
                             for n, text in enumerate(finding.source.lines, finding.source.first))
        yield ""
        yield fenced(numbered, "text")
    yield ""
    yield fenced(printable(replay_command(report, finding, names_of(report))), "sh")


def _foot(report: Report) -> Iterator[str]:
    versions = ", ".join(f"{k} {v}" for k, v in sorted(report.environment.items()) if isinstance(v, str))
    yield ""
    yield f"<sub>{escaped(versions)}</sub>"


def escaped(text: str) -> str:
    """Text on one line in which Markdown and HTML find nothing of theirs."""
    flat = printable(" ".join(text.split()))
    return _SPECIAL.sub(lambda found: f"&#{ord(found.group())};", flat)


def fenced(text: str, language: str) -> str:
    """A block of code, fenced by more backticks than it holds."""
    longest = max((len(run) for run in re.findall("`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}{language}\n{text}\n{fence}"
