"""What one probe brought: the truth for its inputs, and what the candidate did. Nothing judged."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

import torch
from pydantic import BaseModel, ConfigDict, Field

from assay.probe.model import Probe

if TYPE_CHECKING:
    from assay.oracle import Arithmetic, LeafTruth, ModeTruth

Status = Literal[
    "ok", "raised", "exited", "signalled", "timed_out", "closed", "forged", "flooded", "guardian_lost",
    "memory", "needs_gpu", "toolchain", "weights", "unavailable", "machine", "not_run",
]

FAULTS: frozenset[str] = frozenset(
    {"raised", "exited", "signalled", "timed_out", "closed", "forged", "flooded", "guardian_lost"}
)
"""Statuses in which the candidate failed to answer through its own doing."""


@dataclass(frozen=True)
class Output:
    """One tensor that came back: contiguous values, and how it lay in its process."""

    path: str
    tensor: torch.Tensor
    dtype: str
    shape: tuple[int, ...]
    stride: tuple[int, ...]
    device: str
    contiguous: bool
    requires_grad: bool
    storage_ptr: int
    storage_bytes: int


@dataclass(frozen=True)
class Pass:
    """Gradients after one more backward pass over the same graph."""

    name: str
    inputs: tuple[torch.Tensor | None, ...]
    parameters: dict[str, torch.Tensor | None]


@dataclass(frozen=True)
class CallResult:
    """What one call returned.

    Attributes:
        structure: nesting of the output, scalars and kinds of sequence erased.
        scalars: plain numbers in the output, by path.
        outputs: the tensors, in order.
        seconds: wall-clock time of the call.
        input_grads: per tensor input, its gradient or None; None when no backward ran.
        parameter_grads: by the reference's parameter name.
        claims: per output tensor, whether it required grad.
        further: gradients of the backward passes after the first.
        wrote: passes that changed a grad_output (attested by the worker).
    """

    structure: Any
    scalars: dict[str, Any]
    outputs: tuple[Output, ...]
    seconds: float
    input_grads: tuple[torch.Tensor | None, ...] | None = None
    parameter_grads: dict[str, torch.Tensor | None] = field(default_factory=dict)
    claims: tuple[bool, ...] = ()
    further: tuple[Pass, ...] = ()
    wrote: tuple[str, ...] = ()


@dataclass(frozen=True)
class MemoryEvent:
    """A byte that changed although nobody may write there; see `assay.run.arena.MemoryFault`."""

    kind: str
    leaf: int
    count: int
    index: tuple[int, ...] | None
    distance: int
    before: str
    after: str


class Observation(BaseModel):
    """What the candidate did on one probe."""

    model_config = ConfigDict(frozen=True, arbitrary_types_allowed=True)

    probe: str
    """Id of the probe."""
    status: Status
    """How the exchange ended."""
    error: dict[str, Any] | None = None
    """Exception of the candidate: type, message, phase, place."""
    code: int | None = None
    """Exit status or signal number."""
    text: str = ""
    """End of what the process printed before it ended, or why the probe did not run."""
    left: int = 0
    """Processes left behind when the worker ended."""
    files: tuple[str, ...] = ()
    """Files and shared segments left outside the worker's own directory."""
    calls: tuple[CallResult, ...] = ()
    """Results of the calls that returned."""
    late: tuple[tuple[torch.Tensor, ...], ...] | None = None
    """Outputs of all calls but the last, read again after the last call."""
    memory: tuple[MemoryEvent, ...] = ()
    """Changes in input memory, found by the judge."""
    parameters_changed: tuple[str, ...] = ()
    """Parameters and buffers whose bits changed (attested by the worker)."""
    weights: str = "none"
    """How the weights were matched."""
    facts: dict[str, Any] = Field(default_factory=dict)
    """What the worker says of itself: patches, launches, access faults."""
    seconds: float = 0.0
    """Wall-clock time of the exchange."""

    @property
    def ran(self) -> bool:
        """True when every call returned."""
        return self.status == "ok"


@dataclass(frozen=True)
class Truth:
    """The reference on one draw.

    Attributes:
        status: `ok`, `raised` (the reference rejects these inputs), `memory`, `inapplicable`
            (the variation or layout says nothing here), `failed` (our own worker broke).
        text: the reference's error, or why it does not apply.
        tree: description of the inputs' nesting.
        inputs: tensor inputs, contiguous, in order.
        strides: their strides as the task makes them.
        structure: nesting of the output.
        scalars: plain numbers in the output, by path.
        numbers: float64 value and tolerance of those that are floating numbers, by path.
        paths: path of each output tensor.
        leaves: truth per output tensor.
        contiguous: per output tensor, whether the reference's was contiguous.
        random: True when the reference draws random numbers.
        unmodelled: operations that the oracle treats conservatively.
        ops: how often each operator occurred in the replay, decomposed ones included.
        arithmetic: the arithmetic that the tolerances grant.
        modes: what each coarser arithmetic would do, where the probe's condition `modes:1` asked for it.
        gradients: truth of the gradients, by `input:K` or parameter name, when asked for.
        cotangents: the grad_outputs used for them.
        backward_refused: backward steps that the reference itself cannot take, as `STEP/PASS`, or takes wrongly,
            as `wrong:STEP/PASS`.
        gradient_nan: by gradient, 1 where a NaN in place of the nonzero grad_outputs arrives in the reference's.
        requires_grad: per output tensor, whether the reference's carries a gradient when every input asks for one.
        work: operations by operator (`library`), and per output how many results of operators hold its very
            numbers (`equal`) or are it up to scale and offset (`affine`), where work is counted.
        reseeds: whether the reference seeds the random numbers anew when it is called.
        seconds: time of one native forward.
    """

    status: str
    text: str = ""
    tree: Any = None
    inputs: tuple[torch.Tensor, ...] = ()
    strides: tuple[tuple[int, ...], ...] = ()
    structure: Any = None
    scalars: dict[str, Any] = field(default_factory=dict)
    numbers: dict[str, tuple[float, float]] = field(default_factory=dict)
    paths: tuple[str, ...] = ()
    leaves: tuple[LeafTruth, ...] = ()
    contiguous: tuple[bool, ...] = ()
    random: bool = False
    unmodelled: tuple[str, ...] = ()
    ops: dict[str, int] = field(default_factory=dict)
    arithmetic: Arithmetic | None = None
    modes: tuple[ModeTruth, ...] = ()
    gradients: dict[str, LeafTruth] = field(default_factory=dict)
    cotangents: tuple[torch.Tensor, ...] = ()
    requires_grad: tuple[bool, ...] = ()
    backward_refused: tuple[str, ...] = ()
    gradient_nan: dict[str, torch.Tensor] = field(default_factory=dict)
    work: dict[str, Any] = field(default_factory=dict)
    reseeds: bool = False
    aliases: tuple[int, ...] = ()
    mutated: tuple[int, ...] = ()
    state_changes: bool = False
    seconds: float = 0.0

    @property
    def ok(self) -> bool:
        """True when there is something to compare with."""
        return self.status == "ok"


@dataclass(frozen=True)
class Record:
    """One probe with everything a gate may look at."""

    probe: Probe
    truths: tuple[Truth, ...]
    observation: Observation
    settled: str | None = None
    """Lower mode of operands in which the candidate computes, as another record of it has shown."""

    @property
    def comparable(self) -> bool:
        """True when the candidate answered and the reference did on every draw."""
        return self.observation.ran and all(t.ok for t in self.truths)

    def truth_of(self, call: int) -> Truth:
        """Truth of the draw that a call was fed."""
        return self.truths[self.probe.calls[call].draw]
