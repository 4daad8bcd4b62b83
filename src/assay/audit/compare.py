"""Two audits of the same rows, on two stacks or by two versions: where they agree, and on what they do not."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from assay.audit.outcome import Records
from assay.audit.statistics import Rate, mcnemar
from assay.audit.tables import RATE_COLUMNS, Table, rate_cells

LABELS = ("rejected", "contract", "undecided")
SHOWN = 60
"""Differing rows that a table lists; the JSON lists all."""


@dataclass(frozen=True)
class Verdict:
    """What one audit says of a row.

    Attributes:
        label: `rejected`, `contract` or `undecided`.
        gates: outcome of each gate.
        candidate: digest of the source.
    """

    label: str
    gates: dict[str, str]
    candidate: str | None


@dataclass
class Comparison:
    """Two audits, row by row.

    Attributes:
        names: what the two are called.
        cells: rows by the label of the first and of the second.
        gates: by gate, rows by outcome in the first and in the second.
        differing: rows with another label or another failing gate: (id, verdict, verdict).
        alone: rows that only one of the two has.
        other_source: rows of one id whose candidates differ; they are not compared.
    """

    names: tuple[str, str]
    cells: Counter[tuple[str, str]] = field(default_factory=Counter)
    gates: defaultdict[str, Counter[tuple[str, str]]] = field(default_factory=lambda: defaultdict(Counter))
    differing: list[tuple[str, Verdict, Verdict]] = field(default_factory=list)
    alone: Counter[str] = field(default_factory=Counter)
    other_source: int = 0

    @property
    def rows(self) -> int:
        """Rows that both have."""
        return sum(self.cells.values())

    def to_json(self) -> dict[str, Any]:
        """As plain data."""
        return {
            "schema_version": 1, "names": list(self.names), "rows": self.rows, "alone": dict(self.alone),
            "other_source": self.other_source,
            "labels": {f"{a}/{b}": n for (a, b), n in sorted(self.cells.items())},
            "gates": {slug: {f"{a}/{b}": n for (a, b), n in sorted(counts.items())}
                      for slug, counts in self.gates.items()},
            "differing": [{"id": id, "first": a.label, "second": b.label, "gates": _changed(a, b)}
                          for id, a, b in self.differing],
        }


def verdicts(records: Iterable[Records]) -> dict[str, Verdict]:
    """The verdict on each row that ran."""
    found = {}
    for one in records:
        row = one.row
        if row["label"] is None:
            continue
        label = row["label"] if row["status"] == "decided" else "undecided"
        found[row["id"]] = Verdict(label, {g["slug"]: g["outcome"] for g in one.gates}, row["candidate_sha256"])
    return found


def compare(first: Iterable[Records], second: Iterable[Records], names: tuple[str, str]) -> Comparison:
    """Compare two audits on the rows that ran in both."""
    mine, theirs = verdicts(first), verdicts(second)
    found = Comparison(names)
    found.alone[names[0]] = len(mine.keys() - theirs.keys())
    found.alone[names[1]] = len(theirs.keys() - mine.keys())
    for id, a in mine.items():
        b = theirs.get(id)
        if b is None:
            continue
        if a.candidate != b.candidate:
            found.other_source += 1
            continue
        found.cells[a.label, b.label] += 1
        for slug in {*a.gates, *b.gates}:
            found.gates[slug][a.gates.get(slug, "absent"), b.gates.get(slug, "absent")] += 1
        if a.label != b.label or _changed(a, b):
            found.differing.append((id, a, b))
    return found


def _changed(a: Verdict, b: Verdict) -> dict[str, list[str]]:
    """Gates that fail on one side only."""
    return {slug: [a.gates.get(slug, "absent"), b.gates.get(slug, "absent")] for slug in sorted({*a.gates, *b.gates})
            if (a.gates.get(slug) == "fail") != (b.gates.get(slug) == "fail")}


def tables(found: Comparison) -> list[Table]:
    """A comparison as tables."""
    a, b = found.names
    cells = tuple((x, *(f"{found.cells[x, y]:,}" for y in LABELS)) for x in LABELS)
    same = sum(found.cells[x, x] for x in LABELS)
    decided = [(x, y) for x in LABELS[:2] for y in LABELS[:2]]
    both = sum(found.cells[pair] for pair in decided)
    test = mcnemar(found.cells["rejected", "contract"], found.cells["contract", "rejected"])
    rates = (
        ("same label, of common rows", *rate_cells(Rate(same, found.rows))),
        (f"rejected by {a}, of rows decided by both",
         *rate_cells(Rate(found.cells["rejected", "rejected"] + found.cells["rejected", "contract"], both))),
        (f"rejected by {b}, of rows decided by both",
         *rate_cells(Rate(found.cells["rejected", "rejected"] + found.cells["contract", "rejected"], both))),
    )
    gates = []
    for slug, counts in found.gates.items():
        fails = Counter({(x == "fail", y == "fail"): 0 for x, y in counts})
        for (x, y), n in counts.items():
            fails[x == "fail", y == "fail"] += n
        differ = sum(n for (x, y), n in counts.items() if x != y)
        if differ or fails[True, True]:
            gates.append((slug, f"{fails[True, True]:,}", f"{fails[True, False]:,}", f"{fails[False, True]:,}",
                          f"{differ:,}"))
    differing = tuple(
        (id, x.label, y.label, ", ".join(f"{slug} {p}/{q}" for slug, (p, q) in _changed(x, y).items()))
        for id, x, y in found.differing[:SHOWN])
    missing = ", ".join(f"{n:,} only in {name}" for name, n in found.alone.items() if n)
    note = f"{found.rows:,} common rows" + (f"; {missing}" if missing else "")
    if found.other_source:
        note += f"; {found.other_source:,} of one id and different sources are not compared"
    rest = len(found.differing) - SHOWN
    return [
        Table(f"Labels: {a} (down) and {b} (across)", ("", *(f"#{label}" for label in LABELS)), cells, f"{note}.",
              "labels"),
        Table("Rates", ("rate", *RATE_COLUMNS), rates,
              f"McNemar's exact test: {test.first:,} rejected by {a} alone, {test.second:,} by {b} alone, "
              f"p = {test.p:.2g}.", "rates"),
        Table("Gates", ("gate", "#both fail", f"#only {a}", f"#only {b}", "#other outcome"), tuple(sorted(gates)), "",
              "gates"),
        Table("Rows that differ", ("id", a, b, "gates that fail on one side"), differing,
              f"{rest:,} more in the JSON." if rest > 0 else "", "differing"),
    ]
