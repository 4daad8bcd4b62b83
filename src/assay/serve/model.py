"""Requests and answers of the service."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from assay.contract.prompt import Redaction

Status = Literal["queued", "running", "done", "failed", "cancelled"]


class VerdictRequest(BaseModel):
    """What to decide."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    reference: str = Field(min_length=1)
    """Source of the reference: Model, get_inputs, get_init_inputs."""
    candidate: str = Field(min_length=1)
    """Source of the candidate: ModelNew."""
    entry: str = "Model"
    """Name of the reference's class."""
    contract: dict[str, Any] | None = None
    """The obligations as data; None for the defaults."""
    kind: Literal["verify", "screen"] = "verify"
    """The verdict, or the cheap check alone."""
    tier: Literal["quick", "standard", "deep"] = "quick"
    """Effort."""
    escalate: float = Field(default=0.0, ge=0.0, le=1.0)
    """Share of `quick` requests that are decided at `standard` all the same, drawn by their content."""
    fail_fast: bool = True
    """Stop at the first finding that rejects."""
    variant: str = "kernelbench-v0"
    """Rule of a screen."""
    timeout: float | None = Field(default=None, gt=0)
    """Seconds for the decision; more than the service allows is cut to that."""
    redaction: Redaction | None = None
    """How much is kept back; never less than for the tenant as a whole."""
    wait: float = Field(default=0.0, ge=0.0, le=300.0)
    """Seconds to wait for the answer before its id is returned alone."""


class Verdict(BaseModel):
    """Where a request stands."""

    id: str
    """Hash of what was asked; the same request has the same."""
    status: Status
    """`failed` means that there is no verdict: see `problem`."""
    kind: str = "verify"
    """What was asked for."""
    tier: str = "quick"
    """Effort it is or was decided at."""
    label: str | None = None
    """`contract`, `screened` or `rejected`; of a screen `pass`, `fail` or `inconclusive`."""
    scope: str | None = None
    """What the label holds on."""
    reward: float | None = None
    """What the verdict is worth, see docs/reward.md; None where it is worth nothing either way."""
    stage: str | None = None
    """Stage of the reward."""
    gates: dict[str, str] | None = None
    """Outcome of each gate; None where it is kept back."""
    feedback: str | None = None
    """The verdict as text for whoever wrote the kernel."""
    report: dict[str, Any] | None = None
    """The whole report, where nothing is kept back and it is asked for."""
    problem: str | None = None
    """Why there is no verdict."""
    at_fault: str | None = None
    """`input` for what was sent, `judge` for the service."""
    seconds: float | None = None
    """Time of the judging."""
    position: int | None = None
    """Requests before this one in the queue."""


class FarmRequest(BaseModel):
    """The request of kernel farms for reinforcement learning; what is not used is taken and left alone."""

    model_config = ConfigDict(extra="allow")

    reference_code: str = Field(min_length=1)
    kernel_code: str = Field(min_length=1)
    entry_point: str = "Model"
    task_id: str | None = None
    num_correct_trials: int = Field(default=5, ge=1, le=1000)
    """Up to 5 trials are decided at `quick`, more at `standard`."""
    timeout: float = Field(default=180.0, gt=0)
