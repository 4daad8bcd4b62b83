"""What goes into a pool, and what comes out."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from assay.contract import Contract
from assay.report.model import Report
from assay.screen import ScreenReport, ScreenVariant
from assay.task import Candidate, Task
from assay.verify import Options


@dataclass(frozen=True)
class Job:
    """One verdict to make.

    Attributes:
        id: names the job within its pool; unique among the jobs that have not ended.
        task: the task; not one of live callables, which other processes do not have.
        candidate: the source under test.
        contract: the obligations; None for the defaults.
        options: how to verify. Without a seed of its own, the candidates of one task that one judge decides in
            a row share a hidden seed for a while, and so their truths.
        kind: `verify`, or `screen` for the cheap check alone.
        variant: rule of a screen.
        precision: precision of the `kernelbench` screen.
    """

    id: str
    task: Task
    candidate: Candidate
    contract: Contract | None = None
    options: Options = field(default_factory=Options)
    kind: Literal["verify", "screen"] = "verify"
    variant: ScreenVariant = ScreenVariant.KERNELBENCH_V0
    precision: str = "fp32"


@dataclass(frozen=True)
class Done:
    """How a job ended.

    Attributes:
        job: what was asked.
        report: the verdict, a ScreenReport for a screen; None where there is none.
        problem: why there is none: the task or an option is at fault, or the judge was lost. One line.
        at_fault: where the problem lies: `input` (the task, the contract or an option), `judge` (ours), or empty.
        seconds: from the start of the judging to its end.
        judge: number of the judge.
        tries: how often it was begun.
    """

    job: Job
    report: Report | ScreenReport | None = None
    problem: str | None = None
    at_fault: Literal["", "input", "judge"] = ""
    seconds: float = 0.0
    judge: int = 0
    tries: int = 1

    @property
    def verdict(self) -> Report:
        """The report of a verification. Raises ValueError where there is none."""
        if not isinstance(self.report, Report):
            raise ValueError(self.problem or f"job {self.job.id} was a screen")
        return self.report

    @property
    def screened(self) -> ScreenReport:
        """The report of a screen. Raises ValueError where there is none."""
        if not isinstance(self.report, ScreenReport):
            raise ValueError(self.problem or f"job {self.job.id} was a verification")
        return self.report
