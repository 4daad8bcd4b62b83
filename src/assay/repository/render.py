"""A gate's answer for people and for CI: a table, Markdown, JUnit XML. Computes nothing."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING
from xml.etree import ElementTree

from assay.report.words import OUTCOMES, printable
from assay.repository.model import Gated, GateReport
from assay.repository.policy import Decision

if TYPE_CHECKING:
    from rich.console import Console

WORDS = {
    Decision.MERGE: "may merge", Decision.BLOCK: "BLOCKED", Decision.UNDECIDED: "undecided",
    Decision.BAD_INPUT: "bad input", Decision.UNCHANGED: "unchanged",
}
_STYLES = {Decision.MERGE: "green", Decision.BLOCK: "bold red", Decision.UNDECIDED: "yellow",
           Decision.BAD_INPUT: "bold magenta", Decision.UNCHANGED: "dim"}
_NOT_XML = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def verdict_words(pair: Gated) -> str:
    """The label, or that the screen is all there was."""
    if pair.report is not None:
        return pair.report.label.value.upper() if pair.report.label.value == "rejected" else pair.report.label.value
    return "-"


def screen_words(pair: Gated) -> str:
    """What the screen said."""
    return OUTCOMES[pair.screen.outcome] if pair.screen is not None else "-"


def summary(report: GateReport) -> str:
    """One line: how many may merge, and how much was looked at how."""
    counts = report.counts
    looked = [p for p in report.pairs if p.decision is not Decision.UNCHANGED]
    words = [f"{counts[d]} {word}" for d, word in (
        (Decision.MERGE, "may merge"), (Decision.BLOCK, "blocked"), (Decision.UNDECIDED, "undecided"),
        (Decision.BAD_INPUT, "at fault as input"), (Decision.UNCHANGED, "unchanged")) if counts[d]]
    kinds = {kind: sum(p.battery == kind for p in looked) for kind in ("release", "sample", "screen")}
    batteries = [f"{kinds[kind]} {word}" for kind, word in (
        ("release", "to be released"), ("sample", "by sample"), ("screen", "that did not pass the screen"))
        if kinds[kind]]
    cached = sum("report" in p.cached for p in looked)
    full = f"; full battery for {', '.join(batteries)}" if batteries else ""
    return (", ".join(words) or "no pair to look at") + full + (f" ({cached} from the store)" if cached else "")


def print_gate(console: Console, report: GateReport) -> None:
    """The table, why each one may not merge, and the summary."""
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False)
    table.add_column("candidate", overflow="fold")
    for heading in ("screen", "verdict", "battery", "decision"):
        table.add_column(heading, no_wrap=True)
    shown = [p for p in report.pairs if p.decision is not Decision.UNCHANGED]
    for pair in shown:
        battery = pair.battery + (" (kept)" if "report" in pair.cached else "")
        table.add_row(Text(printable(pair.name)), screen_words(pair), verdict_words(pair), battery,
                      Text(WORDS[pair.decision], style=_STYLES[pair.decision]))
    if shown:
        console.print(table)
        console.print()
    for pair in shown:
        for words in pair.why:
            console.print(Text(printable(f"{pair.name}: {words}"), style=_STYLES[pair.decision]), soft_wrap=True)
        for words in pair.waived:
            console.print(Text(printable(f"{pair.name}: waived: {words}"), style="dim"), soft_wrap=True)
    for note in report.notes:
        console.print(Text(printable(f"note: {note}"), style="dim"), soft_wrap=True)
    console.print(summary(report), soft_wrap=True)


def to_markdown(report: GateReport) -> str:
    """A summary for the page of a CI run, as GitHub's Markdown."""
    return "\n".join(_markdown(report)) + "\n"


def _markdown(report: GateReport) -> Iterator[str]:
    head = {0: "all may merge", 1: "blocked", 2: "bad input", 3: "undecided"}[report.status]
    yield f"## Assay: {head}"
    yield ""
    yield _escaped(summary(report)) + "."
    shown = [p for p in report.pairs if p.decision is not Decision.UNCHANGED]
    if shown:
        yield ""
        yield "| candidate | screen | verdict | battery | decision | why |"
        yield "|---|---|---|---|---|---|"
    for pair in shown:
        why = [*pair.why, *(f"waived: {words}" for words in pair.waived)]
        cells = (f"`{_code(pair.name)}`", screen_words(pair), verdict_words(pair), pair.battery,
                 f"**{WORDS[pair.decision]}**", "<br>".join(map(_escaped, why)))
        yield f"| {' | '.join(cells)} |"
    if report.notes:
        yield ""
        yield from (f"- {_escaped(note)}" for note in report.notes)
    scope = sorted({p.report.scope for p in shown if p.report is not None})
    if scope:
        yield ""
        yield f"Decided on {_escaped(', '.join(scope))}. Screened only means: no verdict."


def to_junit(report: GateReport) -> str:
    """One test case for each pair: failure when blocked, error on bad input, skipped when undecided or unchanged."""
    root = ElementTree.Element("testsuites", name="assay gate")
    counts = report.counts
    suite = ElementTree.SubElement(
        root, "testsuite", name="assay gate", tests=str(len(report.pairs)), failures=str(counts[Decision.BLOCK]),
        errors=str(counts[Decision.BAD_INPUT]),
        skipped=str(counts[Decision.UNDECIDED] + counts[Decision.UNCHANGED]))
    for pair in report.pairs:
        case = ElementTree.SubElement(suite, "testcase", classname=_xml(pair.reference), name=_xml(pair.candidate),
                                      file=_xml(pair.candidate))
        if pair.report is not None:
            case.set("time", f"{pair.report.timing.total_s:.3f}")
        tag = {Decision.BLOCK: "failure", Decision.BAD_INPUT: "error", Decision.UNDECIDED: "skipped",
               Decision.UNCHANGED: "skipped"}.get(pair.decision)
        if tag is not None:
            node = ElementTree.SubElement(case, tag, message=_xml("; ".join(pair.why) or WORDS[pair.decision]))
            if pair.report is not None and tag == "failure":
                node.text = _xml("\n".join(
                    f"{f.slug} [{f.reason.value}] at {f.probe}: expected {f.expected}, got {f.actual}"
                    for f in pair.report.findings))
    ElementTree.indent(root)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ElementTree.tostring(root, encoding="unicode") + "\n"


def _xml(text: str) -> str:
    """Text without the characters that XML 1.0 cannot hold."""
    return _NOT_XML.sub("�", text)


def _escaped(text: str) -> str:
    """Text that a candidate may have chosen, with nothing in it that Markdown or HTML would read."""
    flat = printable(" ".join(text.split()))
    for character, entity in (("&", "&amp;"), ("<", "&lt;"), (">", "&gt;")):
        flat = flat.replace(character, entity)
    return re.sub(r"([\\`*_{}\[\]()#!|~@])", r"\\\1", flat)


def _code(text: str) -> str:
    """Text inside a code span in a cell of a table."""
    return printable(text).replace("`", "'").replace("|", "\\|")
