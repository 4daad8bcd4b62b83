"""From what was kept of a row to the records that statistics are made of. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from assay.audit.store import Kept

BATTERY = "battery"
"""Name of the battery among the checks of a row; a screen's is `screen:VARIANT`."""
SCREEN = "screen:"
ARTEFACTS = ("CompilationError", "UnsupportedLanguageConstruct", "OutOfResources", "PTXASError")
"""Errors of a toolchain that could not compile a kernel."""
FAULTS = ("raised", "exited", "signalled", "timed_out", "forged_frame", "output_flood", "out_of_memory_candidate")
"""Reasons of a candidate that gave no answer."""
NEED_NO_OUTPUT = ("integrity", "provenance", "resources", "schedules", "streams")
"""Gates that can pass although the candidate never returned anything."""


class Status(StrEnum):
    """Where a row left the funnel, or that a verdict was reached."""

    NOT_SELECTED = "not_selected"
    """Not drawn into the sample."""
    NOT_ACCEPTED = "not_accepted"
    """The corpus itself took it for wrong."""
    REFERENCE_BROKEN = "reference_broken"
    """Its reference cannot be run."""
    NOT_AUDITABLE = "not_auditable"
    """It lacks what an audit needs: a source, inputs, an entry point of the reference."""
    TOOLCHAIN = "toolchain"
    """It needs a module that is missing here, or did not compile on this toolchain."""
    WEIGHTS = "weights"
    """Its parameters cannot be matched with the reference's."""
    NOT_DECIDED = "not_decided"
    """Nothing wrong was found and a blocking gate could not decide, or our own side failed."""
    SCREENED_OUT = "screened_out"
    """The screen failed it, and this audit asked no more of it."""
    PENDING = "pending"
    """Not run yet."""
    DECIDED = "decided"
    """The battery gave the label `contract` or `rejected`."""


LEFT_BEFORE = (Status.NOT_SELECTED, Status.NOT_ACCEPTED, Status.REFERENCE_BROKEN, Status.NOT_AUDITABLE)
"""Left before anything of the candidate ran."""


@dataclass(frozen=True)
class Checks:
    """What an audit runs on each row.

    Attributes:
        mode: `screen-first` gives the battery only to what the first screen does not fail, `both` runs everything
            on every row, `battery` runs no screen, `screen` nothing else.
        variants: rules of the screen, the one that filters first.
    """

    mode: str = "screen-first"
    variants: tuple[str, ...] = ("kernelbench-v0",)

    @property
    def screens(self) -> tuple[str, ...]:
        """Names of the screens that run."""
        return () if self.mode == "battery" else tuple(SCREEN + variant for variant in self.variants)

    @property
    def decisive(self) -> str:
        """Name of the check that decides a row."""
        return self.screens[0] if self.mode == "screen" else BATTERY

    def due(self, verdicts: Mapping[str, str]) -> list[str]:
        """Names of the checks that a row still needs, given the verdicts it has; the screens first."""
        screens = [name for name in self.screens if name not in verdicts]
        if self.mode == "screen" or BATTERY in verdicts:
            return screens
        if self.mode == "screen-first":
            if screens:
                return screens
            return [] if verdicts[self.screens[0]] == "fail" else [BATTERY]
        return [*screens, BATTERY]


@dataclass(frozen=True)
class Records:
    """Everything about one row, flat."""

    row: dict[str, Any]
    """One record of `rows`."""
    gates: list[dict[str, Any]] = field(default_factory=list)
    """One record of `gates` per gate."""
    findings: list[dict[str, Any]] = field(default_factory=list)
    """One record of `findings` per finding."""
    screens: list[dict[str, Any]] = field(default_factory=list)
    """One record of `screens` per variant."""


