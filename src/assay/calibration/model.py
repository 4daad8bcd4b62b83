"""Nouns of the calibration: operators, controls and faults."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Callable, Mapping
from typing import Any, Literal

import torch

Half = Literal["calibration", "heldback"]
"""λ is chosen on one half of the controls and checked on the other."""

Maker = Callable[[str, torch.dtype], list[torch.Tensor]]
"""Inputs of one data kind at one dtype; the same arguments give the same bits."""

DTYPES: tuple[torch.dtype, ...] = (torch.float32, torch.bfloat16, torch.float16)
"""Dtypes that the calibration covers."""

SHORT: dict[torch.dtype, str] = {torch.float32: "fp32", torch.bfloat16: "bf16", torch.float16: "fp16"}
"""Names of those dtypes in tables."""


@dataclasses.dataclass(frozen=True)
class Operator:
    """One operator with honest ways to compute it."""

    name: str
    """Name in tables."""
    reference: Callable[..., Any]
    """What a task would give, written with torch, at any dtype."""
    inputs: Maker
    """Makes the arguments of the reference."""
    algorithms: Mapping[str, Callable[..., Any]]
    """Right implementations by name. They take the inputs widened to float32, hold every intermediate in
    float32, and return float32; the result is then rounded to the task's dtype, as a kernel stores it."""
    kinds: tuple[str, ...]
    """Data kinds that are in the operator's domain, see `assay.calibration.data`."""
    only: Mapping[str, tuple[torch.dtype, ...]] = dataclasses.field(default_factory=dict)
    """Dtypes of algorithms that are right at some of them only."""
    dtypes: tuple[torch.dtype, ...] = DTYPES
    """Dtypes at which torch runs the reference."""
    per_algorithm: Mapping[str, tuple[str, ...]] = dataclasses.field(default_factory=dict)
    """Data kinds of algorithms that are right on some of `kinds` only."""


@dataclasses.dataclass(frozen=True)
class Control:
    """A right implementation on one set of inputs: whatever the oracle holds against it is a false alarm."""

    operator: str
    """Name of the operator."""
    algorithm: str
    """How it is computed; `native` is the reference itself as torch runs it."""
    dtype: torch.dtype
    """Dtype of the task."""
    data: str
    """Data kind."""
    reference: Callable[..., Any]
    """The reference."""
    candidate: Callable[..., Any]
    """The right implementation: task-dtype inputs to task-dtype outputs."""
    make: Callable[[], list[torch.Tensor]]
    """Makes the inputs."""

    @property
    def name(self) -> str:
        """Identity of the control, stable over versions."""
        return f"{self.operator}/{self.algorithm}/{SHORT[self.dtype]}/{self.data}"

    @property
    def half(self) -> Half:
        """Which half it belongs to: a hash of its name, so that adding controls moves no other."""
        odd = hashlib.sha256(self.name.encode()).digest()[0] & 1
        return "heldback" if odd else "calibration"


@dataclasses.dataclass(frozen=True)
class Fault:
    """A wrong implementation that the oracle must hold against its author."""

    name: str
    """What is wrong."""
    kind: Literal["semantic", "precision"]
    """Another function, or the right function in coarser arithmetic than declared."""
    reference: Callable[..., Any]
    """The reference."""
    candidate: Callable[..., Any]
    """The wrong implementation, at the task's dtype."""
    make: Callable[[int], list[torch.Tensor]]
    """The task's own generator, by seed."""
    modes: tuple[str, ...] = ()
    """For precision faults, the modes of `assay.oracle.alternatives` that are a right attribution."""
