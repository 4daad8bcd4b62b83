"""The report: every gate's outcome, every finding, and what was covered."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import ConfigDict, Field, model_validator
from pydantic.dataclasses import dataclass

from assay.probe.model import Frozen, Probe
from assay.report.exhibit import ErrorMap, PrecisionFingerprint, SourceExcerpt, SpecialInput
from assay.vocabulary import Label, Outcome, Reason, Tier

REPORT_VERSION: Literal[2] = 2
"""Version 2 added what reports show: error maps, special inputs, source lines, precision, names as given."""


class Minimal(Frozen):
    """The smallest input found that shows a finding still."""

    probe: str
    """Id of the smaller probe."""
    output: str | None = None
    """Path of the output concerned."""
    index: tuple[int, ...] | None = None
    """Element of that output."""
    expected: str | None = None
    """Expected value or property there."""
    actual: str | None = None
    """What came instead."""
    error: float | None = None
    """Absolute error there."""
    tolerance: float | None = None
    """Tolerance there."""
    elements: int | None = None
    """Elements of its tensor inputs together."""
    complete: bool = True
    """False when time ran out before nothing smaller was left to try."""


class Finding(Frozen):
    """One fault, with the numbers that show it and the probe that replays it."""

    id: str = ""
    """Content hash under which a store keeps it and `assay replay` finds it; empty where nothing was kept."""
    gate: str
    """Id of the gate, such as `CMP-03`."""
    slug: str
    """Name of the gate, such as `shapes`."""
    reason: Reason
    """What is wrong, as a code."""
    tier: Tier
    """How it weighs."""
    tolerance_free: bool
    """True when no tolerance was needed to decide."""
    output: str | None = None
    """Path of the output concerned, such as `0` or `1.values`."""
    index: tuple[int, ...] | None = None
    """Element of that output."""
    expected: str | None = None
    """Expected value or property, as text that round-trips for numbers."""
    actual: str | None = None
    """What came instead."""
    error: float | None = None
    """Absolute error |actual - expected| in the unit of the output."""
    tolerance: float | None = None
    """Tolerance at that element, same unit."""
    detail: dict[str, Any] = Field(default_factory=dict)
    """Further measured facts, by name."""
    attested_by: Literal["judge", "worker"] = "judge"
    """`worker` when only the candidate's own process could observe the fact."""
    probe: str
    """Id of the probe that shows it."""
    error_map: ErrorMap | None = None
    """Where the output is wrong, for findings on values."""
    special_inputs: tuple[SpecialInput, ...] = ()
    """Inputs of the probe that hold values put in, or values that are not finite."""
    source: SourceExcerpt | None = None
    """The line of the candidate concerned, where it is known."""
    minimal: Minimal | None = None
    """The smallest input that shows it, where one was looked for."""

    def _repr_html_(self) -> str:
        """For notebooks."""
        from assay.report.notebook import finding_html

        return finding_html(self)


class GateResult(Frozen):
    """What one gate decided, and on how much."""

    id: str
    """Gate id, such as `CMP-01`."""
    slug: str
    """Gate name."""
    outcome: Outcome
    """What became of it."""
    reason: Reason | None = None
    """First finding's reason, or why it did not decide."""
    blocking: bool
    """Whether it can keep the label `contract` away."""
    probes_planned: int = 0
    """Probes planned for it."""
    probes_run: int = 0
    """Probes that gave it something to judge."""
    probes_undecided: int = 0
    """Probes that could not decide."""
    undecided: dict[str, int] = Field(default_factory=dict)
    """Undecided probes by reason."""
    note: str | None = None
    """One line on coverage or on why it does not apply."""
    findings: int = 0
    """Number of findings."""


class Coverage(Frozen):
    """Planned against run, over all gates."""

    probes_planned: int
    """Probes in the plan."""
    probes_run: int
    """Probes the candidate answered or failed on."""
    probes_undecided: int
    """Probes that decided nothing."""
    probes_replayed: int = 0
    """Probes that other candidates of the task failed before, tried beside the plan."""
    gates_passed: int
    """Gates with outcome `pass`."""
    gates_undecided: int
    """Blocking gates that could not decide."""
    gates_need_gpu: tuple[str, ...] = ()
    """Slugs of gates that this scope cannot decide."""
    unmodelled: tuple[str, ...] = ()
    """Operations of the reference that the oracle treats conservatively."""
    attested_by_worker: tuple[str, ...] = ()
    """Facts that only the candidate's process could observe."""
    closest: float | None = None
    """Largest error over its tolerance among comparisons that were right: how near to a finding; None without any."""


class Timing(Frozen):
    """Wall-clock seconds, left out of the deterministic part of a report."""

    total_s: float
    """From start to label."""
    start_s: float
    """Starting processes and importing libraries."""
    study_s: float
    """Studying the task."""
    oracle_s: float
    """Evaluating the reference."""
    candidate_s: float
    """Running the candidate."""
    load_s: float = 0.0
    """Of that: starting its processes and importing it there, which compiles what is not compiled at the first call."""
    context_s: float = 0.0
    """Of that: making contexts on the device, as its processes say."""
    compile_s: float = 0.0
    """Of that: compiling kernels and the host code that launches them, as its processes say."""
    judging_s: float = 0.0
    """Planning, and comparing what was observed with the truths."""
    device_state: dict[str, str] = Field(default_factory=dict)
    """Clocks and temperature of the GPU when the verdict began, as its driver says."""


