"""The published audit's figures, each re-derived from its per-row records, or named as one that cannot be.

Source of the figures: arXiv:2608.12700 v1 and the records beside it. A figure that should derive and does not
is a disagreement; a figure that moves when one clause is changed says so.
"""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from decimal import ROUND_HALF_UP, Decimal
from typing import Any

from assay.audit.published_rows import ARTEFACTS, GATES, HALF_PRECISION, TF32, Clauses, Population, Row

Value = float | tuple[int, int]
"""A number, or a count with its denominator."""

ALTERNATIVES: dict[str, Clauses] = {
    "rejected kernels too": Clauses(accepted_only=False),
    "toolchain artefacts kept": Clauses(artefacts_excluded=False),
    "EXC-01 beyond NaN only": Clauses(exc01="beyond_nan"),
    "without EXC-01": Clauses(exc01="none"),
    "NaN equals NaN in ORD-02": Clauses(nan_equals_nan=True),
    "half precision not promised": Clauses(half_precision=False),
    "aliasing is a finding": Clauses(aliasing_is_a_finding=True),
}
"""Other clauses that the same rows can be counted by, one change each."""


@dataclass(frozen=True)
class Figure:
    """One published figure.

    Attributes:
        group: what it belongs to.
        name: what it counts.
        published: the figure.
        derive: how it follows from the rows; None where it cannot.
        digits: decimals that it is published with.
        why_not: why it does not follow from the rows.
    """

    group: str
    name: str
    published: Value
    derive: Callable[[Population], Value] | None = None
    digits: int = 0
    why_not: str = ""


@dataclass(frozen=True)
class Outcome:
    """One figure, re-derived.

    Attributes:
        figure: the figure.
        derived: what the rows give; None where it cannot be derived.
        changes: its value under each alternative clause that changes it.
    """

    figure: Figure
    derived: Value | None
    changes: dict[str, Value]

    @property
    def status(self) -> str:
        """`derived`, `differs` or `not derivable`."""
        if self.derived is None:
            return "not derivable"
        return "derived" if agrees(self.figure, self.derived) else "differs"

    def to_json(self) -> dict[str, Any]:
        """As plain data."""
        figure = self.figure
        return {"group": figure.group, "name": figure.name, "published": figure.published, "derived": self.derived,
                "status": self.status, "why_not": figure.why_not or None, "changes": self.changes}


def agrees(figure: Figure, derived: Value) -> bool:
    """Whether a derived value is the published one, at the decimals that it is published with.

    The published rates were rounded to four decimals before they became per cent with one, so a value that
    agrees after both roundings agrees.
    """
    if isinstance(figure.published, tuple) or isinstance(derived, tuple) or not figure.digits:
        return figure.published == derived
    wanted = _rounded(figure.published, figure.digits)
    return wanted in (_rounded(derived, figure.digits), _rounded(float(_rounded(derived, 2)), figure.digits))


def _rounded(value: float, digits: int) -> Decimal:
    """Rounded half up, as people round."""
    return Decimal(repr(value)).quantize(Decimal(1).scaleb(-digits), ROUND_HALF_UP)


def check(rows: Sequence[Row]) -> list[Outcome]:
    """Every figure, re-derived from the rows under the published clauses and under each alternative."""
    base = Population(tuple(rows))
    others = {name: Population(tuple(rows), clauses) for name, clauses in ALTERNATIVES.items()}
    found = []
    for figure in FIGURES:
        if figure.derive is None:
            found.append(Outcome(figure, None, {}))
            continue
        value = figure.derive(base)
        changed = {name: other for name, population in others.items()
                   if (other := figure.derive(population)) != value}
        found.append(Outcome(figure, value, changed))
    return found


def _count(test: Callable[[Population, Row], bool]) -> Callable[[Population], int]:
    """How many rows of the denominator pass a test."""
    return lambda p: sum(1 for row in p.audited if test(p, row))


def _floor(*more: str) -> Callable[[Population], tuple[int, int]]:
    return lambda p: (sum(1 for row in p.audited if p.clauses.floor(row, *more)), len(p.audited))


def _percent(test: Callable[[Population, Row], bool], op_class: str | None = None) -> Callable[[Population], float]:
    def derive(p: Population) -> float:
        rows = [r for r in p.audited if op_class is None or r.op_class == op_class]
        return 100 * sum(1 for r in rows if test(p, r)) / len(rows) if rows else 0.0

    return derive


