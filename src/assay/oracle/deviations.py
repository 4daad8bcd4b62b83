"""Deviations of perturbed runs from the exact one, added up leaf by leaf."""

from __future__ import annotations

import dataclasses
from typing import Any

import torch

from assay.oracle.arithmetic import is_real_or_complex
from assay.oracle.truth import all_finite, classes

PIECE = 1 << 15
"""Numbers of a result whose deviations are added up while they stay in a processor's cache."""


@dataclasses.dataclass
class Deviation:
    """Squared deviations of one leaf over the perturbed runs."""

    square: torch.Tensor
    changed: torch.Tensor
    runs: int = 0
    sizes: list[torch.Tensor] = dataclasses.field(default_factory=list)
    """Absolute deviations run by run, kept only where results may jump."""

    @property
    def spread(self) -> torch.Tensor:
        """Root mean square over the runs, shape of `square`."""
        return (self.square / max(1, self.runs)).sqrt()


def as_tensor(value: Any) -> torch.Tensor | None:
    """A leaf as a dense tensor, Python numbers included; None for what is neither."""
    if isinstance(value, torch.Tensor):
        return value if value.layout == torch.strided else value.to_dense()
    if isinstance(value, bool | int | float | complex):
        return torch.tensor(value, dtype=torch.float64 if isinstance(value, float) else None)
    return None


def no_deviation(value: Any) -> Deviation | None:
    """Zero deviation of a leaf over no runs; None for what is no tensor and no number."""
    tensor = as_tensor(value)
    if tensor is None:
        return None
    shape = (*tensor.shape, 2) if tensor.is_complex() else tuple(tensor.shape)
    zeros = torch.zeros(shape, dtype=torch.float64, device=tensor.device)
    return Deviation(zeros, torch.zeros(shape, dtype=torch.bool, device=tensor.device))


def add_runs(
    total: Deviation, value: Any, versions: torch.Tensor | None, count: int, gain: float, keep: bool
) -> None:
    """Add `count` runs of a leaf, (count, *shape), to its deviation; no `versions` if all equal the exact `value`.

    Deviations are divided by `gain`; `keep` keeps their sizes run by run.
    """
    total.runs += count
    if versions is None:
        return
    exact = as_tensor(value)
    assert exact is not None
    if not is_real_or_complex(exact.dtype):
        total.changed |= (versions != exact).any(0)
        return
    if exact.is_complex():
        versions, exact = (
            torch.view_as_real(versions.resolve_conj()),
            torch.view_as_real(exact.resolve_conj()),
        )
    square = _squares(versions, exact)
    if not all_finite(square):
        total.changed |= (classes(versions) != classes(exact)).any(0)
        finite = torch.nan_to_num(versions - exact, nan=0.0, posinf=0.0, neginf=0.0)
        square = finite.square().sum(0)
    total.square += square / gain**2
    if keep:
        sizes = torch.nan_to_num(versions - exact, nan=0.0, posinf=0.0, neginf=0.0)
        total.sizes.append(sizes.abs() / gain)


def add_expected(total: Deviation, deviation: torch.Tensor, count: int, gain: float) -> None:
    """Add `count` runs of a leaf whose elements have the standard deviations `deviation` over any runs."""
    total.runs += count
    total.square.addcmul_(deviation, deviation, value=count / gain**2)


def _squares(versions: torch.Tensor, exact: torch.Tensor) -> torch.Tensor:
    """Sum over the runs of the squared deviations, shape of `exact`.

    Run by run, and large results piece by piece: a temporary as large as the stack, or as one run, would cost
    more than the arithmetic.
    """
    square = torch.zeros_like(exact, memory_format=torch.contiguous_format)
    n = exact.numel()
    if n <= PIECE or not (exact.is_contiguous() and versions.is_contiguous()):
        for version in versions:
            deviation = version - exact
            square.addcmul_(deviation, deviation)
        return square
    flat, rows, sums = exact.view(-1), versions.view(versions.shape[0], n), square.view(-1)
    scratch = torch.empty(PIECE, dtype=exact.dtype, device=exact.device)
    for lo in range(0, n, PIECE):
        hi = min(n, lo + PIECE)
        deviation, piece, part = scratch[: hi - lo], flat[lo:hi], sums[lo:hi]
        for row in rows:
            torch.sub(row[lo:hi], piece, out=deviation)
            part.addcmul_(deviation, deviation)
    return square
