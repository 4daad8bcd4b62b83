"""Nouns of a benchmark: what was timed, how fast, and what is wrong with the timing."""

from __future__ import annotations

import json
from enum import StrEnum
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, computed_field, model_validator

BENCH_VERSION: Literal[1] = 1

Standing = Literal["contract", "unverified"]


class Concern(StrEnum):
    """Why a time is no time of this kernel."""

    WRONG_OUTPUT = "wrong_output"
    """What a timed call returned is outside the tolerance of its input, seen after the batch."""
    LATE_OUTPUT = "late_output"
    """What a call returned was not there yet when it returned, on the stream that it returned on."""
    LAZY_OUTPUT = "lazy_output"
    """A timed call returned a tensor that computes when it is read."""
    CLOCK_DISAGREES = "clock_disagrees"
    """The judge's clock saw more time pass than the worker's events say."""
    WORK_LEFT_BEHIND = "work_left_behind"
    """Streams were still at work when the one that was called on had ended."""
    PATCHED = "patched"
    """The candidate's process replaced functions that tell time, wait, or are called for other reasons."""
    BACKGROUND = "background"
    """Threads of the candidate went on by themselves."""
    IMPOSSIBLE_SPEED = "impossible_speed"
    """Faster than this device moves the bytes or does the products that the task needs."""
    STOPPED = "stopped"
    """The candidate raised, died or hung while it was timed."""
    FORGED = "forged"
    """Its process answered what nobody asked, or nonsense."""


class Frozen(BaseModel):
    """A noun that never changes after it is made."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class BenchFinding(Frozen):
    """One reason for which the times do not count."""

    concern: Concern
    """The reason."""
    contender: str = "candidate"
    """Whose times."""
    round: int | None = None
    """Round in which it was seen first."""
    kind: str = ""
    """Kind of batch: `warm`, `cold` or `witness`."""
    count: int = 1
    """How often it was seen."""
    output: str | None = None
    """Path of the output."""
    expected: str | None = None
    """Value of the float64 reference there."""
    actual: str | None = None
    """Value returned there."""
    tolerance: float | None = None
    """Tolerance there."""
    detail: dict[str, Any] = Field(default_factory=dict)
    """Numbers and names that the reason rests on."""
    attested_by: Literal["judge", "worker"] = "judge"
    """Who says so."""


class Interval(Frozen):
    """A median with its bootstrap interval."""

    value: float
    """Median."""
    low: float
    """Lower limit."""
    high: float
    """Upper limit."""

    @property
    def spread(self) -> float:
        """Half the width of the interval over the median."""
        return (self.high - self.low) / 2 / self.value if self.value else 0.0


class Times(Frozen):
    """Times of one contender, in seconds per call."""

    name: str
    """`candidate`, `eager` or `compiled`."""
    cold: Interval
    """With the caches emptied before each call."""
    warm: Interval
    """Back to back."""
    cold_rounds: tuple[float, ...]
    """Per round, the trimmed mean of its calls."""
    warm_rounds: tuple[float, ...]
    """Per round, the mean of its calls."""
    judge_cold: float
    """Median over rounds of what the judge's clock says of a cold call."""
    judge_warm: float
    """The same of a warm call."""
    peak_bytes: int | None = None
    """Most device memory that a call takes at a time beyond inputs and weights (attested by the worker)."""


class Baseline(Frozen):
    """What a candidate was compared with."""

    name: str
    """`eager` or `compiled`."""
    speedup: Interval
    """Baseline over candidate, cold, paired by round."""
    speedup_warm: Interval
    """The same back to back."""


class Ceilings(Frozen):
    """What this device does at best, measured in the same run."""

    copy_bytes_per_s: float
    """Bytes read and written per second by a large copy, or read by a large sum where that is more."""
    flops: dict[str, float] = Field(default_factory=dict)
    """Operations per second of a large matrix product, by mode: `fp32`, `tf32`, `fp16`, `bf16`."""
    cache_bytes: int = 0
    """Size of the last cache, which may hold what is written."""


