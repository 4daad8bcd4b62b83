"""Softmax and its logarithm by the shifted definition, with the errors of their base-2 and log-sum forms.

Errors of single steps are put together where they enter: those of an exponential are errors of its argument, that of
the sum is one for its row. Each perturbed run is then one softmax.
"""

from __future__ import annotations

from typing import Any

import torch

from assay.oracle import approximate
from assay.oracle.noise import WINDOW
from assay.oracle.replay import RULES, Replay
from assay.oracle.rules_pointwise import LIBRARY, SIZES
from assay.oracle.summation import partial_sums, rows_of
from assay.oracle.truth import finite_or_zero


def _softmax(replay: Replay, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    args = replay.widen(args)
    name = replay.note(func)
    x: torch.Tensor = args[0]
    if x.numel() == 0 or not replay.runs + replay.serial:
        out = func(x, args[1], False)
        tile = replay.attention_tile
        if tile is not None and name == "_softmax" and x.numel() and args[1] % max(1, x.dim()) == x.dim() - 1:
            replay.record(out).tiled = _later(x, tile or x.shape[-1])
        return out
    if x.dim() == 0:
        # 1, or 0: exact for any number
        return func(x, args[1], False)
    dim = args[1] % x.dim()
    peak = x.amax(dim, keepdim=True)
    argument = x - peak
    weights = argument.exp()
    total = weights.sum(dim, keepdim=True)
    size = LIBRARY + 0.5 * argument.abs()
    if replay.arithmetic.fast_math:
        size = torch.maximum(size, approximate.exponential(argument))
    # The base-2 form rounds x · log2(e) before the shift.
    inner = size.square_().addcmul_(argument, argument, value=SIZES["sub"] ** 2).addcmul_(x, x, value=0.25)
    row = (partial_sums(rows_of(weights, [dim]), replay.unit).view(total.shape) / total).square_()
    if name == "_log_softmax":
        return _logarithm(replay, x, dim, argument, peak, (weights / total, total.log()), inner, row)
    return _weights(replay, x, dim, weights / total, inner.sqrt_(), row.sqrt_())


def _later(x: torch.Tensor, tile: int) -> torch.Tensor:
    """By what a fused attention multiplies the exponentials of `x` (..., S) after it has rounded them.

    It shifts the exponentials of so many keys at a time by the largest score so far; what that differs from the
    largest of all, and the sum, come in later.
    """
    keys = torch.arange(x.shape[-1], device=x.device) // tile
    last = torch.minimum((keys + 1) * tile, torch.tensor(x.shape[-1], device=x.device)) - 1
    so_far = x.cummax(-1).values[..., last]
    final = x.amax(-1, keepdim=True)
    factor = torch.exp(so_far - final) / torch.exp(x - final).sum(-1, keepdim=True)
    # before the first key that takes part, and in rows that hold NaN, nothing is rounded another way
    return torch.where(torch.isfinite(factor) & (factor > 0.0), factor, 1.0).contiguous()


def _weights(
    replay: Replay, x: torch.Tensor, dim: int, out: torch.Tensor, inner: torch.Tensor, row: torch.Tensor
) -> torch.Tensor:
    """Softmax `out` of `x`, whose arguments have errors `inner` and whose sums relative errors `row`, in units of u."""
    unit = replay.unit * replay.gain
    deviation = finite_or_zero(inner) * unit
    common = finite_or_zero(row) * unit
    if replay.serial:
        # as for stacks, but the one run is the result itself
        out = torch.softmax(torch.addcmul(x, deviation, replay.noise.unit(tuple(x.shape), x.device)), dim)
        out.mul_(1.0 + common * replay.noise.unit(tuple(row.shape), x.device))
        return replay.relative(out, _division(replay))
    stack = replay.stack(x)
    if replay.runs * x.numel() <= WINDOW:
        xi = replay.noise.unit((replay.runs, *x.shape), x.device)
        versions = torch.softmax(torch.addcmul(x if stack is None else stack, deviation, xi), dim + 1)
    else:
        versions = torch.empty((replay.runs, *x.shape), dtype=x.dtype, device=x.device)
        for i, version in enumerate(versions):
            moved = torch.addcmul(
                x if stack is None else stack[i], deviation, replay.noise.unit(tuple(x.shape), x.device)
            )
            torch.softmax(moved, dim, out=version)
    versions.mul_(1.0 + common * replay.noise.unit((replay.runs, *row.shape), x.device))
    replay.attach(out, versions)
    return replay.relative(out, _division(replay))


def _division(replay: Replay) -> float:
    return approximate.DIVISION if replay.arithmetic.fast_math else SIZES["div"]


def _logarithm(
    replay: Replay,
    x: torch.Tensor,
    dim: int,
    argument: torch.Tensor,
    peak: torch.Tensor,
    shares: tuple[torch.Tensor, torch.Tensor],
    inner: torch.Tensor,
    row: torch.Tensor,
) -> torch.Tensor:
    """Logarithm of the softmax of `x`; `inner` and `row` as for `_weights`, squared.

    All errors but those of two subtractions are of the logarithm of the row's sum, which a kernel may also hold
    together with the row's maximum.
    """
    weights, level = shares
    out = argument - level
    weighted = finite_or_zero(weights.square_().mul_(inner)).sum(dim, keepdim=True)
    scale = LIBRARY * level.abs() + level.square().mean().sqrt().clamp(max=1.0)
    if replay.arithmetic.fast_math:
        scale = torch.maximum(scale, approximate.logarithm("log", level))
    row = (row + weighted + scale.square() + (SIZES["add"] * (peak + level)).square()).sqrt_()
    stack = replay.stack(x)
    if stack is not None:
        replay.attach(out, torch.log_softmax(stack, dim + 1))
    common = finite_or_zero(row) * (replay.unit * replay.gain)
    if replay.serial:
        out.sub_(common * replay.noise.unit(tuple(row.shape), x.device))
    else:
        replay.materialise(out).sub_(common * replay.noise.unit((replay.runs, *row.shape), x.device))
    return replay.absolute(out, SIZES["sub"] * torch.hypot(argument, out))


def _softmax_backward(replay: Replay, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """out · (grad - Σ grad·out), the sum with an error of its own.

    Where one weight is 1 the difference cancels exactly in these steps; a fused attention backward takes the
    sum from the output instead, so that its error and that of grad are independent.
    """
    args = replay.widen(args)
    replay.ops["_softmax_backward_data"] += 1
    grad, out, dim = args[0], args[1], args[2]
    with replay.inside():
        inner = torch.sum(grad * out, dim, keepdim=True)
    replay.current = "_softmax_backward_data"
    if replay.runs or replay.serial:
        replay.absolute(inner, (grad * out).square().sum(dim, keepdim=True).sqrt() + inner.abs())
    with replay.inside():
        return out * (grad - inner)


RULES["aten::_softmax_backward_data"] = _softmax_backward
for _name in ("_softmax", "_log_softmax"):
    RULES[f"aten::{_name}"] = _softmax
