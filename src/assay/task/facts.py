"""What a study finds: plain data about a task, which the judge and the contract read."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Literal

from pydantic import BaseModel, ConfigDict

from assay.probe.structure import Structure
from assay.task.axes import Axis
from assay.task.integers import Status

SizeKind = Literal["size", "count", "other"]
LeafKind = Literal["tensor", "bool", "int", "float", "complex", "str", "none", "other"]
Layout = Literal["contiguous", "channels_last", "expanded", "strided"]
Weakness = Literal["constant", "zero", "identity"]


class Fact(BaseModel):
    """A frozen record."""

    model_config = ConfigDict(frozen=True)


class Attempt(Fact):
    """One value of an integer that the reference was tried at."""

    value: int
    """The value."""
    accepted: bool
    """Whether the reference ran."""
    note: str = ""
    """Why it did not, or ``nonfinite`` where it gave NaN or infinities that it does not give natively."""


class TaskSize(Fact):
    """One integer of the task and what it does."""

    name: str
    """Its name in the file (see :class:`assay.task.integers.TaskInteger`)."""
    native: int
    """Its value in the file."""
    line: int
    """Its line."""
    status: Status
    """Whether it may vary at all."""
    kind: SizeKind = "other"
    """``size`` is an extent or the range of an input, or a proportional extent of a parameter or output of at
    least 8; ``count`` changes shapes otherwise (kernel sizes, strides, layer counts, small k); ``other``
    changes none."""
    moves: tuple[str, ...] = ()
    """What it moves, in words: ``input 0 dim 1``, ``parameter fc.weight dim 0``, ``output 0 dim 1``,
    ``init 2``, ``values of input 0``."""
    tied: tuple[str, ...] = ()
    """Other integers that must take the same value (the reference rejects them apart)."""
    minimum: int = 1
    """Smallest value known to be accepted, zero aside."""
    multiple_of: int = 1
    """Values accepted are multiples of this."""
    maximum: int | None = None
    """Native value, where larger ones were rejected; None where nothing says so."""
    zero: bool = False
    """Whether 0 is accepted."""
    tried: tuple[Attempt, ...] = ()
    """Every value tried, ascending."""
    why: str = ""
    """How its status was found."""

    @property
    def varies(self) -> bool:
        """Whether the reference takes other values and a candidate can see them."""
        return (
            self.status == "free"
            and self.native >= 0
            and any(attempt.accepted and attempt.value != self.native for attempt in self.tried)
        )


class InputLeaf(Fact):
    """One leaf of the inputs."""

    path: tuple[int | str, ...]
    """Position or keyword, then the way inside nested containers."""
    kind: LeafKind
    """Class of value."""
    position: int | None = None
    """Position among the tensor inputs; None for other values."""
    dtype: str = ""
    """Dtype of a tensor, such as ``float32``."""
    axes: tuple[Axis, ...] = ()
    """Its dimensions, by the integers that move them."""
    layout: Layout = "contiguous"
    """How the task lays it out."""
    requires_grad: bool = False
    """Whether the task asks for its gradient."""
    structure: Structure | None = None
    """Structure of a tensor's values."""
    value: bool | int | float | str | None = None
    """A plain value at the native sizes (complex and other values as text)."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Native shape."""
        return tuple(axis.extent for axis in self.axes)

    @property
    def label(self) -> str:
        """Shape by name, such as ``[BATCH, 2*D]``."""
        return "[" + ", ".join(axis.label for axis in self.axes) + "]"


class OutputLeaf(Fact):
    """One leaf of the outputs."""

    path: tuple[int | str, ...]
    """The way inside nested containers; empty for a bare tensor."""
    kind: LeafKind
    """Class of value."""
    dtype: str = ""
    """Dtype of a tensor."""
    axes: tuple[Axis, ...] = ()
    """Its dimensions."""
    layout: Layout = "contiguous"
    """How the reference lays it out."""
    requires_grad: bool = False
    """Whether it carries a gradient when grad mode is on."""
    shares: tuple[str, ...] = ()
    """What it shares storage with: ``input 0``, ``parameter weight``, ``output 1``."""
    nonfinite: bool = False
    """Whether the task's own inputs give NaN or infinities in it."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Native shape."""
        return tuple(axis.extent for axis in self.axes)


