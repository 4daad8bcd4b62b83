"""What a mutant is: a right kernel with one fault, of a named kind."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from assay.mutants.source import Source


class FaultKind(StrEnum):
    """What a fault breaks."""

    SEMANTIC = "semantic"
    """Computes something else."""
    PRECISION = "precision"
    """Computes the same, in less precision than the task declares."""
    MEMORY = "memory"
    """Reads, writes or shares memory that it must not."""
    STATE = "state"
    """Depends on earlier calls, or draws at random."""
    EXCEPTIONAL = "exceptional"
    """Wrong where NaN or infinity come in."""
    GRADIENT = "gradient"
    """Right forward, wrong backward."""
    RESOURCE = "resource"
    """Does not fit on the device, or does not end."""


@dataclass(frozen=True)
class Edit:
    """One change of a source text.

    Attributes:
        spans: (start, end, text): characters [start, end) are replaced by text; disjoint.
        note: what changed, in a few words.
    """

    spans: tuple[tuple[int, int, str], ...]
    note: str

    @property
    def start(self) -> int:
        """Position of the first change."""
        return min(start for start, _, _ in self.spans)


@dataclass(frozen=True)
class Operator:
    """A way to break a kernel.

    Attributes:
        name: unique name.
        kind: what it breaks; faults in a backward pass are of the kind `gradient` whatever the operator.
        about: one line on the fault.
        find: every place where it applies.
    """

    name: str
    kind: FaultKind
    about: str
    find: Callable[[Source], Iterator[Edit]]


@dataclass(frozen=True)
class Mutant:
    """A kernel with one fault.

    Attributes:
        subject: name of the right kernel it was made of.
        operator: name of the operator.
        kind: what it breaks.
        number: which of the operator's places in that kernel.
        line: line of the first change, in the right kernel.
        note: what changed.
        source: text of the mutant.
    """

    subject: str
    operator: str
    kind: FaultKind
    number: int
    line: int
    note: str
    source: str

    @property
    def id(self) -> str:
        """Unique name: subject, operator, number."""
        return f"{self.subject}/{self.operator}/{self.number}"

    @property
    def digest(self) -> str:
        """Hash of the text."""
        return hashlib.sha256(self.source.encode()).hexdigest()[:16]
