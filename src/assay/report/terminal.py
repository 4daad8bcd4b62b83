"""The report as text for a terminal, a pipe or a log file.

Every fact stands in words, so colour only repeats what is written. Lines never exceed the width given.
"""

from __future__ import annotations

import math
import shlex
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass

from rich.console import Console
from rich.text import Text

from assay.report.model import Finding, GateResult, Report
from assay.report.words import (
    OUTCOMES,
    REASONS,
    TIERS,
    UNDECIDED_REASONS,
    WEAKNESSES,
    describe_probe,
    printable,
    shortened,
)
from assay.vocabulary import Label, Outcome, Reason, Tier

SLUG_WIDTH = 16
OUTCOME_WIDTH = 13
COVERAGE_WIDTH = 8
LABEL_WIDTH = 11
TAIL_CHARS = 600

_STYLES = {
    Outcome.PASS: "green", Outcome.FAIL: "bold red", Outcome.INCONCLUSIVE: "yellow",
    Outcome.NOT_APPLICABLE: "dim", Outcome.ERROR: "bold magenta",
}
_TIER_STYLES = {Tier.WRONG: "bold red", Tier.VIOLATION: "bold yellow", Tier.DIVERGENCE: "bold cyan"}
_LABEL_STYLES = {Label.REJECTED: "bold red", Label.SCREENED: "bold yellow", Label.CONTRACT: "bold green"}


@dataclass(frozen=True)
class Names:
    """What a person called things on the command line, so that a finding can be replayed by copy and paste.

    Attributes:
        reference: the reference as given.
        candidate: the candidate as given.
        options: further options of the command that a replay needs, such as `--contract FILE`.
    """

    reference: str
    candidate: str
    options: tuple[str, ...] = ()


def print_report(console: Console, report: Report, names: Names) -> None:
    """Write the whole report to a console."""
    for line in lines(report, names, width=console.width):
        console.print(line, soft_wrap=True, highlight=False)


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
    yield from _warnings(report, width)
    yield from _verdict(report, width)


def _head(report: Report, names: Names, width: int) -> Iterator[Text]:
    entry = f" {report.candidate.entry}" if report.candidate.entry else ""
    yield from _wrapped("candidate", f"{names.candidate} ({report.candidate.language}{entry})", width)
    yield from _wrapped("reference", names.reference, width)
    target = report.environment.get("emulated_target")
    scope = f"{report.scope} of {target}" if target else report.scope
    yield from _wrapped("scope", f"{scope}, tier {report.tier}, seed {report.seed}", width)


def _gate_line(report: Report, gate: GateResult, width: int) -> Text:
    line = Text()
    line.append(f"{gate.slug:<{SLUG_WIDTH}} ")
    line.append(f"{OUTCOMES[gate.outcome]:<{OUTCOME_WIDTH}}", style=_STYLES[gate.outcome])
    coverage = f"{gate.probes_run}/{gate.probes_planned}" if gate.probes_planned else "-"
    line.append(f"{coverage:>{COVERAGE_WIDTH}}  ")
    room = width - len(line.plain)
    note = printable(_note(report, gate))
    line.append(note if len(note) <= room else note[: max(0, room - 1)] + "…",
                style="" if gate.outcome in (Outcome.FAIL, Outcome.ERROR) else "dim")
    return line


def _note(report: Report, gate: GateResult) -> str:
    """Why a gate came out as it did, in a few words."""
    parts = [] if gate.blocking else ["advisory"]
    if gate.outcome is Outcome.FAIL:
        reasons = dict.fromkeys(f.reason for f in report.findings if f.slug == gate.slug)
        parts.append("; ".join(REASONS[reason] for reason in reasons))
        return ": ".join(parts)
    if gate.outcome is Outcome.INCONCLUSIVE and gate.reason is not None:
        # a fault that another gate reports can leave this one without anything to tell apart
        parts.append(REASONS[gate.reason] if gate.reason in UNDECIDED_REASONS else "wrong already without it")
    if gate.outcome is Outcome.NOT_APPLICABLE and gate.reason is not None and not gate.note:
        parts.append(REASONS[gate.reason])
    if gate.note:
        parts.append(gate.note)
    open_probes = {Reason(k): v for k, v in gate.undecided.items()}
    if gate.outcome is Outcome.PASS and open_probes:
        parts += [f"{count} undecided: {REASONS[reason]}" for reason, count in open_probes.items()]
    return "; ".join(part for part in parts if part)


def _finding(report: Report, finding: Finding, number: int, names: Names, width: int) -> Iterator[Text]:
    head = Text(f"{number}. ")
    head.append(f"{finding.slug} ({finding.gate})", style="bold")
    head.append(": ")
    head.append(REASONS[finding.reason], style=_TIER_STYLES[finding.tier])
    head.append(f" [{finding.reason.value}]")
    head.truncate(width, overflow="ellipsis")
    yield head
    expected, actual = shortened(finding.expected or "-"), shortened(finding.actual or "-")
    if expected == actual:
        expected, actual = finding.expected or "-", finding.actual or "-"
    yield from _wrapped("expected", expected, width, indent=3)
    yield from _wrapped("got", actual, width, indent=3)
    place = _where(finding)
    if place:
        yield from _wrapped("where", place, width, indent=3)
    yield from _wrapped("why", _why(finding), width, indent=3)
    if finding.detail.get("printed"):
        tail = " ".join(str(finding.detail["printed"]).split())[-TAIL_CHARS:]
        yield from _wrapped("printed", tail, width, indent=3)
    probe = report.probes.get(finding.probe)
    words = f": {describe_probe(probe)}" if probe else ""
    yield from _wrapped("probe", f"{finding.probe}{words}", width, indent=3)
    if finding.attested_by == "worker":
        yield from _wrapped("attested", "by the candidate's own process alone", width, indent=3)
    # one line, whatever the width: it is there to be copied
    yield Text(f"{'':3}{'replay':<{LABEL_WIDTH}}{replay_command(report, finding, names)}", style="dim")


