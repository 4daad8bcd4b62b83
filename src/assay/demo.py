"""The bundled examples, right and wrong: what the usual screen says of each, and what Assay says."""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from assay.errors import InputError
from assay.gates import GATES
from assay.report.model import Finding, Report
from assay.report.words import REASONS
from assay.run.process import Zygote
from assay.screen import ScreenReport, screen_task
from assay.verify import Options, load_pair, verify_task
from assay.vocabulary import Label, Outcome

SEED = 1


@dataclass(frozen=True)
class Case:
    """One kernel of one example, and what is expected of it.

    Attributes:
        task: name of the example's folder.
        title: what the task computes.
        reference: path of the reference.
        candidate: path of the kernel.
        fault: what is wrong with it; empty for a right one.
        gates: gates of which at least one reports it; empty for a right one.
        screen: what the usual screen says of it, `pass` or `fail`.
    """

    task: str
    title: str
    reference: Path
    candidate: Path
    fault: str = ""
    gates: tuple[str, ...] = ()
    screen: str = "pass"

    @property
    def right(self) -> bool:
        """True for a kernel that has to be accepted."""
        return not self.fault


@dataclass(frozen=True)
class Result:
    """What the screen and Assay said of one case."""

    case: Case
    screen: ScreenReport
    report: Report

    @property
    def pending(self) -> tuple[str, ...]:
        """Gates that would have to report the fault, when none of them exists in this version."""
        return self.case.gates if self.case.gates and not set(self.case.gates) & set(GATES) else ()

    @property
    def as_expected(self) -> bool:
        """Whether screen and label are what the example says; the fault of a pending gate may be missed."""
        if self.screen.passed is not (self.case.screen == "pass"):
            return False
        if self.case.right:
            return self.report.label is Label.CONTRACT
        rejected = self.report.label is Label.REJECTED
        return bool(self.pending) or (self.telling is not None and rejected)

    @property
    def telling(self) -> Finding | None:
        """The finding to show: the first by a gate that the example names."""
        findings = self.report.findings
        return next((f for slug in self.case.gates for f in findings if f.slug == slug), None)

    @property
    def why(self) -> str:
        """Gate and reason in a few words."""
        finding = self.telling or next(iter(self.report.findings), None)
        if finding is not None:
            probe = self.report.probes.get(finding.probe)
            sizes = ", ".join(f"{k}={v}" for k, v in sorted(probe.sizes.items())) if probe else ""
            return f"{finding.slug}: {REASONS[finding.reason]}{f' ({sizes})' if sizes else ''}"
        if self.pending:
            return f"seen by {' or '.join(self.pending)}, not in this version"
        undecided = (Outcome.INCONCLUSIVE, Outcome.ERROR)
        open_gates = [g.slug for g in self.report.gates if g.blocking and g.outcome in undecided]
        if open_gates:
            return f"undecided: {', '.join(open_gates)}"
        passed = sum(1 for g in self.report.gates if g.outcome is Outcome.PASS)
        return f"{passed} gates passed"


def load_cases(folder: Path) -> list[Case]:
    """Every kernel of every example. Raises InputError when there is none, or a broken description."""
    cases = []
    for path in sorted(folder.glob("*/example.toml")):
        try:
            data = tomllib.loads(path.read_text(encoding="utf-8"))
            task, home, title = path.parent.name, path.parent, data["title"]
            reference = home / "reference.py"
            cases.append(Case(task, title, reference, home / data["right"]))
            cases += [Case(task, title, reference, home / wrong["file"], wrong["fault"],
                           tuple(wrong["gates"]), wrong["screen"]) for wrong in data["wrong"]]
        except (KeyError, TypeError, tomllib.TOMLDecodeError) as error:
            raise InputError(f"not a description of an example: {error}", str(path),
                             "see examples/README.md") from None
    if not cases:
        raise InputError("no examples found", str(folder), "reinstall the package")
    return cases


def run_cases(cases: list[Case], zygote: Zygote, *, device: str = "auto",
              progress: Callable[[Case, str, int, int], None] | None = None) -> Iterator[Result]:
    """Screen and verify each case on one warm parent.

    Args:
        cases: what to run.
        zygote: the warm parent.
        device: `auto`, `cpu` or `cuda`.
        progress: called with (case, phase, done, total).

    Yields one result per case, in order.
    """
    for case in cases:
        def show(phase: str, done: int, total: int, case: Case = case) -> None:
            if progress is not None:
                progress(case, phase, done, total)

        task, candidate = load_pair(case.reference, case.candidate)
        show("screen", 0, 0)
        screened = screen_task(task, candidate, device=device, zygote=zygote)
        report = verify_task(task, candidate, options=Options(device=device, seed=SEED), zygote=zygote,
                             progress=show)
        yield Result(case, screened, report)
