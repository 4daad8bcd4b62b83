"""Nouns of the evidence: what is kept of a verdict and of a finding."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from pydantic import Field

from assay.contract import Contract
from assay.probe.model import Frozen, Probe
from assay.report.model import Finding, Report
from assay.task import Candidate, Task


class Bundle(Frozen):
    """The probes that show one finding together, with all that makes them replay to the same bits."""

    gate: str
    """Slug of the gate that judges them."""
    reason: str
    """Reason that it gives."""
    output: str | None = None
    """Output that the finding is about."""
    probes: tuple[Probe, ...]
    """The probe of the finding, and those it is judged with (a control, the other half of a pair), as planned."""
    main: int = 0
    """Which of them is the probe of the finding."""
    seed: int
    """Seed of the plan that they came from, which the seeds of their calls derive from."""
    inputs: dict[str, tuple[str, ...]] = Field(default_factory=dict)
    """By probe, SHA-256 of the tensor inputs of each of its draws."""

    @property
    def probe(self) -> Probe:
        """The probe that the finding names."""
        return self.probes[self.main]


@dataclass(frozen=True)
class Captured:
    """Tensors of one finding.

    Attributes:
        tensors: `input.DRAW.LEAF`, and per call and output `expected.CALL.OUTPUT` (float64, or exact integers),
            `native.CALL.OUTPUT`, `tolerance.CALL.OUTPUT` (float64), `actual.CALL.OUTPUT`; of a finding on
            gradients `gradient.expected.NAME` and so on. Contiguous, on the CPU.
        note: what was left out and why; empty when nothing was.
    """

    tensors: Mapping[str, torch.Tensor]
    note: str = ""


@dataclass(frozen=True)
class Evidence:
    """What a verification knows beyond its report.

    Attributes:
        context: what the gates judged with, as JSON data (see `assay.evidence.context`).
        bundles: by id of the finding, what replays it.
        captured: by id of the finding, its tensors.
    """

    context: Mapping[str, Any] = field(default_factory=dict)
    bundles: Mapping[str, Bundle] = field(default_factory=dict)
    captured: Mapping[str, Captured] = field(default_factory=dict)


class VerdictSummary(Frozen):
    """One verdict in a list."""

    id: str
    """Name of the verdict."""
    created: str
    """When it was kept, UTC, ISO 8601."""
    task: str
    """Readable name of the task."""
    candidate: str
    """Readable name of the candidate."""
    label: str
    """The label."""
    scope: str
    """Where it was decided."""
    tier: str
    """Effort tier."""
    seed: int
    """Seed of its probes."""
    findings: int
    """Number of findings."""


@dataclass(frozen=True)
class VerdictRecord:
    """One verdict with everything that it was about."""

    id: str
    created: str
    report: Report
    task: Task
    candidate: Candidate
    contract: Contract
    context: dict[str, Any]


@dataclass(frozen=True)
class FindingRecord:
    """One finding as it is kept.

    Attributes:
        id: its name.
        verdict: id of the verdict that it is part of.
        created: when that was kept, UTC, ISO 8601.
        finding: the finding.
        bundle: what replays it; None where only the report was kept.
        inputs_kept: whether its tensors are in the store.
        note: what was left out and why.
        minimal: the smallest bundle that still shows it, where one was looked for.
    """

    id: str
    verdict: str
    created: str
    finding: Finding
    bundle: Bundle | None
    inputs_kept: bool
    note: str = ""
    minimal: Bundle | None = None
