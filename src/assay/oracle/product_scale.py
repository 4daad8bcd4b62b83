"""Rounding errors of sums of products: the partial sums along the inner dimension, followed in sixteen chunks.

The parts that the chunks contribute are summed from the front, and what is known of the partial sums s_j is their
values r_1 .. r_C at the ends of C chunks of L terms. Between two ends a sum is taken to stay below the larger of
them in size, and to wander as a sum of L independent terms does, which adds L/2 · Σ a²b² in all. The larger square
of two neighbours exceeds their mean by a factor of 1 + 1/sqrt(C) in the mean over the steps of a random walk, and
means need no comparison: from the back the partial sums are the total minus those from the front, so that the sums
of r and of r² serve for both directions.

An error scale needs few digits. Real operands of ordinary size are therefore multiplied in float32, tile by tile so
that the parts of a tile stay in a processor's cache; where float32 would overflow or lose terms, the same is done
in float64.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator

import torch

from assay.oracle.summation import CORRELATED

CHUNKS = 16
"""Pieces of the inner dimension whose partial sums are followed."""
LANES = 4
"""Interleaved accumulators whose order is considered."""
TILE = 1 << 15
"""Elements of a result whose parts are held at a time on a CPU."""
TILE_GPU = 1 << 22
"""The same on a GPU, where a launch costs more than a pass over memory."""
COLUMNS = 1 << 10
"""Columns of a tile."""
Convolve = Callable[[torch.Tensor, torch.Tensor, int], torch.Tensor]
"""Convolution of an image with weights in so many groups."""
ORDINARY = (2.0**-30, 2.0**30)
"""Largest operands that are not scaled before they are narrowed to float32."""
UNDERFLOW = 2.0**-100
"""Squared scales below this, in float32, may lack terms that were lost."""


def chunk_length(inner: int, per_index: int = 1) -> int:
    """Inner indices in a chunk, each of which stands for `per_index` terms: sixteen terms at least."""
    length = max(1, math.ceil(inner / CHUNKS))
    return min(inner, math.ceil(CHUNKS / per_index)) if length * per_index < CHUNKS else length


def square(x: torch.Tensor) -> torch.Tensor:
    """|x|², real."""
    return x.abs().square() if x.is_complex() else x.square()


def partial_squares(
    parts: torch.Tensor, dim: int, terms: int, repeated: bool
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Σ s_j² over partial sums of `parts` along `dim`, and with `repeated` Σ|s_j|; `terms` terms in a part.

    Overwrites `parts`. The larger of both directions; shape of one part, real.
    """
    pieces = parts.unbind(dim)
    for before, after in itertools.pairwise(pieces):
        after.add_(before)
    total = pieces[-1].clone()
    level = square(total)
    sums = parts.sum(dim)
    size = None
    if repeated:
        sizes = parts.abs()
        later = torch.maximum(sizes.narrow(dim, 0, len(pieces) - 1), sizes.narrow(dim, 1, len(pieces) - 1))
        size = later.sum(dim).add_(sizes.select(dim, 0)).mul_(terms)
    squares = square(parts).sum(dim) if parts.is_complex() else parts.square_().sum(dim)
    # Σ |total − r|² from r = 0 on, multiplied out; what cancels there is small beside the total's own square.
    cross = (total.conj() * sums).real if parts.is_complex() else total * sums
    back = squares - 2.0 * cross + len(pieces) * level
    worst = torch.maximum(squares, back + level) - 0.5 * level
    return worst.clamp_(min=0.0).mul_(terms * (1.0 + 1.0 / math.sqrt(len(pieces)))), size


def error_scale(worst: torch.Tensor, walk: torch.Tensor, size: torch.Tensor | None) -> torch.Tensor:
    """Scale from Σ s_j² at the ends of chunks, of the walk between them, and from Σ|s_j| where values repeat."""
    scale = worst.add_(walk).sqrt_()
    return scale if size is None else torch.maximum(scale, CORRELATED * size)


class Lost(ArithmeticError):
    """float32 cannot hold the squares of some terms."""


def with_narrow(
    a: torch.Tensor, b: torch.Tensor, scale: Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
) -> torch.Tensor:
    """`scale(a, b)`, homogeneous in both wide operands, in float32 where that loses nothing; float64.

    `scale` raises `Lost` where terms may have vanished.
    """
    if a.is_complex() or b.is_complex():
        return scale(a.to(torch.complex128), b.to(torch.complex128))
    peaks = [_peak(t) for t in (a, b)]
    if all(math.isfinite(p) and p > 0.0 for p in peaks):
        exponents = [0 if ORDINARY[0] < p < ORDINARY[1] else math.frexp(p)[1] for p in peaks]
        narrow = [
            (t if e == 0 else t * math.ldexp(1.0, -max(-1000, e))).float()
            for t, e in zip((a, b), exponents, strict=True)
        ]
        try:
            return scale(*narrow).double() * math.ldexp(1.0, sum(exponents))
        except Lost:
            pass
    return scale(a, b)


