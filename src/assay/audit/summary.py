"""Everything that is counted about an audit, in one pass over its rows: memory does not grow with them."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from assay.audit.floors import CHANNELS, COMPOSITIONS, POLICIES, Marks, marks
from assay.audit.outcome import LEFT_BEFORE, Records, Status, records
from assay.audit.settings import Settings
from assay.audit.statistics import McNemar, Rate, mcnemar
from assay.audit.store import Store

TIERS = ("wrong", "violation", "divergence")
THRESHOLDS = (0.0, 0.5, 0.8, 1.0, 1.5, 2.0, 3.0, 5.0, 10.0)
"""Speedups that fast_p is given at."""
OUTCOMES = ("fail", "pass", "inconclusive", "not_applicable", "error")
GROUPS = ("generator", "run", "month")
MOST_GROUPS = 10_000
"""Values of one column that are told apart; the rest are counted together."""


@dataclass
class Class:
    """What is counted of one group of rows.

    Attributes:
        selected: rows of the audit.
        decided: those with the label `contract` or `rejected`.
        undecided: those that ran without one.
        rejected: those with a finding that rejects.
        strict: those in the strict floor.
        tiers: rejected rows by their heaviest tier.
        reasons: rejected rows by the first finding's gate and reason.
    """

    selected: int = 0
    decided: int = 0
    undecided: int = 0
    rejected: int = 0
    strict: int = 0
    tiers: Counter[str] = field(default_factory=Counter)
    reasons: Counter[str] = field(default_factory=Counter)

    def to_json(self) -> dict[str, Any]:
        """As plain data."""
        return {"selected": self.selected, "undecided": self.undecided,
                "rejected": Rate(self.rejected, self.decided).to_json(),
                "strict": Rate(self.strict, self.decided).to_json(), "tiers": dict(self.tiers),
                "reasons": dict(self.reasons)}


@dataclass
class Table2:
    """A screen against the battery, on rows that both decided.

    Attributes:
        cells: rows by (screen passes, battery passes).
        strict: rows that the screen passes and that are in the strict floor.
        undecided: rows on which one of the two did not decide.
        first: screen's reason for the rows that it fails and the battery passes.
        outcomes: rows by what the screen alone says.
    """

    cells: Counter[tuple[bool, bool]] = field(default_factory=Counter)
    strict: int = 0
    undecided: int = 0
    first: Counter[str] = field(default_factory=Counter)
    outcomes: Counter[str] = field(default_factory=Counter)

    @property
    def test(self) -> McNemar:
        """Rows that only the screen passes against rows that only the battery passes."""
        return mcnemar(self.cells[True, False], self.cells[False, True])

    def to_json(self) -> dict[str, Any]:
        """As plain data."""
        test = self.test
        words = {True: "pass", False: "fail"}
        return {"cells": {f"{words[a]}/{words[b]}": self.cells[a, b] for a in words for b in words},
                "strict": self.strict, "undecided": self.undecided, "outcomes": dict(self.outcomes),
                "mcnemar": {"screen_only": test.first, "battery_only": test.second, "p": test.p, "share": test.share,
                            "low": test.low, "high": test.high}}


@dataclass
class Summary:
    """The statistics of one audit.

    Attributes:
        about: what the audit is.
        rows: rows of the corpus.
        statuses: rows by status.
        notes: rows by status and why.
        whole: all rows of the audit together.
        classes: rows by class of operation.
        groups: rows by generator, run and month, where the corpus names them.
        gates: by gate, rows by outcome.
        reasons: by gate and outcome, rows by reason.
        order: ids of the gates by slug, in the order of the battery.
        sole: rejected rows that one gate alone rejects.
        without: rejected rows that stay rejected without a gate's findings.
        floors: rows by composition and NaN policy.
        alone: by policy, rows that one channel alone puts into the strict floor.
        left_out: by policy and channel, rows of the strict floor that stay in it without the channel.
        screens: each variant against the battery.
        speedups: rows with a speedup.
        fast: by threshold: rows faster, rows faster that a screen passes, rows faster with the label `contract`.
        screened: rows with a speedup that the first screen decided.
        seconds: time spent on rows.
        scopes: rows by the stack that they were decided on.
    """

    about: dict[str, Any]
    rows: int = 0
    statuses: Counter[str] = field(default_factory=Counter)
    notes: defaultdict[str, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))
    whole: Class = field(default_factory=Class)
    classes: defaultdict[str, Class] = field(default_factory=lambda: defaultdict(Class))
    groups: dict[str, defaultdict[str, Class]] = field(
        default_factory=lambda: {name: defaultdict(Class) for name in GROUPS})
    gates: defaultdict[str, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))
    reasons: defaultdict[tuple[str, str], Counter[str]] = field(default_factory=lambda: defaultdict(Counter))
    order: dict[str, str] = field(default_factory=dict)
    sole: Counter[str] = field(default_factory=Counter)
    without: Counter[str] = field(default_factory=Counter)
    floors: Counter[tuple[str, str]] = field(default_factory=Counter)
    alone: defaultdict[str, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))
    left_out: Counter[tuple[str, str]] = field(default_factory=Counter)
    screens: defaultdict[str, Table2] = field(default_factory=lambda: defaultdict(Table2))
    speedups: int = 0
    screened: int = 0
    fast: defaultdict[float, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))
    seconds: float = 0.0
    scopes: Counter[str] = field(default_factory=Counter)

    def add(self, found: Records) -> None:
        """Count one row."""
        row = found.row
        status = Status(row["status"])
        self.rows += 1
        self.statuses[status.value] += 1
        self.seconds += row["seconds"]
        if row["note"] and status is not Status.DECIDED:
            self.notes[status.value][short(row["note"])] += 1
        if row["scope"]:
            self.scopes[row["scope"]] += 1
        if status in LEFT_BEFORE:
            return
        decided = status is Status.DECIDED and row["label"] is not None
        marked = marks(found)
        for group in self._groups(row):
            _count(group, found, status, decided, marked)
        self._screens(found, decided, marked)
        self._speed(found, decided)
        if not decided:
            return
        self._gates(found)
        for policy in POLICIES:
            for composition in COMPOSITIONS:
                self.floors[composition, policy] += bool(marked.floor(composition, policy))
            channels = marked.floor(policy=policy)
            if len(channels) == 1:
                self.alone[policy][next(iter(channels))] += 1
            for channel in CHANNELS:
                self.left_out[policy, channel] += bool(channels - {channel})

    def _groups(self, row: dict[str, Any]) -> Iterator[Class]:
        yield self.whole
        yield self.classes[row["op_class"]]
        month = str(row["created"])[:7] if row["created"] else None
        for name, value in (("generator", row["generator"]), ("run", row["run"]), ("month", month)):
            if value is not None:
                known = self.groups[name]
                yield known[value if value in known or len(known) < MOST_GROUPS else "others"]

    def _gates(self, found: Records) -> None:
        blamed = set()
        for gate in found.gates:
            slug = gate["slug"]
            self.order.setdefault(slug, gate["gate"])
            self.gates[slug][gate["outcome"]] += 1
            if gate["reason"]:
                self.reasons[slug, gate["outcome"]][gate["reason"]] += 1
            if gate["outcome"] == "fail" and gate["blocking"]:
                blamed.add(slug)
        if found.row["label"] == "rejected":
            if len(blamed) == 1:
                self.sole[next(iter(blamed))] += 1
            for gate in found.gates:
                self.without[gate["slug"]] += bool(blamed - {gate["slug"]})

    def _screens(self, found: Records, decided: bool, marked: Marks) -> None:
        for screen in found.screens:
            table = self.screens[screen["variant"]]
            table.outcomes[screen["outcome"]] += 1
            if not decided or screen["outcome"] not in ("pass", "fail"):
                table.undecided += 1
                continue
            passes, accepted = screen["outcome"] == "pass", found.row["label"] == "contract"
            table.cells[passes, accepted] += 1
            table.strict += passes and bool(marked.floor())
            if not passes and accepted:
                table.first[str(screen["reason"])] += 1

    def _speed(self, found: Records, decided: bool) -> None:
        speedup = found.row["speedup"]
        if speedup is None:
            return
        self.speedups += 1
        self.screened += bool(found.screens)
        for threshold in THRESHOLDS:
            if speedup > threshold:
                faster = self.fast[threshold]
                faster["claimed"] += 1
                faster["screened"] += any(s["outcome"] == "pass" for s in found.screens[:1])
                faster["contract"] += decided and found.row["label"] == "contract"

    def rate(self, count: int) -> Rate:
        """A count out of the decided rows."""
        return Rate(count, self.whole.decided)


    def to_json(self) -> dict[str, Any]:
        """Every count as plain data, rates with their intervals."""
        return {
            "schema_version": 1, "about": self.about, "rows": self.rows, "statuses": dict(self.statuses),
            "notes": {status: dict(notes) for status, notes in self.notes.items()}, "scopes": dict(self.scopes),
            "seconds": round(self.seconds, 3), "whole": self.whole.to_json(),
            "classes": {name: group.to_json() for name, group in self.classes.items()},
            "groups": {by: {name: group.to_json() for name, group in found.items()}
                       for by, found in self.groups.items()},
            "gates": {slug: {"id": self.order[slug], "outcomes": dict(counts),
                             "rate": Rate(counts["fail"], counts["fail"] + counts["pass"]).to_json(),
                             "reasons": {outcome: dict(self.reasons[slug, outcome]) for outcome in OUTCOMES
                                         if self.reasons[slug, outcome]},
                             "alone": self.sole[slug], "rejected_without": self.without[slug]}
                      for slug, counts in self.gates.items()},
            "floors": [{"composition": name, "policy": policy, **self.rate(self.floors[name, policy]).to_json()}
                       for name in COMPOSITIONS for policy in POLICIES],
            "channels": [{"channel": channel, "policy": policy, "alone": self.alone[policy][channel],
                          "without": self.left_out[policy, channel]} for policy in POLICIES for channel in CHANNELS],
            "screens": {variant: table.to_json() for variant, table in self.screens.items()},
            "fast": {"rows": self.speedups, "screened_rows": self.screened,
                     "faster": {f"{threshold:g}": dict(self.fast[threshold]) for threshold in THRESHOLDS}},
        }


def short(note: str) -> str:
    """Why, without what differs from row to row."""
    return note.split(": ")[0][:60] if ": " in note else note[:60]


def _count(group: Class, found: Records, status: Status, decided: bool, marked: Marks) -> None:
    group.selected += 1
    group.undecided += status in (Status.NOT_DECIDED, Status.PENDING, Status.SCREENED_OUT)
    if not decided:
        return
    group.decided += 1
    group.strict += bool(marked.floor())
    if found.row["label"] == "rejected":
        group.rejected += 1
        group.tiers[found.row["tier"] or "violation"] += 1
        first = found.findings[0] if found.findings else {"slug": "?", "reason": "?"}
        group.reasons[f"{first['slug']}: {first['reason']}"] += 1


def all_records(store: Store) -> Iterator[Records]:
    """The flat records of every row, in the order of the corpus, from what was kept."""
    checks = Settings.from_json(store.get("settings") or "{}").checks
    for kept in store.rows():
        yield records(kept, store.outcomes(kept.id) if kept.chosen else {}, checks)


def summarise(store: Store) -> Summary:
    """The statistics of an audit, finished or not."""
    settings = Settings.from_json(store.get("settings") or "{}")
    summary = Summary({
        "source": store.get("source"), "seed": settings.seed, "mode": settings.checks.mode,
        "screens": list(settings.checks.variants) if settings.checks.screens else [], "effort": settings.tier,
        "device": settings.device, "sample": settings.sample, "stratify": settings.stratify})
    _add_all(summary, all_records(store))
    return summary


def _add_all(summary: Summary, found: Iterable[Records]) -> None:
    for one in found:
        summary.add(one)
