"""From rows to a scoreboard: kill rates, false alarms, what each gate contributes. Pure: reads rows, runs nothing."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from assay.audit.statistics import Rate
from assay.gates import BATTERY
from assay.scoreboard.rows import Row
from assay.screen import ScreenVariant
from assay.vocabulary import EffortTier

WRONG = ("mutant", "seeded", "trick")
"""Groups of candidates that have to be rejected."""
FACTORS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 1.0, 1.5, 2.0, 3.0, 5.0, 10.0, 30.0, 100.0, 1e3, 1e4, 1e6)
"""Multiples of every tolerance at which the kill rate is asked for."""
EXCEPTIONAL = frozenset({"nan_swallowed", "nan_minted", "inf_sign", "inf_swallowed", "inf_minted", "leaked"})
STRICT = frozenset({"nonfinite", "repeatability", "output_aliasing", "faults"})
"""What the published battery counts as its strict floor."""

Policy = Callable[[Mapping[str, Any]], bool]
POLICIES: dict[str, Policy] = {
    "default": lambda f: True,
    "NaN and Inf waived": lambda f: f["reason"] not in EXCEPTIONAL,
    "lower precision allowed": lambda f: f["tier"] != "divergence",
    "wrong results only": lambda f: f["tier"] == "wrong",
    "free of tolerance only": lambda f: bool(f["free"]),
    "strict floor": lambda f: f["gate"] in STRICT,
}
"""Which findings count, by policy."""


@dataclass(frozen=True)
class GateScore:
    """What one gate contributes, on wrong candidates at the standard tier.

    Attributes:
        exercised: verdicts, on right and wrong candidates, in which it judged something.
        fired: wrong candidates that it has a finding on.
        sole: of these, those that no other gate has a finding on.
        alarms: right candidates that it has a finding on.
        undecided: verdicts in which it could not decide.
        elsewhere: why this scope cannot exercise it, such as `needs_gpu`; empty when it can.
    """

    slug: str
    exercised: int = 0
    fired: int = 0
    sole: int = 0
    alarms: int = 0
    undecided: int = 0
    elsewhere: str = ""

    @property
    def vacuous(self) -> bool:
        """True when it never judged anything, or never found a fault, where it could have."""
        return not self.elsewhere and (self.exercised == 0 or self.fired == 0)

    @property
    def redundancy(self) -> float | None:
        """Share of the faults it found that another gate found too."""
        return (self.fired - self.sole) / self.fired if self.fired else None


@dataclass(frozen=True)
class Score:
    """A scoreboard.

    Attributes:
        made: mutants looked at.
        stillborn: of these, those that never run.
        equivalent: those on which no difference was found.
        killed: rejected mutants, of the witnessed ones judged, by tier.
        by_kind, by_operator, by_subject: the same at the standard tier, apart.
        missed: witnessed mutants that a screen passes, by variant; of those that it could judge.
        missed_by_kind: the same by variant and fault kind.
        alarms: rejected controls, by kind of control.
        alarms_by_dtype: the same by dtype.
        undecided: controls that were neither accepted nor rejected.
        gates: each gate's part.
        published: seeded bugs, tricks and the controls of the seeded set: caught or accepted.
        survivors: ids of witnessed mutants that were not rejected at the standard tier.
        curves: kill rate by multiple of the tolerances, by fault kind and over all.
        policies: kill rate and false alarms under each policy.
        scopes: where verdicts were decided.
    """

    made: int
    stillborn: int
    equivalent: int
    killed: dict[str, Rate]
    by_kind: dict[str, Rate]
    by_operator: dict[str, Rate]
    by_subject: dict[str, Rate]
    missed: dict[str, Rate]
    missed_by_kind: dict[str, dict[str, Rate]]
    alarms: dict[str, Rate]
    alarms_by_dtype: dict[str, Rate]
    undecided: int
    gates: tuple[GateScore, ...]
    published: dict[str, Rate]
    survivors: tuple[str, ...]
    alarmed: tuple[str, ...]
    curves: dict[str, list[tuple[float, float]]]
    policies: dict[str, tuple[Rate, Rate]]
    scopes: tuple[str, ...] = field(default=())

    @property
    def vacuous(self) -> tuple[str, ...]:
        """Gates that say nothing on this set."""
        return tuple(g.slug for g in self.gates if g.vacuous)

    @property
    def metrics(self) -> dict[str, float]:
        """The numbers that the result file reports."""
        total, precision = _pooled(self.by_kind.values()), self.by_kind.get("precision", Rate(0, 0))
        controls = _pooled(self.alarms.values())
        screen = self.missed.get(ScreenVariant.KERNELBENCH_V0.value, Rate(0, 0))
        found: dict[str, float] = {
            "mutants": total.total, "killed": total.count, "precision_mutants": precision.total,
            "precision_killed": precision.count, "screen_missed": screen.count, "screen_judged": screen.total,
            "controls": controls.total, "false_alarms": controls.count, "controls_undecided": self.undecided,
            "vacuous_gates": len(self.vacuous), "equivalent": self.equivalent, "stillborn": self.stillborn,
            "operators": len(self.by_operator), "subjects": len(self.by_subject),
        }
        for variant, rate in self.missed.items():
            found[f"screen_missed_{variant.replace('-', '_')}"] = rate.count
        for name, rate in self.published.items():
            found[name], found[f"{name}_of"] = rate.count, rate.total
        return found


def score(rows: Iterable[Row], device: str = "cpu") -> Score:
    """Put rows together: witnesses, and what was judged on one device."""
    listed = [r for r in rows if r["type"] == "witness" or r.get("device", "cpu") == device]
    witnesses = {r["id"]: r for r in listed if r["type"] == "witness" and not r.get("problem")}
    real = {i for i, r in witnesses.items() if r["how"] and r["how"] != "stillborn"}
    verdicts = [r for r in listed if r["type"] == "verdict" and r["label"] is not None]
    standard = [r for r in verdicts if r["tier"] == EffortTier.STANDARD.value]
    mutants = [r for r in standard if r["group"] == "mutant" and r["id"] in real]
    wrong = [*mutants, *(r for r in standard if r["group"] in ("seeded", "trick"))]
    controls = [r for r in standard if r["right"]]
    screens = [r for r in listed if r["type"] == "screen" and r["group"] == "mutant" and r["id"] in real
               and r["outcome"] in ("pass", "fail")]
    missed: dict[str, list[Row]] = defaultdict(list)
    for row in screens:
        missed[row["variant"]].append(row)
    by_tier: dict[str, list[Row]] = defaultdict(list)
    for row in verdicts:
        if row["group"] == "mutant" and row["id"] in real:
            by_tier[row["tier"]].append(row)
    return Score(
        made=len(witnesses), stillborn=sum(r["how"] == "stillborn" for r in witnesses.values()),
        equivalent=sum(not r["how"] for r in witnesses.values()),
        killed={tier: _killed(found) for tier, found in sorted(by_tier.items())},
        by_kind=_apart(mutants, "kind", _killed), by_operator=_apart(mutants, "operator", _killed),
        by_subject=_apart(mutants, "subject", _killed),
        missed={variant: _passed(found) for variant, found in sorted(missed.items())},
        missed_by_kind={variant: _apart(found, "kind", _passed) for variant, found in sorted(missed.items())},
        alarms=_apart(controls, "kind", _killed), alarms_by_dtype=_apart(controls, "dtype", _killed),
        undecided=sum(r["label"] == "screened" for r in controls),
        gates=tuple(_gate(gate.slug, standard, wrong, controls) for gate in BATTERY if not gate.opt_in),
        published=_published(standard),
        survivors=tuple(sorted(r["id"] for r in mutants if r["label"] != "rejected")),
        alarmed=tuple(sorted(r["id"] for r in controls if r["label"] == "rejected")),
        curves=_curves(mutants, controls),
        policies={name: _under(policy, mutants, controls) for name, policy in POLICIES.items()},
        scopes=tuple(sorted({r.get("scope", "") for r in standard} - {""})),
    )


def _killed(rows: Sequence[Row]) -> Rate:
    return Rate(sum(r["label"] == "rejected" for r in rows), len(rows))


def _passed(rows: Sequence[Row]) -> Rate:
    return Rate(sum(r["outcome"] == "pass" for r in rows), len(rows))


def _pooled(rates: Iterable[Rate]) -> Rate:
    listed = list(rates)
    return Rate(sum(r.count for r in listed), sum(r.total for r in listed))


def _apart(rows: Sequence[Row], by: str, rate: Callable[[Sequence[Row]], Rate]) -> dict[str, Rate]:
    groups: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        groups[row[by]].append(row)
    return {name: rate(group) for name, group in sorted(groups.items())}


def _gate(slug: str, every: Sequence[Row], wrong: Sequence[Row], controls: Sequence[Row]) -> GateScore:
    outcomes = [r["gates"][slug] for r in every if slug in r["gates"]]
    fired = [r for r in wrong if any(f["gate"] == slug for f in r["findings"])]
    reasons = Counter(o[2] for o in outcomes if o[0] == "not_applicable")
    everywhere = bool(outcomes) and all(o[0] == "not_applicable" and o[2] == "needs_gpu" for o in outcomes)
    return GateScore(
        slug, exercised=sum(o[0] in ("pass", "fail") for o in outcomes), fired=len(fired),
        sole=sum({f["gate"] for f in r["findings"]} == {slug} for r in fired),
        alarms=sum(any(f["gate"] == slug for f in r["findings"]) for r in controls),
        undecided=sum(o[0] in ("inconclusive", "error") for o in outcomes),
        elsewhere=str(reasons.most_common(1)[0][0]) if everywhere else "",
    )


def _published(standard: Sequence[Row]) -> dict[str, Rate]:
    found = {}
    for name, group in (("seeded_caught", "seeded"), ("tricks_caught", "trick")):
        found[name] = _killed([r for r in standard if r["group"] == group])
    clean = [r for r in standard if r["group"] == "control" and r["kind"] == "seeded set"]
    found["seeded_controls_clean"] = Rate(sum(r["label"] == "contract" for r in clean), len(clean))
    return found


def _strength(row: Row) -> float:
    """The multiple of all tolerances up to which a verdict still rejects; infinite with a finding free of them."""
    strengths = [float("inf") if f["free"] or f["ratio"] is None else f["ratio"] for f in row["findings"]]
    return max(strengths, default=0.0)


def _curves(mutants: Sequence[Row], controls: Sequence[Row]) -> dict[str, list[tuple[float, float]]]:
    """Share of mutants still rejected, and of controls rejected, with every tolerance multiplied.

    For mutants a lower bound, as a report keeps the first finding of a kind and not the largest, and only for
    multiples from one on: what narrower tolerances would find beyond was not measured. For controls exact: a report
    says how near the nearest comparison came.
    """
    groups = {"all": list(mutants), **{k: [r for r in mutants if r["kind"] == k] for k in {r["kind"] for r in mutants}}}
    found = {
        name: [(factor, sum(_strength(r) > factor for r in rows) / len(rows)) for factor in FACTORS if factor >= 1]
        for name, rows in sorted(groups.items()) if rows
    }
    known = [r for r in controls if r.get("closest") is not None]
    if known:
        found["controls"] = [
            (factor, sum(r["label"] == "rejected" or r["closest"] > factor for r in known) / len(known))
            for factor in FACTORS
        ]
    return found


def _under(policy: Policy, mutants: Sequence[Row], controls: Sequence[Row]) -> tuple[Rate, Rate]:
    """Kill rate and false alarms where only some findings count."""
    def rejected(rows: Sequence[Row]) -> Rate:
        return Rate(sum(any(policy(f) for f in r["findings"]) for r in rows), len(rows))

    return rejected(mutants), rejected(controls)