def _where(finding: Finding) -> str:
    parts = []
    if finding.output is not None:
        index = f"[{', '.join(map(str, finding.index))}]" if finding.index is not None else ""
        named = finding.output == "out" or finding.output.startswith("input")
        parts.append(f"{'' if named else 'output '}{finding.output}{index}")
    elif finding.index is not None:
        parts.append(f"[{', '.join(map(str, finding.index))}]")
    wrong, total = finding.detail.get("wrong_elements"), finding.detail.get("elements")
    if wrong is not None and total is not None:
        parts.append(f"{wrong:,} of {total:,} elements wrong")
    if finding.detail.get("call") is not None:
        parts.append(f"call {finding.detail['call']}")
    if finding.detail.get("place"):
        parts.append(str(finding.detail["place"]))
    return ", ".join(parts)


def _why(finding: Finding) -> str:
    parts = [TIERS[finding.tier]]
    if finding.error is not None and finding.tolerance is not None and not finding.tolerance_free:
        ratio = finding.error / finding.tolerance if finding.tolerance else math.inf
        times = f", {ratio:.3g} times" if math.isfinite(ratio) else ", above"
        parts.append(f"error {finding.error:.3g}{times} the tolerance {finding.tolerance:.3g}")
        contributions = finding.detail.get("tolerance_parts")
        if isinstance(contributions, dict):
            shown = [f"{name} {value:.2g}" for name, value in contributions.items()
                     if isinstance(value, (int, float)) and value > 0.01 * finding.tolerance]
            if shown:
                parts.append("tolerance from " + " + ".join(shown))
        if finding.detail.get("dominant_operation"):
            parts.append(f"mostly {finding.detail['dominant_operation']}")
    elif finding.tolerance_free:
        parts.append("no tolerance involved")
    return "; ".join(parts)


def replay_command(report: Report, finding: Finding, names: Names) -> str:
    """The command that shows a finding again: the same seed, and the gates whose probes are needed."""
    probe = report.probes.get(finding.probe)
    wanted = [finding.slug]
    known = {gate.slug for gate in report.gates}
    if probe is not None and probe.gate != finding.slug and probe.gate in known:
        wanted.append(probe.gate)
    words = ["assay", "verify", names.reference, names.candidate, "--seed", str(report.seed)]
    for slug in wanted:
        words += ["--only", slug]
    return shlex.join([*words, *names.options])


def _warnings(report: Report, width: int) -> Iterator[Text]:
    for hint in report.candidate.hints:
        text = f"{hint.rule} ({hint.severity}): {hint.evidence}; a static rule's hit, no part of the verdict"
        yield from _wrapped("hint", text, width)
    if report.task.weak:
        what = ", or ".join(WEAKNESSES.get(str(w), str(w)) for w in report.task.weak)
        yield from _wrapped("weak task", f"returning {what} would pass the usual check at 1e-2", width)
    if report.coverage.unmodelled:
        yield from _wrapped("unmodelled", "treated conservatively by the oracle: "
                            + ", ".join(report.coverage.unmodelled), width)


def verdict_text(report: Report) -> str:
    """The label with its scope, and what it rests on, in one sentence."""
    gates = report.gates
    failed = [g.slug for g in gates if g.outcome is Outcome.FAIL]
    undecided = [g.slug for g in gates if g.blocking and g.outcome in (Outcome.INCONCLUSIVE, Outcome.ERROR)]
    passed = sum(1 for g in gates if g.outcome is Outcome.PASS)
    if report.label is Label.REJECTED:
        text = f"{len(failed)} of {len(gates)} gates failed ({', '.join(failed)})"
    elif report.label is Label.SCREENED:
        if undecided:
            text = f"nothing wrong found, but undecided: {', '.join(undecided)}"
        else:
            text = "nothing wrong found, but the contract asks for more than this scope decides"
    else:
        text = f"{passed} of {len(gates)} gates passed"
        rest = [g for g in gates if g.outcome is Outcome.NOT_APPLICABLE and g.reason is not Reason.NEEDS_GPU]
        if rest:
            text += f", {len(rest)} not applicable"
        if failed:
            text += f"; findings that do not block: {', '.join(failed)}"
    needing = report.coverage.gates_need_gpu
    if needing:
        count = len(needing)
        text += f"; {count} gate{'s need' if count > 1 else ' needs'} a GPU ({', '.join(needing)})"
    return f"{report.label.value} on {report.scope}: {text}"


def _verdict(report: Report, width: int) -> Iterator[Text]:
    for line in textwrap.wrap(verdict_text(report), width):
        yield Text(line, style=_LABEL_STYLES[report.label])
    cover, t = report.coverage, report.timing
    for line in textwrap.wrap(
        f"{cover.probes_run} of {cover.probes_planned} probes run in {t.total_s:.1f} s "
        f"(start {t.start_s:.1f}, study {t.study_s:.1f}, oracle {t.oracle_s:.1f}, "
        f"candidate {t.candidate_s:.1f}; the last two overlap)", width,
    ):
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
