"""Right kernels of many operators, as a task and a Triton kernel each: what mutants are made of, and controls."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from assay.contract import Contract
from assay.task import Candidate, Task, parse_candidate, parse_task

HERE = Path(__file__).parent / "kernels"
DTYPES = ("float32", "bfloat16", "float16")
"""Dtypes that an entry can be had at."""
_MARK = "DTYPE = torch.float32"

CONTRACTS: dict[str, dict[str, Any]] = {}
"""Entries that promise something else than the default contract."""


@dataclass(frozen=True)
class Entry:
    """A task with a right kernel.

    Attributes:
        name: operator, such as `layer_norm_affine`.
        dtype: dtype of its floating inputs.
        reference: source of the task.
        kernel: source of the kernel.
    """

    name: str
    dtype: str
    reference: str
    kernel: str

    @property
    def id(self) -> str:
        """Unique name: the operator, with the dtype where it is a half-precision one."""
        return self.name if self.dtype == "float32" else f"{self.name}@{self.dtype}"

    @property
    def task(self) -> Task:
        """The task."""
        return parse_task(self.reference, id=self.id)

    @property
    def candidate(self) -> Candidate:
        """The right kernel."""
        return self.candidate_from(self.kernel, self.id)

    def candidate_from(self, source: str, name: str) -> Candidate:
        """Another kernel for the task."""
        return parse_candidate(source, id=name, strict=False)

    @property
    def contract(self) -> Contract:
        """What the kernel promises."""
        return Contract.from_data(CONTRACTS.get(self.name, {}))


@functools.cache
def names() -> tuple[str, ...]:
    """Every operator of the corpus."""
    return tuple(sorted(path.parent.name for path in HERE.glob("*/kernel.py")))


@functools.cache
def entry(name: str, dtype: str = "float32") -> Entry:
    """One entry. Raises KeyError for an unknown name, or a dtype that it cannot be had at."""
    folder = HERE / name
    if name not in names():
        raise KeyError(name)
    texts = [(folder / file).read_text(encoding="utf-8") for file in ("reference.py", "kernel.py")]
    if dtype not in DTYPES or (dtype != "float32" and not has_dtypes(texts[0])):
        raise KeyError(f"{name} at {dtype}")
    reference, kernel = (text.replace(_MARK, f"DTYPE = torch.{dtype}") for text in texts)
    return Entry(name, dtype, reference, kernel)


def has_dtypes(reference: str) -> bool:
    """Whether a task makes floating inputs or weights, of a dtype that can be chosen."""
    return ".to(DTYPE)" in reference


def entries(dtypes: tuple[str, ...] = ("float32",)) -> list[Entry]:
    """Every entry at some dtypes."""
    found = []
    for name in names():
        for dtype in dtypes:
            if dtype == "float32" or has_dtypes(entry(name).reference):
                found.append(entry(name, dtype))
    return found
