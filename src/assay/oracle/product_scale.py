"""Rounding errors of sums of products: the partial sums along the inner dimension, followed in eight chunks.

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
from collections.abc import Callable, Iterable, Iterator

import torch

from assay.oracle.summation import CORRELATED

CHUNKS = 8
"""Pieces of the inner dimension whose partial sums are followed."""
FEWEST = 16
"""Fewest terms of a piece."""
LANES = 4
"""Interleaved accumulators whose order is considered."""
TILE = 1 << 16
"""Elements of a result whose parts are held at a time on a CPU."""
TILE_GPU = 1 << 22
"""The same on a GPU, where a launch costs more than a pass over memory."""
COLUMNS = 1 << 8
"""Columns of a tile."""
Convolve = Callable[[torch.Tensor, torch.Tensor, int], torch.Tensor]
"""Convolution of an image with weights in so many groups."""
ORDINARY = (2.0**-30, 2.0**30)
"""Largest operands that are not scaled before they are narrowed to float32."""
UNDERFLOW = 2.0**-100
"""Squared scales below this, in float32, may lack terms that were lost."""


def chunk_length(inner: int, per_index: int = 1) -> int:
    """Inner indices in a chunk, each of which stands for `per_index` terms: `FEWEST` terms at least."""
    length = max(1, math.ceil(inner / CHUNKS))
    return min(inner, math.ceil(FEWEST / per_index)) if length * per_index < FEWEST else length


def square(x: torch.Tensor) -> torch.Tensor:
    """|x|², real."""
    return x.abs().square() if x.is_complex() else x.square()


def partial_squares(
    running: Iterable[torch.Tensor], terms: int, repeated: bool
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Σ s_j² of the larger of both directions, real, and with `repeated` Σ|s_j|.

    `running` are the partial sums at the ends of chunks of `terms` terms, which may come in one and the same buffer.
    """
    sums = squares = size = before = None
    count = 0
    for total in running:
        count += 1
        if sums is None or squares is None:
            sums, squares = total.clone(), square(total)
        elif total.is_complex():
            sums.add_(total)
            squares.add_(square(total))
        else:
            sums.add_(total)
            squares.addcmul_(total, total)
        if repeated:
            now = total.abs()
            size = now.clone() if size is None or before is None else size.add_(torch.maximum(before, now))
            before = now
    assert sums is not None
    assert squares is not None
    level = square(total)
    # Σ |total − r|² from r = 0 on, multiplied out; what cancels there is small beside the total's own square.
    cross = (total.conj() * sums).real if total.is_complex() else total * sums
    back = (count + 1) * level - 2.0 * cross + squares
    worst = torch.maximum(squares, back) - 0.5 * level
    worst = worst.clamp_(min=0.0).mul_(terms * (1.0 + 1.0 / math.sqrt(count)))
    return worst, None if size is None else size.mul_(terms)


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
    peaks = [peak_of(t) for t in (a, b)]
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


def peak_of(x: torch.Tensor) -> float:
    """Largest |x|; NaN if there is one."""
    # unlike `aminmax` these need no copy of a transposed tensor
    return float(torch.maximum(-x.amin(), x.amax()))


def check_lost(squares: torch.Tensor, wide: Callable[[], torch.Tensor]) -> None:
    """Raise `Lost` if sums of squares in float32 are too small to be sure of, where those of `wide` are not zero."""
    small = squares.dtype == torch.float32 and float(squares.amin()) < UNDERFLOW
    if small and bool(((squares < UNDERFLOW) & (wide() > 0.0)).any()):
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
    scale = with_narrow(a, b, lambda u, v: _scale(u, v, repeated, lambda: torch.bmm(square(a), square(b)))).reshape(
        *shape, m, n
    )
    if column:
        scale = scale.squeeze(-1)
    return scale.squeeze(-1 if column else -2) if row else scale


def _scale(a: torch.Tensor, b: torch.Tensor, repeated: bool, wide: Callable[[], torch.Tensor]) -> torch.Tensor:
    """Error scale of the products of (B, m, k) and (B, k, n); `wide` gives Σ a²b² in float64."""
    inner = a.shape[-1]
    length = chunk_length(inner)
    walk = torch.bmm(square(a), square(b))
    check_lost(walk, wide)
    walk.mul_(0.5 * length)
    if length >= inner:
        total = torch.bmm(a, b).abs()
        return error_scale(length * total.square(), walk, length * total if repeated else None)
    lanes = inner > FEWEST
    if lanes:
        u, v = _padded(a, b, LANES * math.ceil(inner / LANES))
        u_lanes, v_lanes = _lanes(u), _lanes(v.transpose(1, 2)).transpose(2, 3)
    out = torch.empty_like(walk)
    for batch, rows, columns in tiles(a.shape[0], a.shape[1], b.shape[2], a.is_cuda):
        running = _running(a[batch, rows], b[batch, :, columns], length)
        worst, size = partial_squares(running, length, repeated)
        if lanes:
            # Partial sums of one sign grow linearly: Σ s_j² is a third of n times the square of the last.
            shares = torch.zeros_like(worst)
            for i in range(LANES):
                shares.add_(square(torch.bmm(u_lanes[batch, i, rows], v_lanes[batch, i, :, columns])))
            worst = torch.maximum(worst, shares.mul_(0.5 * inner / LANES))
        out[batch, rows, columns] = error_scale(worst, walk[batch, rows, columns], size)
    return out


def _running(a: torch.Tensor, b: torch.Tensor, length: int) -> Iterator[torch.Tensor]:
    """Products of (g, m, k) and (g, k, n) up to every multiple of `length` and k itself, in one buffer (g, m, n)."""
    total = torch.bmm(a[..., :length], b[:, :length])
    yield total
    for first in range(length, a.shape[-1], length):
        yield total.baddbmm_(a[..., first : first + length], b[:, first : first + length])


def _padded(a: torch.Tensor, b: torch.Tensor, inner: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Operands with zeros up to `inner` along the inner dimension."""
    missing = inner - a.shape[-1]
    if missing == 0:
        return a, b
    return torch.nn.functional.pad(a, (0, missing)), torch.nn.functional.pad(b, (0, 0, 0, missing))


def _lanes(x: torch.Tensor) -> torch.Tensor:
    """Rows (B, m, k) by interleaved lanes: (B, lanes, m, k / lanes), in the layout that `x` has."""
    lanes: torch.Tensor = x.view(*x.shape[:-1], -1, LANES).permute(0, 3, 1, 2)
    return lanes.contiguous() if x.stride(-1) == 1 else lanes.transpose(2, 3).contiguous().transpose(2, 3)


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
        check_lost(walk, lambda: convolve(square(x), square(weight), groups))
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
                    running = _added(parts[:, group, :, low:high])
                    worst, size = partial_squares(running, terms, repeated)
                    base = group * produced
                    place = slice(base + low, base + high)
                    out[here, place] = error_scale(worst, walk[here, place], size)
        return out

    return with_narrow(x, weight, scale)


def _added(parts: torch.Tensor) -> Iterator[torch.Tensor]:
    """Partial sums of `parts` (n, chunks, ...) along the chunks, which they overwrite."""
    pieces = parts.unbind(1)
    yield pieces[0]
    for before, after in itertools.pairwise(pieces):
        yield after.add_(before)


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
