"""Errors of sums, which depend on their partial results.

The error of a sum is u·sqrt(Σ s_j²) over its partial sums s_j. The bound u·sqrt(n)·Σ|x| would be up to 200
times too loose on data of mixed sign. Legal orders differ, so the largest of three is taken: forward,
backward, and interleaved lanes that are added at the end.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch

from assay.oracle.replay import Replay, product_of

LANES = (4, 32)
"""Numbers of interleaved accumulators whose orders are considered."""
SAMPLE = 64
"""Terms looked at to see whether values repeat."""
GRAIN = 0.25
"""Resolution of that look, in units of u times the largest partial sum: closer values round alike."""
PIECE = 1 << 18
"""Terms whose partial sums are held at a time on a CPU, so that they stay in its cache."""
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
    rows = x.reshape(-1, n)
    step = rows.shape[0] if x.is_cuda else max(1, PIECE // n)
    if step >= rows.shape[0]:
        return _row_scales(rows, unit).reshape(x.shape[:-1])
    pieces = [_row_scales(rows[i : i + step], unit) for i in range(0, rows.shape[0], step)]
    return torch.cat(pieces).reshape(x.shape[:-1])


def _row_scales(x: torch.Tensor, unit: float) -> torch.Tensor:
    """Error scales of the sums of real rows (r, n), shape (r,)."""
    n = x.shape[-1]
    sums = x.cumsum(-1)
    total = sums[:, -1]
    level = total.square()
    squares = torch.linalg.vector_norm(sums, dim=-1).square()
    worst = squares - x[:, 0].square()
    # Partial sums from the right, of 2 to n terms: the total, and it minus what lies to the left of them. Their
    # squares are multiplied out; what that loses is small beside the total's own square, which `worst` has.
    backward = level
    if n > 2:
        before = sums[:, n - 2]
        left = sums.sum(-1) - total - before
        inner = squares - level - before.square()
        backward = backward + ((n - 2) * level - 2.0 * total * left + inner).clamp_(min=0.0)
    worst = torch.maximum(worst, backward)
    for lanes in LANES:
        if n >= 2 * lanes:
            worst = torch.maximum(worst, _lane_squares(x, lanes))
    scale = INDEPENDENT * worst.sqrt_()
    peak = torch.maximum(sums.amin(-1).neg_(), sums.amax(-1))
    correlated = repetition(x, GRAIN * unit * peak)
    if bool((correlated > 1.0).any()):
        right = (total.unsqueeze(-1) - sums[:, : n - 2]).abs_().sum(-1) + total.abs()
        size = torch.maximum(sums.abs().sum(-1), right)
        scale = torch.maximum(scale, torch.minimum(scale * correlated.sqrt(), CORRELATED * size))
    size = x.abs()
    # No partial sum from either end is larger than twice the peak.
    rows = (size.amin(-1) < 2.0 * unit * peak).nonzero().squeeze(-1)
    if rows.numel():
        scale[rows] += _lost(x[rows], size[rows], sums[rows], unit)
    return scale


def _lost(x: torch.Tensor, size: torch.Tensor, sums: torch.Tensor, unit: float) -> torch.Tensor:
    """Sums of the terms (r, n) that vanish beside a partial sum, in units of u; `size` is |x|."""
    after = sums[:, -1:] - sums[:, :-1]
    lost_left = (x[:, 1:] * (size[:, 1:] < unit * sums[:, :-1].abs())).sum(-1)
    lost_right = (x[:, :-1] * (size[:, :-1] < unit * after.abs())).sum(-1)
    # a term that is not finite was never smaller than anything, but is not zero times zero either
    both = torch.maximum(lost_left.abs(), lost_right.abs())
    return torch.nan_to_num(both, nan=0.0, posinf=0.0).div_(unit)


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
    levels = _ascending(torch.nan_to_num((sample / grain).round_(), nan=0.0, posinf=0.0, neginf=0.0))
    common = torch.ones(x.shape[:-1], dtype=torch.float64, device=x.device)
    run = 8
    while run <= size:
        again = (levels[..., run - 1 :] == levels[..., : size - run + 1]) & (levels[..., run - 1 :] != 0)
        if not bool(again.any()):
            break
        common = torch.where(again.any(-1), n * run / size, common)
        run *= 2
    return common


def _ascending(x: torch.Tensor) -> torch.Tensor:
    """`x` sorted along its last dimension; numpy's sort has no indices to carry and is ten times faster."""
    return x.sort(-1).values if x.is_cuda else torch.from_numpy(np.sort(x.numpy(), axis=-1))


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
