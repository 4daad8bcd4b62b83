"""From a verdict to a number. Pure: runs nothing, and tells nothing of single probes."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from assay.report.model import Report
from assay.vocabulary import Label, Outcome, Reason

if TYPE_CHECKING:
    from assay.screen import ScreenReport

EMULATED = "cpu-emulation"
TAMPERING = frozenset({Reason.HARNESS_PATCHED, Reason.REFERENCE_SOUGHT, Reason.FORGED_FRAME})
"""Reasons that no honest kernel gives: no partial credit beside them."""
FAULTS = frozenset({Reason.RAISED, Reason.EXITED, Reason.SIGNALLED, Reason.TIMED_OUT, Reason.FORGED_FRAME,
                    Reason.OUTPUT_FLOOD, Reason.OUT_OF_MEMORY_CANDIDATE, Reason.COMPILE_FAILED})
"""Reasons for which there was no output."""
OURS = frozenset({Reason.INTERNAL, Reason.BUDGET, Reason.OUT_OF_MEMORY, Reason.MACHINE, Reason.EMULATION,
                  Reason.UNSTABLE_REFERENCE})
"""Why something was left undecided through no doing of the candidate, as the judge itself saw it."""


class Stage(StrEnum):
    """How far a completion came."""

    NO_CODE = "no_code"
    """No code block that defines the entry point."""
    NEVER_RAN = "never_ran"
    """Did not load, did not compile, or never returned an output."""
    TAMPERED = "tampered"
    """Replaced functions of the libraries, looked for the reference, or broke the channel."""
    REJECTED = "rejected"
    """Ran, and breaks the contract."""
    SCREENED = "screened"
    """Nothing wrong found, and a blocking gate undecided."""
    RIGHT = "right"
    """Label `contract`; no faster than the reference, or not timed."""
    FASTER = "faster"
    """Label `contract`, and faster."""
    UNDECIDED = "undecided"
    """Could not be decided through our own limits: neither reward nor punishment."""


@dataclass(frozen=True)
class Stages:
    """The numbers. Each bound is below the next, so that no stage pays more than a later one.

    Attributes:
        nothing: no code, never ran, tampered.
        rejected: least and most of a candidate that breaks the contract, by the share of gates that passed.
        screened: least and most of one with blocking gates undecided, by the same share.
        right: label `contract`, no faster or not timed.
        faster: label `contract` at a speedup of just over 1; the logarithm of the speedup comes on top.
        most: cap.
        graded: False pays the least of `rejected` for every rejection, and so tells nothing about gates.
    """

    nothing: float = 0.0
    rejected: tuple[float, float] = (0.05, 0.20)
    screened: tuple[float, float] = (0.05, 0.30)
    right: float = 0.5
    faster: float = 1.0
    most: float = 3.0
    graded: bool = True

    def __post_init__(self) -> None:
        low, high = self.rejected
        least, much = self.screened
        rising = (self.nothing <= low <= high < self.right < self.faster <= self.most and low <= least <= much
                  and much < self.right)
        if not rising:
            raise ValueError("stages have to rise: nothing <= rejected, rejected and screened < right < faster <= most")


@dataclass(frozen=True)
class Reward:
    """What one completion earns.

    Attributes:
        value: the number; None where nothing can be said through our own limits.
        stage: how far it came.
        gates_passed: blocking gates that passed.
        gates: blocking gates that applied.
        speedup: what was paid for; None where no speed was paid for.
    """

    value: float | None
    stage: Stage
    gates_passed: int = 0
    gates: int = 0
    speedup: float | None = None

    @property
    def decided(self) -> bool:
        """False where the value is None."""
        return self.value is not None


def reward_of(report: Report, *, speedup: float | None = None, stages: Stages | None = None) -> Reward:
    """What a verdict earns.

    Args:
        report: the verdict.
        speedup: time of the reference over time of the candidate, measured on checked outputs; better its lower
            confidence limit. It counts only beside the label `contract` in the scope of a GPU: under emulation
            there is no time to speak of.
        stages: the numbers; None for the defaults.

    Raises:
        ValueError: the speedup is no positive number.
    """
    if speedup is not None and not (math.isfinite(speedup) and speedup > 0):
        raise ValueError(f"a speedup of {speedup} is no ratio of times")
    stages = stages or Stages()
    blocking = [gate for gate in report.gates if gate.blocking and gate.outcome is not Outcome.NOT_APPLICABLE]
    passed, count = sum(gate.outcome is Outcome.PASS for gate in blocking), len(blocking)
    if report.label is Label.CONTRACT:
        if speedup is None or speedup <= 1 or report.scope == EMULATED:
            return Reward(stages.right, Stage.RIGHT, passed, count)
        paid = min(stages.most, stages.faster + math.log(speedup))
        return Reward(paid, Stage.FASTER, passed, count, speedup)
    if any(finding.reason in TAMPERING for finding in report.findings):
        return Reward(stages.nothing, Stage.TAMPERED, passed, count)
    share = passed / count if count else 0.0
    if report.label is Label.REJECTED:
        if never_ran(report):
            return Reward(stages.nothing, Stage.NEVER_RAN, passed, count)
        low, high = stages.rejected
        return Reward(low + (high - low) * share if stages.graded else low, Stage.REJECTED, passed, count)
    if _ours(report):
        return Reward(None, Stage.UNDECIDED, passed, count)
    low, high = stages.screened
    return Reward(low + (high - low) * share, Stage.SCREENED, passed, count)


def never_ran(report: Report) -> bool:
    """True when no output was ever seen: the gate that looks at the form of every output passed and failed nothing."""
    values = [finding for finding in report.findings if finding.slug == "values"]
    if not values or any(finding.reason not in FAULTS for finding in values):
        return False
    form = next((gate for gate in report.gates if gate.slug == "residency"), None)
    return form is None or form.probes_run == 0


def _ours(report: Report) -> bool:
    """Whether everything that is undecided is so through our own limits.

    A worker that says it needs a GPU or a tool is the candidate speaking: that is no reason for it to be spared. A
    kernel in CUDA C++ on a machine without a GPU is.
    """
    excused = OURS | {Reason.NEEDS_GPU, Reason.TOOLCHAIN} if (
        report.candidate.language == "cuda" and report.scope == EMULATED) else OURS
    undecided = [gate for gate in report.gates
                 if gate.blocking and gate.outcome in (Outcome.INCONCLUSIVE, Outcome.ERROR)]
    # label `screened` with nothing undecided: the contract asks for a GPU, and there is none here
    return all(gate.outcome is Outcome.ERROR or gate.reason in excused for gate in undecided)


def reward_of_screen(screen: ScreenReport, *, stages: Stages | None = None) -> Reward:
    """What the cheap check alone would earn: less than `contract` whatever it says.

    A candidate that passes the screen earns the most of `screened`, one that fails the least of `rejected`.
    """
    stages = stages or Stages()
    if screen.outcome is Outcome.PASS:
        return Reward(stages.screened[1], Stage.SCREENED)
    if screen.outcome is Outcome.FAIL:
        if screen.reason in FAULTS:
            return Reward(stages.nothing, Stage.NEVER_RAN)
        return Reward(stages.rejected[0], Stage.REJECTED)
    return Reward(None, Stage.UNDECIDED)
