"""The report as text for a terminal, a pipe or a log file.

Every fact stands in words, so colour only repeats what is written. Lines never exceed the width given.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator

from rich.console import Console
from rich.text import Text

from assay.report.model import Finding, GateResult, Names, Report
from assay.report.phrases import (
    candidate_text,
    cautions,
    coverage_text,
    effort_text,
    facts,
    gate_note,
    names_of,
    replay_command,
    scope_text,
    verdict_text,
)
from assay.report.words import OUTCOMES, REASONS, printable
from assay.vocabulary import Label, Outcome, Tier

__all__ = ["Names", "lines", "print_report", "render", "replay_command", "to_text", "verdict_text"]

SLUG_WIDTH = 16
OUTCOME_WIDTH = 13
COVERAGE_WIDTH = 8
LABEL_WIDTH = 11

_STYLES = {
    Outcome.PASS: "green", Outcome.FAIL: "bold red", Outcome.INCONCLUSIVE: "yellow",
    Outcome.NOT_APPLICABLE: "dim", Outcome.ERROR: "bold magenta",
}
_TIER_STYLES = {Tier.WRONG: "bold red", Tier.VIOLATION: "bold yellow", Tier.DIVERGENCE: "bold cyan"}
_LABEL_STYLES = {Label.REJECTED: "bold red", Label.SCREENED: "bold yellow", Label.CONTRACT: "bold green"}


def print_report(console: Console, report: Report, names: Names) -> None:
    """Write the whole report to a console."""
    for line in lines(report, names, width=console.width):
        console.print(line, soft_wrap=True, highlight=False)


def render(report: Report) -> str:
    """The report as plain text of 80 columns."""
    return to_text(report, names_of(report))


def to_text(report: Report, names: Names, *, width: int = 80) -> str:
    """The report as plain text of at most `width` columns (replay commands stay on one line)."""
    return "\n".join(line.plain.rstrip() for line in lines(report, names, width=width)) + "\n"


def lines(report: Report, names: Names, *, width: int) -> Iterator[Text]:
    """The report, line by line."""
    yield from _head(report, names, width)
    yield Text()
    for gate in report.gates:
        yield _gate_line(report, gate, width)
    for number, finding in enumerate(report.findings, 1):
        yield Text()
        yield from _finding(report, finding, number, names, width)
    yield Text()
    for label, text in cautions(report):
        yield from _wrapped(label, text, width)
    yield from _verdict(report, width)


def _head(report: Report, names: Names, width: int) -> Iterator[Text]:
    yield from _wrapped("candidate", candidate_text(report, names), width)
    yield from _wrapped("reference", names.reference, width)
    yield from _wrapped("scope", scope_text(report), width)


def _gate_line(report: Report, gate: GateResult, width: int) -> Text:
    line = Text()
    line.append(f"{gate.slug:<{SLUG_WIDTH}} ")
    line.append(f"{OUTCOMES[gate.outcome]:<{OUTCOME_WIDTH}}", style=_STYLES[gate.outcome])
    line.append(f"{coverage_text(gate):>{COVERAGE_WIDTH}}  ")
    room = width - len(line.plain)
    note = printable(gate_note(report, gate))
    line.append(note if len(note) <= room else note[: max(0, room - 1)] + "…",
                style="" if gate.outcome in (Outcome.FAIL, Outcome.ERROR) else "dim")
    line.rstrip()
    return line


def _finding(report: Report, finding: Finding, number: int, names: Names, width: int) -> Iterator[Text]:
    head = Text(f"{number}. ")
    head.append(f"{finding.slug} ({finding.gate})", style="bold")
    head.append(": ")
    head.append(REASONS[finding.reason], style=_TIER_STYLES[finding.tier])
    head.append(f" [{finding.reason.value}]")
    head.truncate(width, overflow="ellipsis")
    yield head
    for label, text in facts(report, finding):
        yield from _wrapped(label, text, width, indent=3)
    # one line, whatever the width: it is there to be copied
    yield Text(f"{'':3}{'replay':<{LABEL_WIDTH}}{replay_command(report, finding, names)}", style="dim")


def _verdict(report: Report, width: int) -> Iterator[Text]:
    for line in textwrap.wrap(verdict_text(report), width):
        yield Text(line, style=_LABEL_STYLES[report.label])
    for line in textwrap.wrap(effort_text(report), width):
        yield Text(line, style="dim")


def _wrapped(label: str, text: str, width: int, *, indent: int = 0) -> Iterator[Text]:
    """`label  text`, continued below the text."""
    start = f"{'':{indent}}{label:<{LABEL_WIDTH}}"
    pieces = textwrap.wrap(printable(text), max(20, width - len(start)), break_on_hyphens=False) or [""]
    for i, piece in enumerate(pieces):
        line = Text()
        line.append(start if i == 0 else " " * len(start), style="dim")
        line.append(piece)
        yield line
