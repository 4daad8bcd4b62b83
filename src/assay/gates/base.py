"""What a gate is: a pure planner of probes and a pure judge of records."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from assay.contract import Contract
from assay.probe.model import Call, Draw, Probe
from assay.probe.record import Record
from assay.report.model import Finding
from assay.task.facts import Study
from assay.vocabulary import EffortTier, Reason, Tier


@dataclass(frozen=True)
class Context:
    """What a gate may know when it plans and judges.

    Attributes:
        study: what is known of the task.
        contract: the obligations.
        tier: how much may be spent.
        seed: seed of the whole plan.
        device: `cpu` (emulation) or `cuda`.
        language: language of the candidate.
        languages: every kernel language found in its source.
        defines_backward: whether the candidate's source defines a backward of its own.
        target: GPU that kernels are compiled for where the contract names none.
        device_bytes: memory of the GPU that probes run on; 0 without one.
        blocks: block constants found in the candidate's source, and in its launches once it was tried.
        sizes: overrides that values are probed at; empty for the native sizes.
        small: overrides for gates that need no particular size, cheap ones.
        call_seconds: time of one candidate call at `sizes`.
        configs: autotune configurations of each kernel seen.
        element_limit: elements, inputs and outputs together, that a probe should stay under.
        memory: bytes that a candidate may use; 0 where there is no limit to compare with.
        refused: by integer of the task, a length for which the device lacked the resources.
    """

    study: Study
    contract: Contract
    tier: EffortTier
    seed: int
    device: str
    language: str
    languages: tuple[str, ...] = ()
    defines_backward: bool = False
    target: str = "sm_90"
    device_bytes: int = 0
    blocks: tuple[int, ...] = ()
    sizes: dict[str, int] = field(default_factory=dict)
    small: dict[str, int] = field(default_factory=dict)
    call_seconds: float = 0.0
    configs: dict[str, int] = field(default_factory=dict)
    element_limit: int = 1 << 20
    memory: int = 0
    refused: dict[str, int] = field(default_factory=dict)

    def draw_seed(self, *names: object) -> int:
        """A seed for one draw, 31 bits, derived from the plan's seed and the names."""
        text = "/".join([str(self.seed), *map(str, names)])
        return int.from_bytes(hashlib.sha256(text.encode()).digest()[:4], "big") >> 1

    @property
    def quick(self) -> bool:
        """True for the quick tier."""
        return self.tier is EffortTier.QUICK

    @property
    def deep(self) -> bool:
        """True for the deep tier."""
        return self.tier is EffortTier.DEEP


@dataclass
class Verdict:
    """What one gate makes of the records.

    Attributes:
        findings: faults, most telling first.
        decided: probes that gave something to judge.
        undecided: why others did not.
        inapplicable: set when the gate does not apply, with the reason.
        note: one line for the report.
    """

    findings: list[Finding] = field(default_factory=list)
    decided: int = 0
    undecided: Counter[Reason] = field(default_factory=Counter)
    inapplicable: Reason | None = None
    note: str | None = None


class Gate(Protocol):
    """One obligation. Gates run nothing."""

    id: str
    slug: str
    obligation: str
    opt_in: bool

    @property
    def aliases(self) -> tuple[str, ...]:
        """Names that other batteries have for it."""
        ...

    def plan(self, ctx: Context) -> list[Probe]:
        """Probes this gate wants. Empty when it judges what others ran, or does not apply."""
        ...

    def judge(self, ctx: Context, records: Sequence[Record]) -> Verdict:
        """Findings from all records of the verification."""
        ...


def own(gate: Gate, records: Sequence[Record]) -> list[Record]:
    """The records of probes that this gate planned."""
    return [r for r in records if r.probe.gate == gate.slug]


def single(gate: Gate, name: str, draw: Draw, sizes: dict[str, int], *, dtype: str | None = None,
           conditions: tuple[str, ...] = (), parameters: int = 0, kind: str = "call", grad: bool = False) -> Probe:
    """A probe of one call."""
    return Probe(id=f"{gate.slug}/{name}", gate=gate.slug, kind=kind, sizes=sizes, dtype=dtype, draws=(draw,),
                 calls=(Call(),), conditions=conditions, parameters=parameters, grad=grad)


def undecided_reason(record: Record) -> Reason | None:
    """Why a record gives nothing to judge; None when it does or when the candidate is to blame."""
    for truth in record.truths:
        if truth.status == "raised":
            return Reason.REFERENCE_REJECTS
        if truth.status == "memory":
            return Reason.OUT_OF_MEMORY
        if truth.status == "inapplicable":
            return Reason.NOTHING_TO_VARY
        if truth.status == "failed":
            return Reason.INTERNAL
    status = record.observation.status
    known = {"memory": Reason.OUT_OF_MEMORY, "needs_gpu": Reason.NEEDS_GPU, "toolchain": Reason.TOOLCHAIN,
             "weights": Reason.WEIGHTS, "not_run": Reason.BUDGET, "unavailable": Reason.INTERNAL,
             "machine": Reason.MACHINE}
    return known.get(status)


SILENT = frozenset({Reason.REFERENCE_REJECTS, Reason.NOTHING_TO_VARY, Reason.REFERENCE_RANDOM})
"""Reasons for which a probe never was an obligation."""

NEED_ONE_RESULT = frozenset({
    "reduction_order", "order_sensitive", "dtypes", "accumulation", "nonfinite", "subnormals",
    "schedules", "batch_invariance",
})
"""Gates that compare with one right result; a random reference has none, only a distribution of them."""

FAULT_REASONS = {
    "raised": Reason.RAISED, "exited": Reason.EXITED, "signalled": Reason.SIGNALLED,
    "timed_out": Reason.TIMED_OUT, "closed": Reason.FORGED_FRAME, "forged": Reason.FORGED_FRAME,
    "flooded": Reason.OUTPUT_FLOOD, "guardian_lost": Reason.SIGNALLED,
}


def fault_finding(gate: Gate, record: Record, tier: Tier) -> Finding:
    """A finding for a candidate that did not answer."""
    seen = record.observation
    detail: dict[str, object] = {}
    if seen.error:
        actual = f"{seen.error['type']}: {seen.error['message'].splitlines()[0] if seen.error['message'] else ''}"
        detail = {k: v for k, v in seen.error.items() if v}
    else:
        actual = seen.status.replace("_", " ") + (f" ({seen.code})" if seen.code is not None else "")
        if seen.text:
            detail["printed"] = seen.text[-300:]
    return Finding(gate=gate.id, slug=gate.slug, reason=FAULT_REASONS[seen.status], tier=tier, tolerance_free=True,
                   expected="an output", actual=actual[:300], detail=detail, probe=record.probe.id)


def distinct(findings: list[Finding], limit: int = 6) -> list[Finding]:
    """At most `limit` findings, one per reason and output, the first of each."""
    kept: dict[tuple[Reason, str | None], Finding] = {}
    for finding in findings:
        kept.setdefault((finding.reason, finding.output), finding)
    return list(kept.values())[:limit]