class TaskInfo(Frozen):
    """The task a report is about."""

    id: str
    """Readable name."""
    format: str
    """Format it was loaded from."""
    sha256: str
    """Content hash of the reference source."""
    weak: tuple[str, ...] = ()
    """Functions that would pass without doing the work: `constant`, `zero`, `identity`."""


class Hint(Frozen):
    """What a static rule noticed in the source. Never part of a verdict."""

    rule: str
    """Name of the rule in `kernelguard`."""
    severity: str
    """Its severity: critical, high, medium or low."""
    evidence: str
    """What matched, in the rule's words."""


class Binary(Frozen):
    """A kernel of the candidate as the compiler made it for a target."""

    kernel: str
    """Name of the kernel."""
    target: str
    """Target, such as `sm_90`."""
    sha256: str
    """SHA-256 of the cubin, compiled without line information so that it does not name folders."""


class CandidateInfo(Frozen):
    """The candidate a report is about."""

    language: str
    """Detected language."""
    entry: str
    """Entry point."""
    sha256: str
    """Content hash of the source."""
    line: int | None = None
    """Line of the source at which the entry point is defined."""
    kernels: tuple[str, ...] = ()
    """Kernels seen launching."""
    weights: str | None = None
    """How parameters were matched with the reference's."""
    hints: tuple[Hint, ...] = ()
    """Static hits, where the extra `guard` is installed."""
    binaries: tuple[Binary, ...] = ()
    """Its kernels compiled, as launched at the native sizes; attested by the candidate's own process."""


@dataclass(frozen=True, config=ConfigDict(extra="forbid"))
class Names:
    """What a person called things when asking for the verdict, so that its commands can be copied.

    Attributes:
        reference: the reference as given.
        candidate: the candidate as given.
        options: further options of the command that a replay needs, such as `--contract FILE`.
        store: folder of the store that kept the verdict; empty for the default one, or where nothing was kept.
    """

    reference: str
    candidate: str
    options: tuple[str, ...] = ()
    store: str = ""


class Report(Frozen):
    """The verdict on one candidate, in one scope."""

    schema_version: Literal[2] = REPORT_VERSION
    """Version of this format; reports of version 1 can be read."""
    label: Label
    """The verdict."""
    scope: str
    """`cpu-emulation`, or the GPU it was decided on."""
    tier: str
    """Effort tier: quick, standard or deep."""
    task: TaskInfo
    """The task."""
    candidate: CandidateInfo
    """The candidate."""
    gates: tuple[GateResult, ...]
    """One per gate, in the order of the battery."""
    findings: tuple[Finding, ...]
    """Every finding, in the order of the battery."""
    probes: dict[str, Probe] = Field(default_factory=dict)
    """Probes named by findings, for replay."""
    coverage: Coverage
    """Planned against run."""
    contract: dict[str, Any]
    """The contract the verdict is about."""
    environment: dict[str, Any]
    """Machine and versions."""
    seed: int
    """Seed the probes were drawn from."""
    seed_commitment: str = ""
    """SHA-256 of `SEED:NONCE`, which was announced before the candidate first ran."""
    seed_nonce: str = ""
    """The nonce of that commitment; empty when the seed was given."""
    timing: Timing
    """Seconds spent."""
    precision: tuple[PrecisionFingerprint, ...] = ()
    """Which arithmetic explains the residuals on ordinary data."""
    names: Names | None = None
    """What the files were called, where the verdict was asked for by files."""

    @model_validator(mode="before")
    @classmethod
    def _from_version_1(cls, data: Any) -> Any:
        """Every field that version 2 added may be left out, so an older report is a newer one without them."""
        if isinstance(data, dict) and data.get("schema_version") == 1:
            return {**data, "schema_version": REPORT_VERSION}
        return data

    def _repr_html_(self) -> str:
        """For notebooks."""
        from assay.report.notebook import report_html

        return report_html(self)

    def raise_for_findings(self) -> None:
        """Raise AssayFailure when the label is `rejected`, with the findings in its text."""
        if self.label is Label.REJECTED:
            raise AssayFailure(self)

    @property
    def ok(self) -> bool:
        """True when the label is `contract`."""
        return self.label is Label.CONTRACT

    def to_json(self, *, timing: bool = True) -> str:
        """Canonical JSON; with `timing=False` the same bytes for the same seed and machine."""
        data = self.model_dump(mode="json", exclude=None if timing else {"timing"})
        return canonical_json(data)


class AssayFailure(AssertionError):
    """A candidate broke its contract; `.report` holds the verdict."""

    def __init__(self, report: Report, text: str = "") -> None:
        self.report = report
        lines = [
            f"{f.slug} ({f.reason.value}, {f.tier.value}) at {f.probe}: expected {f.expected}, got {f.actual}"
            for f in report.findings
        ]
        super().__init__(text or "the candidate breaks its contract:\n  " + "\n  ".join(lines))


def canonical_json(data: Any) -> str:
    """Sorted, indented JSON that ends in a newline."""
    import json

    return json.dumps(data, indent=2, sort_keys=True, ensure_ascii=False, allow_nan=False) + "\n"


UNDECIDED_OUTCOMES = (Outcome.INCONCLUSIVE, Outcome.ERROR)