class SpeedOfLight(Frozen):
    """How near a time is to what the device allows."""

    read_bytes: int
    """Bytes of inputs and weights that the reference's graph reads, each counted once."""
    written_bytes: int
    """Bytes of the outputs."""
    flops: int
    """Operations of matrix products and convolutions in the reference's graph."""
    mode: str
    """Mode of the products: `fp32`, `tf32`, `fp16` or `bf16`."""
    bound_s: float
    """Seconds that the bytes or the operations take at the ceilings, whichever is more."""
    floor_s: float
    """Seconds below which a cold call cannot be: only what no other algorithm avoids, on the fastest unit."""
    share: float
    """`bound_s` over the candidate's cold time."""
    limited_by: Literal["memory", "products"]
    """Which of the two is more."""


class Steadiness(Frozen):
    """Whether the device stayed what it was."""

    drift: float
    """(largest - smallest) / median of a fixed kernel's time over the rounds."""
    before: dict[str, str] = Field(default_factory=dict)
    """Clocks, temperature and throttling as nvidia-smi tells them before."""
    after: dict[str, str] = Field(default_factory=dict)
    """The same after."""
    steady: bool = True
    """Whether the drift is within the limit."""


class BenchReport(Frozen):
    """A benchmark. `speedup` is there only where the times count."""

    bench_version: Literal[1] = BENCH_VERSION
    """Version of this format."""
    task: str
    """Name of the task."""
    task_sha256: str
    """Content hash of the task."""
    candidate_sha256: str
    """Content hash of the candidate."""
    standing: Standing
    """`contract`: a verdict says so; `unverified`: nobody asked for one."""
    verdict: dict[str, Any] = Field(default_factory=dict)
    """Label, scope, tier and origin of that verdict."""
    device: str
    """What it was timed on."""
    environment: dict[str, Any] = Field(default_factory=dict)
    """Versions and device."""
    sizes: dict[str, int] = Field(default_factory=dict)
    """Sizes other than the native ones."""
    tf32: bool = False
    """Whether the baselines multiply float32 in TF32, as the contract allows the candidate."""
    rounds: int
    """Rounds timed."""
    calls: int
    """Calls in each batch."""
    checked: int = 0
    """Outputs of calls in batches that were compared with the reference in float64."""
    times: tuple[Times, ...] = ()
    """Of every contender that could be timed."""
    baselines: tuple[Baseline, ...] = ()
    """Ratios to each baseline."""
    left_out: dict[str, str] = Field(default_factory=dict)
    """Baselines that could not be timed, and why."""
    findings: tuple[BenchFinding, ...] = ()
    """Reasons for which the candidate's times do not count."""
    speed_of_light: SpeedOfLight | None = None
    """Roofline of the task on this device."""
    ceilings: Ceilings | None = None
    """Ceilings that it rests on."""
    steadiness: Steadiness | None = None
    """Drift and clocks."""
    seed_commitment: str = ""
    """Commitment to the seed of the schedule, made before it ran."""
    seed: int = 0
    """That seed."""
    seed_nonce: str = ""
    """What the commitment was made with."""
    phases: dict[str, float] = Field(default_factory=dict)
    """Seconds of each part of the work."""
    seconds: float = 0.0
    """Seconds that all of it took."""

    @property
    def counts(self) -> bool:
        """Whether the times may be spoken of."""
        return not self.findings and bool(self.baselines)

    @model_validator(mode="before")
    @classmethod
    def _follows(cls, data: Any) -> Any:
        """What follows from the rest is worked out anew."""
        return {k: v for k, v in data.items() if k != "speedup"} if isinstance(data, dict) else data

    @computed_field  # type: ignore[prop-decorator]
    @property
    def speedup(self) -> Interval | None:
        """Over the fastest baseline, cold; None where the times do not count."""
        if not self.counts:
            return None
        return min((b.speedup for b in self.baselines), key=lambda ratio: ratio.value)

    def to_json(self) -> str:
        """JSON text of the report."""
        return json.dumps(self.model_dump(mode="json"), indent=2) + "\n"