def records(kept: Kept, results: Mapping[str, tuple[dict[str, Any], float]], checks: Checks) -> Records:
    """The flat records of one row.

    Args:
        kept: the row.
        results: outcome and seconds of each check that ran, by name.
        checks: what the audit runs on each row.
    """
    battery = results.get(BATTERY)
    report = (battery[0].get("report") if battery else None) or {}
    status, note = _status(kept, results, checks)
    seconds = sum(taken for _, taken in results.values())
    row = {
        "id": kept.id, "position": kept.position, "task": kept.task, "task_key": kept.task_key,
        "op_class": kept.op_class or "unknown", "candidate_sha256": kept.candidate, "accepted": kept.accepted,
        "speedup": kept.speedup, "generator": kept.generator, "run": kept.run, "created": kept.created,
        "status": status.value, "note": note, "label": report.get("label"), "effort": report.get("tier"),
        "scope": report.get("scope"), "language": (report.get("candidate") or {}).get("language"),
        "seed": report.get("seed"), "gates_passed": (report.get("coverage") or {}).get("gates_passed"),
        "gates_undecided": (report.get("coverage") or {}).get("gates_undecided"),
        "tier": worst_tier(report), "no_output": bool(report) and no_output(report),
        "extra": kept.extra, "seconds": round(seconds, 3),
    }
    found = Records(row)
    for gate in report.get("gates", ()):
        found.gates.append({"id": kept.id, "gate": gate["id"], **{name: gate[name] for name in (
            "slug", "outcome", "reason", "blocking", "probes_planned", "probes_run", "probes_undecided", "findings",
            "note")}})
    for number, finding in enumerate(report.get("findings", ())):
        found.findings.append({"id": kept.id, "number": number, **{name: finding[name] for name in (
            "gate", "slug", "reason", "tier", "tolerance_free", "output", "expected", "actual", "error", "tolerance",
            "probe")}, "injected": finding["detail"].get("injected")})
    for name, (outcome, taken) in sorted(results.items()):
        if name.startswith(SCREEN):
            said = outcome.get("report") or {}
            found.screens.append({
                "id": kept.id, "variant": name.removeprefix(SCREEN), "outcome": said.get("outcome", "error"),
                "reason": said.get("reason"), "text": said.get("text") or outcome.get("problem"),
                "seconds": taken})
    return found


def verdict_of(outcome: Mapping[str, Any]) -> str:
    """The label of a report, the outcome of a screen, `problem`, or `lost` where our own side failed."""
    report = outcome.get("report")
    if report is None:
        return "problem" if outcome.get("at_fault") == "input" else "lost"
    return str(report["label"] if "label" in report else report["outcome"])


def worst_tier(report: Mapping[str, Any]) -> str | None:
    """The heaviest tier among a report's findings; None where it has none."""
    tiers = {finding["tier"] for finding in report.get("findings", ())}
    return next((tier for tier in ("wrong", "violation", "divergence") if tier in tiers), None)


def no_output(report: Mapping[str, Any]) -> bool:
    """True when the candidate failed before any gate could look at a result of it."""
    passed = {gate["slug"] for gate in report["gates"] if gate["outcome"] == "pass"}
    found = {finding["reason"] for finding in report["findings"]}
    return bool(found) and found <= set(FAULTS) and passed <= set(NEED_NO_OUTPUT)


def _status(kept: Kept, results: Mapping[str, tuple[dict[str, Any], float]],
            checks: Checks) -> tuple[Status, str | None]:
    if not kept.chosen:
        return (Status.NOT_ACCEPTED if kept.accepted is False else Status.NOT_SELECTED), None
    if kept.problem is not None:
        return _problem(kept.problem), kept.problem
    outcomes = {name: outcome for name, (outcome, _) in results.items()}
    decisive = outcomes.get(checks.decisive)
    if decisive is None:
        if checks.due({name: verdict_of(outcome) for name, outcome in outcomes.items()}):
            return Status.PENDING, None
        return Status.SCREENED_OUT, (outcomes[checks.screens[0]]["report"] or {}).get("reason")
    if decisive.get("report") is None:
        problem = str(decisive.get("problem"))
        return (Status.REFERENCE_BROKEN if decisive.get("at_fault") == "input" else Status.NOT_DECIDED), problem
    if checks.mode == "screen":
        said = decisive["report"]
        return (Status.DECIDED if said["outcome"] in ("pass", "fail") else Status.NOT_DECIDED), said.get("reason")
    return _of_report(decisive["report"])


REFERENCE_FAULT = "reference: "
"""Begins the problem of a row whose reference is at fault."""


def _problem(text: str) -> Status:
    return Status.REFERENCE_BROKEN if text.startswith(REFERENCE_FAULT) else Status.NOT_AUDITABLE


def _of_report(report: Mapping[str, Any]) -> tuple[Status, str | None]:
    if report["label"] == "screened":
        open_gates = Counter(g["reason"] for g in report["gates"]
                             if g["blocking"] and g["outcome"] in ("inconclusive", "error") and g["reason"])
        reason = open_gates.most_common(1)[0][0] if open_gates else None
        # only what keeps the candidate from running at all takes the row out of the funnel
        values = next((g["reason"] for g in report["gates"]
                       if g["slug"] == "values" and g["outcome"] == "inconclusive"), None)
        return {"toolchain": Status.TOOLCHAIN, "weights": Status.WEIGHTS}.get(str(values), Status.NOT_DECIDED), reason
    errors = [str(f["actual"]) for f in report["findings"]]
    if errors and no_output(report) and all(text.startswith(ARTEFACTS) for text in errors):
        return Status.TOOLCHAIN, errors[0][:200]
    return Status.DECIDED, None