def _peak(x: torch.Tensor) -> float:
    """Largest |x|; NaN if there is one."""
    low, high = torch.aminmax(x)
    return float(torch.maximum(-low, high))


def check_lost(squares: torch.Tensor, a: torch.Tensor, b: torch.Tensor) -> None:
    """Raise `Lost` if a float32 scale squared is too small to be sure of, unless the operands are zero there.

    `squares` (..., m, n), of a product of `a` (..., m, k) and `b` (..., k, n).
    """
    if squares.dtype != torch.float32 or float(squares.amin()) >= UNDERFLOW:
        return
    rows = torch.linalg.vector_norm(a, math.inf, dim=-1, keepdim=True) > 0.0
    columns = torch.linalg.vector_norm(b, math.inf, dim=-2, keepdim=True) > 0.0
    if bool(((squares < UNDERFLOW) & rows & columns).any()):
        raise Lost


def product_scale(left: torch.Tensor, right: torch.Tensor, repeated: bool) -> torch.Tensor:
    """Error scale of `left @ right` in units of u, float64; (..., m, k) and (..., k, n) give (..., m, n).

    Leading dimensions are equal; vectors are taken as `torch.matmul` takes them. `repeated` says that terms repeat
    one value, whose roundings all fall to one side.
    """
    shape = left.shape[:-2] if left.dim() > 1 else right.shape[:-2]
    row, column = left.dim() == 1, right.dim() == 1
    left = left.unsqueeze(0) if row else left
    right = right.unsqueeze(1) if column else right
    m, n = left.shape[-2], right.shape[-1]
    a = left.reshape(-1, *left.shape[-2:])
    b = right.reshape(-1, *right.shape[-2:])
    scale = with_narrow(a, b, lambda u, v: _scale(u, v, repeated)).reshape(*shape, m, n)
    if column:
        scale = scale.squeeze(-1)
    return scale.squeeze(-1 if column else -2) if row else scale


def _scale(a: torch.Tensor, b: torch.Tensor, repeated: bool) -> torch.Tensor:
    """Error scale of the products of (B, m, k) and (B, k, n)."""
    inner = a.shape[-1]
    length = chunk_length(inner)
    walk = torch.bmm(square(a), square(b))
    check_lost(walk, a, b)
    walk.mul_(0.5 * length)
    if length >= inner:
        total = torch.bmm(a, b).abs()
        return error_scale(length * total.square(), walk, length * total if repeated else None)
    chunks = math.ceil(inner / length)
    lanes = b.shape[1] > CHUNKS
    u, v = _padded(a, b, chunks * length)
    front = u.view(*u.shape[:2], chunks, length).transpose(1, 2)
    rear = v.view(v.shape[0], chunks, length, v.shape[2])
    if lanes:
        u, v = _padded(a, b, LANES * math.ceil(inner / LANES))
        u_lanes = u.view(*u.shape[:2], -1, LANES).permute(0, 3, 1, 2).contiguous()
        v_lanes = v.view(v.shape[0], -1, LANES, v.shape[2]).transpose(1, 2).contiguous()
    out = torch.empty_like(walk)
    for batch, rows, columns in tiles(a.shape[0], a.shape[1], b.shape[2], a.is_cuda):
        parts = _bmm(front[batch, :, rows], rear[batch, :, :, columns])
        worst, size = partial_squares(parts, 1, length, repeated)
        if lanes:
            # Partial sums of one sign grow linearly: Σ s_j² is a third of n times the square of the last.
            shares = square(_bmm(u_lanes[batch, :, rows], v_lanes[batch, :, :, columns])).sum(1)
            worst = torch.maximum(worst, shares.mul_(0.5 * inner / LANES))
        out[batch, rows, columns] = error_scale(worst, walk[batch, rows, columns], size)
    return out