class ParameterFact(Fact):
    """A parameter or buffer of the reference."""

    name: str
    """Its name in ``named_parameters`` or ``named_buffers``."""
    dtype: str
    """Its dtype."""
    axes: tuple[Axis, ...]
    """Its dimensions."""
    requires_grad: bool
    """Whether it is trained."""
    buffer: bool = False
    """Whether it is a buffer."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Native shape."""
        return tuple(axis.extent for axis in self.axes)


class Cost(Fact):
    """What one native forward takes."""

    inputs: int
    """Elements of all inputs."""
    parameters: int
    """Elements of all parameters and buffers."""
    outputs: int
    """Elements of all outputs."""
    bytes: int
    """Bytes of the three together."""
    seconds: float | None = None
    """Time of one forward of the reference on this machine's CPU; None where it was too large to run."""


class Study(Fact):
    """What was learnt of a task by running it a few times."""

    task: str
    """Digest of the task."""
    integers: tuple[TaskSize, ...] = ()
    """Its integers."""
    inputs: tuple[InputLeaf, ...] = ()
    """Leaves of its inputs."""
    outputs: tuple[OutputLeaf, ...] = ()
    """Leaves of its outputs."""
    parameters: tuple[ParameterFact, ...] = ()
    """Parameters and buffers."""
    init_tensors: tuple[str, ...] = ()
    """Constructor arguments that are tensors, by path."""
    sizes: dict[str, int] = {}
    """Sizes the study ran at: empty for the native ones, else the reduced ones."""
    small: dict[str, int] = {}
    """Cheap sizes that the reference accepts; empty where the native ones are cheap."""
    beside: dict[str, int] = {}
    """Still smaller sizes, odd where they can be, that the reference accepts together: what the other sizes
    are while one is varied."""
    random: bool = False
    """Whether the output depends on the random generator's state (dropout in training)."""
    stateful: tuple[str, ...] = ()
    """Buffers and parameters that a forward changes; ``output`` where equal calls give different results."""
    training: bool = False
    """Training flag of the reference after construction."""
    mode_matters: bool = False
    """Whether a submodule behaves differently in training (dropout, batch norm)."""
    mutates: tuple[int, ...] = ()
    """Positions of the tensor inputs that the reference changes."""
    weak: tuple[Weakness, ...] = ()
    """Trivial functions that a check at 1e-2 would pass: a constant, zero, or the first input."""
    cost: Cost | None = None
    """Cost of the native forward; None where it could not be found."""
    raises: str | None = None
    """What the reference raises on its own native inputs; None where it runs."""
    notes: tuple[str, ...] = ()
    """What could not be found out, in words."""

    def tensor_inputs(self) -> tuple[InputLeaf, ...]:
        """Tensor leaves of the inputs, by position."""
        return tuple(leaf for leaf in self.inputs if leaf.position is not None)

    def native(self) -> dict[str, int]:
        """Native value of every integer."""
        return {integer.name: integer.native for integer in self.integers}

    def complete(self, sizes: Mapping[str, int]) -> dict[str, int]:
        """``sizes`` with the native value of every integer that they leave out."""
        return {**self.native(), **sizes}

    def elements(self, sizes: Mapping[str, int] | None = None) -> tuple[int, int, int]:
        """Elements of (inputs, parameters, outputs) at some sizes, as far as the axes say."""
        values = self.complete(sizes or {})
        inputs = sum(math.prod(axis.at(values) for axis in leaf.axes) for leaf in self.tensor_inputs())
        parameters = sum(math.prod(axis.at(values) for axis in leaf.axes) for leaf in self.parameters)
        tensors = [leaf for leaf in self.outputs if leaf.kind == "tensor"]
        outputs = sum(math.prod(axis.at(values) for axis in leaf.axes) for leaf in tensors)
        return inputs, parameters, outputs
