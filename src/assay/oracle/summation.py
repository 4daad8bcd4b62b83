"""Errors of sums, which depend on their partial results.

The error of a sum is u·sqrt(Σ s_j²) over its partial sums s_j. The bound u·sqrt(n)·Σ|x| would be up to 200
times too loose on data of mixed sign. Legal orders differ, so the largest of three is taken: forward,
backward, and interleaved lanes that are added at the end.
"""

from __future__ import annotations

import math
from typing import Any

import torch

from assay.oracle.replay import Replay, product_of

LANES = (4, 32)
"""Numbers of interleaved accumulators whose orders are considered."""
SAMPLE = 64
"""Terms looked at to see whether values repeat."""
GRAIN = 0.25
"""Resolution of that look, in units of u times the largest partial sum: closer values round alike."""
INDEPENDENT = 0.7
"""Deviation of one addition in units of u·|s_j|: 0.58 at most, and some room."""
CORRELATED = 0.3
"""Share of u·Σ|s_j|, the bound on any order's error, granted as a standard deviation where values repeat."""


def normal_dims(dim: Any, rank: int) -> list[int]:
    """Dimensions as sorted non-negative integers; None or an empty list means all."""
    if dim is None or (isinstance(dim, list | tuple) and len(dim) == 0):
        return list(range(rank))
    dims = [dim] if isinstance(dim, int) else list(dim)
    return sorted(d % rank for d in dims) if rank else []


def rows_of(x: torch.Tensor, dims: list[int]) -> torch.Tensor:
    """`x` with `dims` moved to the end and flattened: shape (*kept, n)."""
    if x.dim() == 0:
        return x.reshape(1)
    kept = [d for d in range(x.dim()) if d not in dims]
    moved = x.permute(*kept, *dims)
    return moved.reshape(*(x.shape[d] for d in kept), product_of(x.shape[d] for d in dims))


def partial_sums(x: torch.Tensor, unit: float) -> torch.Tensor:
    """Error scale of summing real or complex `x` (..., n) along its last dimension, in units of u.

    0.7·sqrt(Σ s_j²) in the worst of the orders, shape (...); the first partial sum is an element of x and
    exact. Two things break the assumption of independent roundings, and are added where they occur: repeated
    values, whose roundings all fall to one side, and terms too small to change the sum, which are lost with
    their sign.
    """
    if x.is_complex():
        return torch.hypot(partial_sums(x.real, unit), partial_sums(x.imag, unit))
    n = x.shape[-1]
    if n < 2:
        return x.new_zeros(x.shape[:-1])
    sums = x.cumsum(-1)
    total = sums[..., -1]
    later = sums[..., 1:]
    forward = torch.linalg.vector_norm(later, dim=-1).square()
    # Partial sums from the right, of 2 to n terms: the total, and it minus what lies to the left of them. Their
    # squares are multiplied out; what that loses is small beside the total's own square, which `forward` has.
    backward = total.square()
    if n > 2:
        left = sums[..., : n - 2]
        squares = torch.linalg.vector_norm(left, dim=-1).square()
        backward = backward + ((n - 2) * backward - 2.0 * total * left.sum(-1) + squares).clamp_(min=0.0)
    worst = torch.maximum(forward, backward)
    for lanes in LANES:
        if n >= 2 * lanes:
            worst = torch.maximum(worst, _lane_squares(x, lanes))
    scale = INDEPENDENT * worst.sqrt_()
    low, high = torch.aminmax(sums, dim=-1)
    peak = torch.maximum(low.neg_(), high)
    correlated = repetition(x, GRAIN * unit * peak)
    if bool((correlated > 1.0).any()):
        right = (total.unsqueeze(-1) - sums[..., : n - 2]).abs_().sum(-1) + total.abs()
        size = torch.maximum(sums.abs().sum(-1), right)
        scale = torch.maximum(scale, torch.minimum(scale * correlated.sqrt(), CORRELATED * size))
    limit = float(peak.amax()) if peak.numel() else 0.0
    if _has_tiny(x, 2.0 * unit * limit):
        lost_left = torch.where(x[..., 1:].abs() < unit * sums[..., :-1].abs(), x[..., 1:], 0.0).sum(-1)
        after = total.unsqueeze(-1) - sums[..., :-1]
        lost_right = torch.where(x[..., :-1].abs() < unit * after.abs(), x[..., :-1], 0.0).sum(-1)
        scale = scale + torch.maximum(lost_left.abs(), lost_right.abs()) / unit
    return scale


def _has_tiny(x: torch.Tensor, limit: float) -> bool:
    """Whether some element of `x` is not zero and of smaller size than `limit`."""
    size = x.abs()
    return bool(((size < limit) & (size > 0.0)).any())


def _lane_squares(x: torch.Tensor, lanes: int) -> torch.Tensor:
    """Σ s_j² where interleaved lanes are summed first and then each other."""
    n = x.shape[-1]
    length = math.ceil(n / lanes)
    padded = torch.nn.functional.pad(x, (0, length * lanes - n)) if length * lanes != n else x
    inner = padded.reshape(*x.shape[:-1], length, lanes).cumsum(-2)
    within = torch.linalg.vector_norm(inner[..., 1:, :].flatten(-2), dim=-1).square()
    squares: torch.Tensor = within + inner[..., -1, :].cumsum(-1)[..., 1:].square().sum(-1)
    return squares


def repetition(x: torch.Tensor, resolution: torch.Tensor) -> torch.Tensor:
    """How many of the terms (..., n) share their commonest value, judged at `resolution` (...) by a sample.

    1 unless a value comes eight times or more among 64 terms. Terms below the resolution do not count.
    Returns float64, shape (...).
    """
    n = x.shape[-1]
    step = max(1, n // SAMPLE)
    sample = x[..., ::step][..., :SAMPLE]
    size = sample.shape[-1]
    grain = torch.clamp(resolution, min=1e-300).unsqueeze(-1)
    levels = torch.nan_to_num((sample / grain).round(), nan=0.0, posinf=0.0, neginf=0.0).sort(-1).values
    common = torch.ones(x.shape[:-1], dtype=torch.float64, device=x.device)
    run = 8
    while run <= size:
        again = (levels[..., run - 1 :] == levels[..., : size - run + 1]) & (levels[..., run - 1 :] != 0)
        common = torch.where(again.any(-1), n * run / size, common)
        run *= 2
    return common


def grid_sum(replay: Replay, terms: torch.Tensor, dims: list[int]) -> bool:
    """Whether summing `terms` is exact in any order: small multiples of one power of two."""
    return small_integers(terms.abs().sum(dims) if dims else terms.abs(), terms, replay.unit)


def small_integers(total: torch.Tensor, terms: torch.Tensor, unit: float) -> bool:
    """Whether sums of `terms` bounded by `total` are exact at unit roundoff `unit` in any order."""
    largest = float(total.max()) if total.numel() else 0.0
    if largest == 0.0:
        return True
    if not math.isfinite(largest):
        return False
    step = grid_step(terms)
    return largest <= step / unit


def grid_step(x: torch.Tensor) -> float:
    """Largest power of two (down to 2^-24) of which all values of `x` are multiples; 0 if there is none."""
    step = 1.0
    values = x.abs()
    peak = float(values.max()) if x.numel() else 0.0
    if not math.isfinite(peak):
        return 0.0
    while step >= 2.0**-24:
        scaled = values / step
        if bool((scaled == scaled.round()).all()):
            return step
        step /= 2.0
    return 0.0
