"""What compute-sanitizer says of a candidate's kernels, for the gates that it concerns.

Planned in the deep tier on a GPU alone. Where the tool is not installed, does not work or does not follow what a
kernel does, nothing is decided by it and the gate's note says so.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from assay.gates.base import Context, Gate, Verdict, undecided_reason
from assay.probe.model import Call, Draw, Probe
from assay.probe.record import Record
from assay.report.model import Finding
from assay.vocabulary import Reason, Tier

KIND = "sanitize"
"""Kind of the probes that run under the tool."""
BY_HAND = frozenset({"cuda", "cupy", "numba"})
"""Languages whose kernels place barriers and shared memory themselves; compilers do it for the others."""


def probes(gate: Gate, ctx: Context, tool: str, places: Iterable[tuple[str, dict[str, int]]]) -> list[Probe]:
    """One probe per (name, sizes) under a tool; none outside the deep tier on a GPU."""
    if not ctx.deep or ctx.device != "cuda" or ctx.language == "torch":
        return []
    if tool in ("racecheck", "synccheck") and not BY_HAND & {ctx.language, *ctx.languages}:
        return []
    return [
        Probe(
            id=f"{gate.slug}/{tool}{'/' + name if name else ''}",
            gate=gate.slug,
            kind=KIND,
            sizes=dict(at),
            draws=(Draw(seed=ctx.draw_seed(gate.slug, name)),),
            calls=(Call(),),
            conditions=(f"sanitize:{tool}",),
        )
        for name, at in places
    ]


def apart(records: Sequence[Record]) -> tuple[list[Record], list[Record]]:
    """Records of ordinary probes, and those of probes under the tool."""
    return [r for r in records if r.probe.kind != KIND], [r for r in records if r.probe.kind == KIND]


def reports(records: Sequence[Record], verdict: Verdict) -> list[tuple[Record, dict[str, Any]]]:
    """Every report of the candidate's own kernels; what decided nothing is counted, and said in the note."""
    found: list[tuple[Record, dict[str, Any]]] = []
    said: list[str] = []
    for record in records:
        tool = record.probe.conditions[0].removeprefix("sanitize:")
        facts = record.observation.facts.get("sanitizer")
        facts = facts if isinstance(facts, dict) else {}
        mine = [r for r in facts.get("reports") or [] if isinstance(r, dict)]
        found += [(record, r) for r in mine]
        if mine or (record.observation.ran and facts.get("state") == "ran"):
            verdict.decided += 1
        else:
            reason = undecided_reason(record) or Reason.TOOLCHAIN
            verdict.undecided[reason] += 1
            why = str(facts.get("why") or record.observation.text or reason.value)
            said.append(f"{tool} not judged: {why}"[:160])
    note(verdict, said[:2])
    return found


def note(verdict: Verdict, lines: Sequence[str]) -> None:
    """Add lines to a verdict's note."""
    verdict.note = "; ".join(dict.fromkeys([*([verdict.note] if verdict.note else []), *lines])) or None


def place(report: dict[str, Any]) -> str:
    """Kernel, and file and line where they are known."""
    line = report.get("line")
    where = f", {report.get('file')}:{line}" if report.get("file") and isinstance(line, int) and line > 0 else ""
    return f"{report.get('kernel')}{where}"


def detail(report: dict[str, Any]) -> dict[str, object]:
    """What else is said of a report, for the finding."""
    names = ("kernel", "thread", "block", "size", "count", "detail")
    found: dict[str, object] = {name: report[name] for name in names if report.get(name)}
    if report.get("file") == "candidate.py" and isinstance(report.get("line"), int) and report["line"] > 0:
        found["line"] = report["line"]
    elif report.get("file"):
        found["place"] = f"{report['file']}:{report.get('line')}"
    return found


def joined(findings: Sequence[Finding], further: Sequence[Finding]) -> list[Finding]:
    """Findings with those of the tool: what is found already learns kernel and line, what is new comes after."""
    by_reason = {f.reason: f for f in reversed(further)}
    told = [
        f.model_copy(update={"detail": {**f.detail, **by_reason[f.reason].detail}})
        if f.reason in by_reason and "kernel" not in f.detail
        else f
        for f in findings
    ]
    known = {f.reason for f in findings}
    return [*told, *(f for f in further if f.reason not in known)]


def finding(gate: Gate, record: Record, report: dict[str, Any], reason: Reason, expected: str) -> Finding:
    """A finding of one report."""
    tool = record.probe.conditions[0].removeprefix("sanitize:")
    return Finding(
        gate=gate.id,
        slug=gate.slug,
        reason=reason,
        tier=Tier.WRONG,
        tolerance_free=True,
        expected=expected,
        actual=f"{place(report)}: {report.get('text')}"[:300],
        detail={"tool": tool, **detail(report)},
        attested_by="worker",
        probe=record.probe.id,
    )
