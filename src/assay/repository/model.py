"""What a gate of a repository says."""

from __future__ import annotations

from collections import Counter
from typing import Any, Literal

from pydantic import Field

from assay.probe.model import Frozen
from assay.report.model import Report, canonical_json
from assay.repository.policy import Decision
from assay.screen import ScreenReport

GATE_VERSION: Literal[1] = 1


class Gated(Frozen):
    """One candidate of the repository."""

    name: str
    """Name of the pair: the candidate's path within the repository, without `.py`."""
    reference: str
    """Path of the reference within the repository."""
    candidate: str
    """Path of the candidate within the repository."""
    contract: str | None = None
    """Path of the contract; None for what the reference does."""
    release: bool = False
    """Whether it is about to be released."""
    battery: Literal["release", "sample", "screen", "none"] = "none"
    """Why it got the full battery: it is released, it was drawn, it did not pass the screen; or `none`."""
    decision: Decision
    """What becomes of it."""
    why: tuple[str, ...] = ()
    """Why it may not merge, in words."""
    waived: tuple[str, ...] = ()
    """Findings that a waiver of the policy lets pass."""
    screen: ScreenReport | None = None
    """What the screen says."""
    report: Report | None = None
    """The verdict, where there is one."""
    cached: tuple[Literal["screen", "report"], ...] = ()
    """Which of the two were taken from the store."""


class Root(Frozen):
    """One `assay.toml`, as it was followed."""

    path: str
    """Its folder, as it was named."""
    share: float
    """Share of the candidates that are not released and passed the screen which get the full battery."""
    sample_seed: str
    """Who is drawn follows from this text and the content of the pairs."""
    policy: dict[str, Any]
    """What may merge."""


class GateReport(Frozen):
    """The gate's answer for a repository."""

    schema_version: Literal[1] = GATE_VERSION
    """Version of this format."""
    roots: tuple[Root, ...]
    """Every `assay.toml` that was followed."""
    since: str | None = None
    """Revision since which changes were looked at; None for everything."""
    pairs: tuple[Gated, ...]
    """Every candidate, those looked at first, in the order of `assay.toml`."""
    notes: tuple[str, ...] = ()
    """What a reader should know, such as references without a candidate."""
    environment: dict[str, Any] = Field(default_factory=dict)
    """Machine and versions of this run."""

    @property
    def counts(self) -> Counter[Decision]:
        """Candidates by decision."""
        return Counter(pair.decision for pair in self.pairs)

    @property
    def status(self) -> int:
        """Exit status: 1 when one is blocked, else 2 on bad input, else 3 when one is undecided, else 0."""
        found = self.counts
        order = ((Decision.BLOCK, 1), (Decision.BAD_INPUT, 2), (Decision.UNDECIDED, 3))
        return next((status for decision, status in order if found[decision]), 0)

    def to_json(self) -> str:
        """Canonical JSON."""
        return canonical_json(self.model_dump(mode="json"))
