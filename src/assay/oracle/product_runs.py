"""Perturbed runs of convolutions whose weights are exact: the convolution of their deviations, in float32.

It is linear in the image, so that a run is the exact result plus the convolution of that run's deviation. A deviation
needs few digits, and in float32 a convolution costs a fraction of what it does in float64.
"""

from __future__ import annotations

from collections.abc import Callable

import torch

from assay.oracle.arithmetic import UNIT
from assay.oracle.product_scale import ORDINARY, peak_of
from assay.oracle.truth import all_finite

PIECE = 1 << 16
"""Numbers that are converted at a time on a CPU."""
_SMALLEST = 2.0**-60
"""Size of a rounding error from which on its product's terms cannot vanish in float32."""


def by_deviations(
    stack: torch.Tensor,
    x: torch.Tensor,
    exact: torch.Tensor,
    out: torch.Tensor,
    product: Callable[[torch.Tensor, torch.Tensor], torch.Tensor],
) -> torch.Tensor | None:
    """Versions (k, *out.shape), float64, of `out` = product(x, exact) for the versions `stack` (k, *x.shape) of `x`.

    `product` takes deviations (k, *x.shape) and the exact operand, both float32, and gives (k, *out.shape). None
    where the operands are complex, not finite, or so large or small that float32 would not do.
    """
    if x.dtype != torch.float64 or exact.dtype != torch.float64:
        return None
    level = peak_of(x)
    if not (level * UNIT["fp32"] > _SMALLEST and level < ORDINARY[1] and ORDINARY[0] < peak_of(exact) < ORDINARY[1]):
        return None
    deviations = torch.empty(stack.shape, dtype=torch.float32, device=x.device)
    for narrow, version in zip(deviations, stack, strict=True):
        for part, left, right in zip(*(_pieces(t) for t in _flat(narrow, version, x)), strict=True):
            part.copy_(left - right)
    moved = product(deviations, exact.float())
    versions = torch.empty((stack.shape[0], *out.shape), dtype=torch.float64, device=out.device)
    finite = True
    for version, deviation in zip(versions, moved, strict=True):
        for part, left, right in zip(*(_pieces(t) for t in _flat(version, out, deviation)), strict=True):
            finite = finite and all_finite(right)
            torch.add(left, right.double(), out=part)
    return versions if finite else None


def _flat(*tensors: torch.Tensor) -> list[torch.Tensor]:
    """Tensors of one shape as vectors, if their layout allows it for all of them."""
    if all(t.is_contiguous() for t in tensors):
        return [t.view(-1) for t in tensors]
    return list(tensors)


def _pieces(t: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """A vector in pieces that stay in a processor's cache; anything else as it is."""
    return (t,) if t.is_cuda or t.dim() != 1 else torch.split(t, PIECE)