def _finding(p: Population, row: Row) -> bool:
    return p.clauses.finding(row)


def _in_floor(p: Population, row: Row) -> bool:
    return p.clauses.floor(row)


def _gate(gate: str) -> Callable[[Population], tuple[int, int]]:
    def derive(p: Population) -> tuple[int, int]:
        decided = [r for r in p.gated if gate in r.gates and r.gates[gate].status in ("pass", "fail")]
        return sum(1 for r in decided if p.clauses.counts(r, gate)), len(decided)

    return derive


def _alone(gate: str) -> Callable[[Population], int]:
    return _count(lambda p, r: [g for g in GATES if p.clauses.counts(r, g)] == [gate])


def _artefacts(kind: str) -> Callable[[Population], int]:
    return lambda p: sum(1 for r in p.executable if r.artefact and r.error.startswith(kind))


def _small(op_class: str | None) -> Callable[[Population], int]:
    return _count(lambda p, r: r.random_error is not None and r.random_error < TF32
                  and op_class in (None, r.op_class))


def _seconds(share: float) -> Callable[[Population], float]:
    def derive(p: Population) -> float:
        taken = sorted(r.seconds for r in p.rows)
        return taken[min(len(taken) - 1, int(share * len(taken)))]

    return derive


def _waived(clauses: Clauses) -> Callable[[Population], tuple[int, int]]:
    """The floor when one clause is waived, whatever else the population's own clauses say."""
    def derive(p: Population) -> tuple[int, int]:
        changed = replace(p.clauses, exc01=clauses.exc01 if clauses.exc01 != "all" else p.clauses.exc01,
                          nan_equals_nan=clauses.nan_equals_nan or p.clauses.nan_equals_nan)
        return sum(1 for r in p.audited if changed.floor(r)), len(p.audited)

    return derive


_PER_GATE = {
    "CMP-01": (608, 2573), "CMP-03": (420, 2322), "ORD-01": (351, 2560), "ORD-02": (126, 2561),
    "ORD-03": (136, 2561), "PRC-01": (287, 2548), "PRC-02": (352, 2548), "EXC-01": (868, 2540),
    "EXC-02": (238, 2549), "RES-01": (45, 2554),
}
_PER_CLASS = {
    "attention": (8, 87.5, 25.0), "conv": (239, 55.7, 31.0), "matmul": (751, 62.7, 34.2),
    "norm": (352, 64.8, 34.7), "reduction": (758, 71.8, 59.1), "scan": (140, 50.7, 27.1),
    "softmax": (390, 47.4, 26.2),
}
_RUNS = "the rows hold no verdict of the benchmark's own check"

