"""What changed from one verdict to another. Pure: compares two reports and decides nothing anew."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping
from typing import Any, Literal

from pydantic import Field
from rich.text import Text

from assay.probe.model import Frozen
from assay.report.identity import faults, fingerprint
from assay.report.model import Finding, Report, canonical_json
from assay.report.phrases import coverage_text, values, where
from assay.report.words import OUTCOMES, REASONS, printable
from assay.vocabulary import Label, Outcome, Reason, Tier

ABSENT = "-"
NAME_WIDTH = 18
HASH_DIGITS = 12


class Verdict(Frozen):
    """One side."""

    label: Label
    """Its label."""
    scope: str
    """What it is a verdict of."""
    seed: int
    """Seed of its probes."""


class ConditionChange(Frozen):
    """Something that the verdicts were decided on, and that is not the same."""

    name: str
    """Such as `candidate`, `environment.triton` or `contract.numerics.matmul`."""
    before: Any = None
    """Value before; None where there is none."""
    after: Any = None
    """Value after."""


class GateChange(Frozen):
    """A gate that came out differently; coverage alone is no change."""

    slug: str
    """The gate."""
    before: Outcome | None
    """Outcome before; None where the gate was not asked."""
    after: Outcome | None
    """Outcome after."""
    coverage: tuple[str, str]
    """Probes that decided, of those planned, before and after."""


class FaultChange(Frozen):
    """One fault, in one of the reports or in both."""

    fingerprint: str
    """Its name, the same in every report on the task."""
    slug: str
    """The gate."""
    reason: Reason
    """What is wrong."""
    tier: Tier
    """How it weighs."""
    before: str | None = None
    """What was measured before: where, expected and got."""
    after: str | None = None
    """What was measured after."""


class ReportDiff(Frozen):
    """The differences. The decision is the same when the label and the faults are."""

    schema_version: Literal[1] = 1
    """Version of this format."""
    same_decision: bool
    """Whether both verdicts have one label and the same faults."""
    before: Verdict
    """The first verdict."""
    after: Verdict
    """The second verdict."""
    conditions: tuple[ConditionChange, ...] = ()
    """What they were decided on, where it differs."""
    gates: tuple[GateChange, ...] = ()
    """Gates that came out differently."""
    appeared: tuple[FaultChange, ...] = ()
    """Faults of the second alone."""
    disappeared: tuple[FaultChange, ...] = ()
    """Faults of the first alone."""
    same: tuple[FaultChange, ...] = Field(default=())
    """Faults of both."""

    def to_json(self) -> str:
        """Canonical JSON."""
        return canonical_json(self.model_dump(mode="json"))


def compare(before: Report, after: Report) -> ReportDiff:
    """What changed from one report to the other."""
    old, new = faults(before), faults(after)
    task = after.task.id
    appeared = [_fault(task, key, None, f) for key, f in new.items() if key not in old]
    disappeared = [_fault(task, key, f, None) for key, f in old.items() if key not in new]
    same = [_fault(task, key, old[key], f) for key, f in new.items() if key in old]
    return ReportDiff(
        same_decision=before.label is after.label and not appeared and not disappeared,
        before=_verdict(before), after=_verdict(after), conditions=tuple(_conditions(before, after)),
        gates=tuple(_gates(before, after)), appeared=tuple(appeared), disappeared=tuple(disappeared), same=tuple(same),
    )


def _verdict(report: Report) -> Verdict:
    return Verdict(label=report.label, scope=report.scope, seed=report.seed)


def _fault(task: str, key: Any, before: Finding | None, after: Finding | None) -> FaultChange:
    found = after or before
    assert found is not None
    return FaultChange(fingerprint=fingerprint(task, key), slug=found.slug, reason=found.reason, tier=found.tier,
                       before=None if before is None else _measured(before),
                       after=None if after is None else _measured(after))


def _measured(finding: Finding) -> str:
    expected, actual = values(finding)
    place = where(finding)
    return f"expected {expected}, got {actual}" + (f" at {place}" if place else "")


def _conditions(before: Report, after: Report) -> Iterator[ConditionChange]:
    old, new = _decided_on(before), _decided_on(after)
    for name in dict.fromkeys([*old, *new]):
        if old.get(name) != new.get(name):
            yield ConditionChange(name=name, before=old.get(name), after=new.get(name))


def _decided_on(report: Report) -> dict[str, Any]:
    """Everything that a verdict depends on, by name."""
    return {
        "task": report.task.id, "reference": report.task.sha256, "candidate": report.candidate.sha256,
        "entry": report.candidate.entry, "scope": report.scope, "tier": report.tier, "seed": report.seed,
        **_flat("contract", report.contract), **_flat("environment", report.environment),
    }


def _flat(prefix: str, data: Mapping[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in sorted(data.items()):
        key = f"{prefix}.{name}"
        found |= _flat(key, value) if isinstance(value, dict) and value else {key: value}
    return found


def _gates(before: Report, after: Report) -> Iterator[GateChange]:
    old, new = {g.slug: g for g in before.gates}, {g.slug: g for g in after.gates}
    for slug in dict.fromkeys([*old, *new]):
        a, b = old.get(slug), new.get(slug)
        one, two = a.outcome if a else None, b.outcome if b else None
        if one is not two:
            yield GateChange(slug=slug, before=one, after=two,
                             coverage=(coverage_text(a) if a else ABSENT, coverage_text(b) if b else ABSENT))


def lines(found: ReportDiff, before: str, after: str, *, width: int = 80) -> Iterator[Text]:
    """The differences for a terminal; `before` and `after` name the two reports."""
    for label, name, side in (("before", before, found.before), ("after", after, found.after)):
        yield from _wrapped(f"{label:<8}", f"{name}: {side.label.value} on {side.scope}, seed {side.seed}", width)
    if found.conditions:
        yield Text()
        yield Text("decided on", style="bold")
        for change in found.conditions:
            name, words = change.name.removeprefix("environment."), f"{_value(change.before)} → {_value(change.after)}"
            if len(name) > NAME_WIDTH:
                words, name = f"{name} {words}", ""
            yield from _wrapped(f"  {name:<{NAME_WIDTH}} " if name else "  ", words, width)
    if found.gates:
        yield Text()
        yield Text("gates", style="bold")
        for gate in found.gates:
            words = f"{_outcome(gate.before)} → {_outcome(gate.after)}"
            line = Text(printable(f"  {gate.slug:<{NAME_WIDTH}} {words:<28}"))
            line.append(f"{gate.coverage[0]} → {gate.coverage[1]}", style="dim")
            line.truncate(width, overflow="ellipsis")
            yield line
    if found.appeared or found.disappeared or found.same:
        yield Text()
        yield Text("findings", style="bold")
        for mark, style, group in (("+", "red", found.appeared), ("-", "green", found.disappeared),
                                   ("=", "dim", found.same)):
            for fault in group:
                yield from _lines_of(mark, style, fault, width)
    yield Text()
    yield from _wrapped("", _summary(found), width, "bold")


def _lines_of(mark: str, style: str, fault: FaultChange, width: int) -> Iterator[Text]:
    yield from _wrapped(f"  {mark} ", f"{fault.slug}: {REASONS[fault.reason]} [{fault.reason.value}]", width, style)
    told = [("", fault.after if fault.before is None else fault.before)]
    if fault.before is not None and fault.after is not None and fault.before != fault.after:
        told = [("before: ", fault.before), ("after: ", fault.after)]
    for label, text in told:
        yield from _wrapped("    ", f"{label}{text}", width, "dim")


def _summary(found: ReportDiff) -> str:
    if found.same_decision:
        count = len(found.same)
        what = f"with the same {count} finding{'s' if count > 1 else ''}" if count else "without findings"
        return f"same decision: {found.after.label.value} {what}"
    parts = []
    if found.before.label is not found.after.label:
        parts.append(f"{found.before.label.value} → {found.after.label.value}")
    parts += [f"{len(group)} finding{'s' if len(group) > 1 else ''} {word}"
              for group, word in ((found.appeared, "appeared"), (found.disappeared, "disappeared")) if group]
    return f"another decision: {', '.join(parts)}"


def _outcome(outcome: Outcome | None) -> str:
    return ABSENT if outcome is None else OUTCOMES[outcome]


def _value(value: Any) -> str:
    text = ABSENT if value is None else str(value)
    digits = "0123456789abcdef"
    return text[:HASH_DIGITS] if len(text) == 64 and set(text) <= set(digits) else text


def _wrapped(start: str, text: str, width: int, style: str = "") -> Iterator[Text]:
    pieces = textwrap.wrap(printable(text), max(20, width - len(start)), break_on_hyphens=False) or [""]
    for number, piece in enumerate(pieces):
        yield Text((start if number == 0 else " " * len(start)) + piece, style=style)
