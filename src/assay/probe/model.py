"""A probe: one concrete experiment, described so that it replays to the same bits."""

from __future__ import annotations

import hashlib
import json
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field


class Frozen(BaseModel):
    """A noun that never changes after it is made."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Injection(Frozen):
    """One exceptional value put into one element of one input."""

    leaf: int
    """Position of the input among the tensor inputs."""
    position: float
    """Place in the flattened input as a fraction of its element count, 0 to 1."""
    value: Literal["nan", "inf", "-inf", "subnormal", "-subnormal", "zero", "tiny", "-tiny", "max", "-max"]
    """What is put there; `subnormal` is a quarter of the smallest normal number, `tiny` 2^16 times it,
    four times in float16."""


class Explicit(Frozen):
    """One input written down: a value throughout, and others in some places."""

    leaf: int
    """Position of the input among the tensor inputs."""
    fill: float
    """The value of every element that is not among `places`."""
    places: tuple[int, ...] = ()
    """Flat positions, ascending."""
    values: tuple[float, ...] = ()
    """The value at each of them."""


class Draw(Frozen):
    """One set of inputs, made from the task's own generator."""

    seed: int
    """Seed set before the task's `get_inputs`."""
    variant: str = "task"
    """`task` for the generator as it is, else the name of a structure-preserving variation."""
    leaves: tuple[int, ...] | None = None
    """Tensor inputs the variation applies to; None means all of them."""
    literals: tuple[Explicit, ...] = ()
    """Inputs that are written down instead of generated."""
    injections: tuple[Injection, ...] = ()
    """Exceptional values put in afterwards."""
    parameters: int | None = None
    """Seed of the parameters that this draw is computed with; None takes the probe's."""
    rows: tuple[int, int] | None = None
    """First and last but one row that are fed, of the inputs in `batched`; None feeds all."""
    batched: tuple[int, ...] = ()
    """Tensor inputs whose first dimension is the batch."""
    layouts: tuple[str, ...] = ()
    """Layout of each tensor input, by position; empty means as the task makes them."""


class Call(Frozen):
    """One call of the candidate within a probe."""

    draw: int = 0
    """Which of the probe's draws is fed."""
    storage: Literal["fresh", "same", "overwrite", "reused"] = "fresh"
    """`fresh` puts the inputs at new addresses, `same` passes the previous call's very tensors again,
    `overwrite` writes the new values into the previous call's tensors, `reused` passes new tensors that lie where
    the previous call's lay."""
    instance: int = 0
    """Which instance of the candidate is called; each is built when first asked for."""


class Probe(Frozen):
    """One experiment: inputs, calls and conditions."""

    id: str
    """Readable and unique within a plan, such as `shapes/COLS=200`."""
    gate: str
    """Slug of the gate that planned it."""
    kind: str = "call"
    """What the planning gate wants it judged as, such as `repeat` or `alias`."""
    sizes: dict[str, int] = Field(default_factory=dict)
    """Overrides of the task's module-level integers; empty means the native sizes."""
    dtype: str | None = None
    """Dtype that floating inputs and parameters are cast to; None leaves the task's own."""
    draws: tuple[Draw, ...]
    """The sets of inputs."""
    calls: tuple[Call, ...] = (Call(),)
    """The calls, in order."""
    parameters: int = 0
    """0 for parameters as constructed, else the seed they are varied with (same shapes, other values)."""
    grad: bool = False
    """Whether a backward pass follows each call."""
    conditions: tuple[str, ...] = ()
    """Conditions of the run, such as `config:2` (autotune configuration) or `poison:ff`."""

    def digest(self) -> str:
        """Content hash, 16 hexadecimal digits, independent of `id`."""
        data = self.model_dump(mode="json", exclude={"id"})
        return hashlib.sha256(json.dumps(data, sort_keys=True).encode()).hexdigest()[:16]