def _padded(a: torch.Tensor, b: torch.Tensor, inner: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Operands with zeros up to `inner` along the inner dimension."""
    missing = inner - a.shape[-1]
    if missing == 0:
        return a.contiguous(), b.contiguous()
    return torch.nn.functional.pad(a, (0, missing)), torch.nn.functional.pad(b, (0, 0, 0, missing))


def _bmm(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Products of (g, c, m, l) and (g, c, l, n) as (g, c, m, n), without copies where g is 1."""
    if a.shape[0] == 1:
        return torch.bmm(a[0], b[0]).unsqueeze(0)
    return torch.matmul(a, b)


def convolution_scale(
    x: torch.Tensor, weight: torch.Tensor, groups: int, transposed: bool, repeated: bool, convolve: Convolve
) -> torch.Tensor:
    """Error scale of a convolution in units of u, float64, shape of its result (n, out, *positions).

    `x` (n, in, *), `weight` (out, in / groups, *window), or (in, out / groups, *window) if `transposed`.
    `convolve(x, weight, groups)` is the convolution with the strides at hand. The parts of all chunks of input
    channels come from one call, in which every chunk is a group of its own.
    """
    channels = x.shape[1] // groups
    kernel = math.prod(weight.shape[2:])
    length = chunk_length(channels, kernel)

    def scale(u: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        walk = convolve(square(u), square(w), groups)
        if u.dtype == torch.float32 and 0.0 < float(walk.amin()) < UNDERFLOW:
            raise Lost
        # convolutions by transforms may leave a little below zero
        walk.mul_(0.5 * length * kernel).clamp_(min=0.0)
        terms = length * kernel
        if length >= channels:
            total = convolve(u, w, groups).abs()
            return error_scale(terms * total.square(), walk, terms * total if repeated else None)
        chunks = math.ceil(channels / length)
        u, w = _by_chunks(u, w, groups, chunks, length, transposed)
        out = torch.empty_like(walk)
        produced = walk.shape[1] // groups
        images = max(1, (TILE_GPU if u.is_cuda else TILE) // max(1, math.prod(walk.shape[1:])))
        for first in range(0, u.shape[0], images):
            parts = convolve(u[first : first + images], w, groups * chunks)
            parts = parts.view(parts.shape[0], groups, chunks, produced, *parts.shape[2:])
            here = slice(first, first + images)
            for group in range(groups):
                step = max(1, (TILE_GPU if u.is_cuda else TILE) // max(1, math.prod(walk.shape[2:])))
                for low in range(0, produced, step):
                    high = min(produced, low + step)
                    worst, size = partial_squares(parts[:, group, :, low:high], 1, terms, repeated)
                    base = group * produced
                    place = slice(base + low, base + high)
                    out[here, place] = error_scale(worst, walk[here, place], size)
        return out

    return with_narrow(x, weight, scale)


def _by_chunks(
    x: torch.Tensor, weight: torch.Tensor, groups: int, chunks: int, length: int, transposed: bool
) -> tuple[torch.Tensor, torch.Tensor]:
    """Operands of the convolution in which every chunk of `length` input channels of every group is a group."""
    channels = x.shape[1] // groups
    missing = chunks * length - channels
    window = weight.shape[2:]
    u = x.reshape(x.shape[0], groups, channels, *x.shape[2:])
    if missing:
        u = torch.cat([u, u.new_zeros(u.shape[0], groups, missing, *u.shape[3:])], 2)
    u = u.reshape(u.shape[0], groups * chunks * length, *x.shape[2:])
    if transposed:
        w = weight.reshape(groups, channels, *weight.shape[1:])
        if missing:
            w = torch.cat([w, w.new_zeros(groups, missing, *w.shape[2:])], 1)
        return u, w.reshape(groups * chunks * length, *weight.shape[1:])
    w = weight.reshape(groups, -1, channels, *window)
    if missing:
        w = torch.cat([w, w.new_zeros(groups, w.shape[1], missing, *window)], 2)
    w = w.reshape(groups, w.shape[1], chunks, length, *window).transpose(1, 2)
    return u, w.reshape(-1, length, *window)


def tiles(batch: int, m: int, n: int, gpu: bool) -> Iterator[tuple[slice, slice, slice]]:
    """Slices of a result (batch, m, n) that cover it, of about as many elements as a tile has."""
    limit = TILE_GPU if gpu else TILE
    if m * n <= limit:
        group = max(1, limit // (m * n))
        for first in range(0, batch, group):
            yield slice(first, min(batch, first + group)), slice(0, m), slice(0, n)
        return
    width = n if gpu else min(n, COLUMNS)
    height = max(1, limit // width)
    for index in range(batch):
        for top in range(0, m, height):
            for lo in range(0, n, width):
                yield slice(index, index + 1), slice(top, min(m, top + height)), slice(lo, min(n, lo + width))