FIGURES: tuple[Figure, ...] = (
    Figure("funnel", "rows", 3134, lambda p: len(p.rows)),
    Figure("funnel", "accepted by the corpus", 2970, lambda p: len(p.accepted)),
    Figure("funnel", "reference runs and can be judged", 2919, lambda p: len(p.executable)),
    *(Figure("funnel", f"toolchain artefact: {kind}", count, _artefacts(kind))
      for kind, count in zip(ARTEFACTS, (250, 19, 7, 5), strict=True)),
    Figure("funnel", "audited", 2638, lambda p: len(p.audited)),
    Figure("funnel", "reached the gates", 2576, lambda p: len(p.gated)),
    Figure("rates", "any finding", (1639, 2638), lambda p: (_count(_finding)(p), len(p.audited))),
    Figure("rates", "any finding, %", 62.1, _percent(_finding), 1),
    Figure("rates", "strict floor", (1043, 2638), _floor()),
    Figure("rates", "strict floor, %", 39.5, _percent(_in_floor), 1),
    Figure("rates", "floor with shape rejection", (1083, 2638), _floor("shape rejection")),
    Figure("rates", "floor with EXC-02", (1154, 2638), _floor("EXC-02")),
    Figure("rates", "floor with any CMP-03", (1263, 2638), _floor("CMP-03")),
    *(Figure("gates", f"{gate}: fail of pass and fail", _PER_GATE[gate], _gate(gate)) for gate in GATES),
    *(figure for name, (n, any_finding, strict) in _PER_CLASS.items() for figure in (
        Figure("classes", f"{name}: kernels", n, _count(lambda p, r, name=name: r.op_class == name)),  # type: ignore[misc]
        Figure("classes", f"{name}: any finding, %", any_finding, _percent(_finding, name), 1),
        Figure("classes", f"{name}: strict floor, %", strict, _percent(_in_floor, name), 1),
    )),
    Figure("sensitivity", "floor without EXC-01", (229, 2638), _waived(Clauses(exc01="none"))),
    Figure("sensitivity", "fail EXC-01 alone", 507, _alone("EXC-01")),
    Figure("sensitivity", "EXC-01 failures that are NaN only", 557,
           _count(lambda p, r: r.nan_only and p.clauses.counts(r, "EXC-01"))),
    Figure("sensitivity", "decided by ORD-01 alone", 0, _alone("ORD-01")),
    Figure("sensitivity", "fail ORD-02 only because NaN is not NaN", 35,
           _count(lambda p, r: r.nan_is_not_nan and p.clauses.counts(r, "ORD-02"))),
    Figure("sensitivity", "floor with NaN equal to NaN", (1009, 2638), _waived(Clauses(nan_equals_nan=True))),
    Figure("sensitivity", "first failure is a random input", 297, _count(lambda p, r: r.random_error is not None)),
    Figure("sensitivity", "of those, error of the size of TF32", 230, _small(None)),
    Figure("sensitivity", "of those, matmul", 199, _small("matmul")),
    Figure("sensitivity", "fail only half-precision gates", 142,
           _count(lambda p, r: any(map(r.fails, HALF_PRECISION))
                  and not any(r.fails(g) for g in GATES if g not in HALF_PRECISION))),
    Figure("sensitivity", "half-precision failures that are exceptions", 319,
           lambda p: sum(1 for r in p.gated for g in HALF_PRECISION if r.fails(g) and "exception" in r.says(g))),
    Figure("sensitivity", "in the floor and not a finding", 9,
           _count(lambda p, r: p.clauses.floor(r) and not p.clauses.finding(r))),
    Figure("sensitivity", "pass everything with nothing skipped", (463, 2576),
           lambda p: (sum(1 for r in p.gated if r.spotless), len(p.gated))),
    Figure("time", "median, s", 9.3, lambda p: statistics.median(r.seconds for r in p.rows), 1),
    Figure("time", "90th percentile, s", 12.9, _seconds(0.9), 1),
    Figure("time", "99th percentile, s", 19.5, _seconds(0.99), 1),
    Figure("time", "all kernels, h", 8.62, lambda p: sum(r.seconds for r in p.rows) / 3600, 2),
    Figure("differential", "benchmark and battery pass", 985, why_not=_RUNS),
    Figure("differential", "benchmark passes, battery fails", 1487, why_not=_RUNS),
    Figure("differential", "of those, in the strict floor", 958, why_not=_RUNS),
    Figure("differential", "benchmark fails, battery passes", 14, why_not=_RUNS),
    Figure("differential", "benchmark and battery fail", 152, why_not=_RUNS),
    Figure("differential", "hardened check passes, battery fails", 1263, why_not=_RUNS),
    Figure("differential", "hardened check fails, battery passes", 30, why_not=_RUNS),
    Figure("differential", "replica agrees with the benchmark, % of 1,030", 98.5, digits=1, why_not=_RUNS),
    Figure("other", "positive controls that pass, of 7", 7, why_not="the controls are not in the rows"),
    Figure("other", "controls to which the shape gate does not apply, of 7", 6,
           why_not="the controls are not in the rows"),
    Figure("other", "findings on the second stack, % of 245", 68.6, digits=1,
           why_not="the rows are of one stack"),
    Figure("other", "native CUDA without precision, % of 213", 20.2, digits=1,
           why_not="the rows are of Triton kernels"),
)
"""Every figure, in the order of the published account."""


def summary(outcomes: Sequence[Outcome]) -> dict[str, int]:
    """How many figures are derived, differ, or cannot be derived; and how many a clause changes."""
    counts = Counter(outcome.status for outcome in outcomes)
    return {"derived": counts["derived"], "differs": counts["differs"], "not_derivable": counts["not derivable"],
            "change_with_a_clause": sum(1 for o in outcomes if o.changes)}
