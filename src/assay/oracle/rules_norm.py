"""Layer norm and batch norm: moments as `var_mean` has them, and one pass over the values.

Their decompositions round the centred value, the scaled one and the weighted one in turn. Those roundings are
independent and relative, so that one perturbation of their joint size stands for all of them.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch._decomp import decomposition_table

from assay.oracle.replay import RULES, Replay, product_of
from assay.oracle.rules_pointwise import SIZES
from assay.oracle.rules_reduce import about_mean


def _layer_norm(replay: Replay, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Normalised over the last dimensions, with weight and bias of their shape; also mean and 1 / deviation."""
    x, shape, weight, bias, eps = replay.widen(args)
    if x.numel() == 0 or not replay.runs + replay.serial:
        return _decomposed(replay, func, args)
    replay.ops["native_layer_norm"] += 1
    dims = list(range(x.dim() - len(shape), x.dim()))
    mean, variance, versions = _moments(replay, x, dims)
    with replay.inside():
        rstd = torch.rsqrt(variance + eps)
    return _scaled(replay, x - mean, rstd, versions, weight, bias), mean, rstd


def _batch_norm(replay: Replay, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Normalised over all dimensions but the second; running mean and variance follow in training."""
    x, weight, bias, running_mean, running_var, training, momentum, eps = replay.widen(args)
    if not training or x.dim() < 2 or x.numel() == 0 or not replay.runs + replay.serial:
        return _decomposed(replay, func, args)
    replay.ops["native_batch_norm"] += 1
    dims = [d for d in range(x.dim()) if d != 1]
    by_channel = [1, -1, *(1,) * (x.dim() - 2)]
    mean, variance, versions = _moments(replay, x, dims)
    with replay.inside():
        rstd = torch.rsqrt(variance + eps)
        factor = rstd if weight is None else rstd * weight.reshape(by_channel)
        out_bias = None if bias is None else bias.reshape(by_channel)
    out = _scaled(replay, x - mean, factor, versions, None, out_bias)
    with replay.inside():
        if running_mean is not None:
            running_mean.copy_(momentum * mean.squeeze(dims) + (1 - momentum) * running_mean)
        if running_var is not None:
            n = product_of(x.shape[d] for d in dims)
            unbiased = variance.squeeze(dims) * (n / (n - 1))
            running_var.copy_(momentum * unbiased + (1 - momentum) * running_var)
        return out, mean.squeeze(dims), rstd.squeeze(dims)


def _decomposed(replay: Replay, func: Any, args: tuple[Any, ...]) -> Any:
    replay.ops[str(func._schema.name).split("::")[1]] += 1
    with replay.inside():
        return decomposition_table[func](*replay.widen(args))


def _moments(
    replay: Replay, x: torch.Tensor, dims: list[int]
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor | None]:
    """Mean and biased variance over `dims`, which are kept, and the perturbed versions of x minus its mean."""
    mean, total, versions = about_mean(replay, x, dims, "var_mean", True)
    with replay.inside():
        return mean, total / product_of(x.shape[d] for d in dims), versions


def _scaled(
    replay: Replay,
    centred: torch.Tensor,
    factor: torch.Tensor,
    versions: torch.Tensor | None,
    weight: torch.Tensor | None,
    bias: torch.Tensor | None,
) -> torch.Tensor:
    """centred · factor · weight + bias, all broadcastable to `centred`; `versions` (k, *shape) are used up."""
    before = centred * factor
    if weight is not None:
        before = before * weight
    out = before if bias is None else before + bias
    if versions is not None:
        for operand in (factor, weight):
            if operand is not None:
                stack = replay.stack(operand, centred.dim())
                versions.mul_(operand if stack is None else stack)
        if bias is not None:
            stack = replay.stack(bias, centred.dim())
            versions.add_(bias if stack is None else stack)
        replay.attach(out, versions)
    replay.current = "mul"
    steps = SIZES["sub"] ** 2 + SIZES["mul"] ** 2 * (1 if weight is None else 2)
    if bias is None:
        return replay.relative(out, math.sqrt(steps))
    scale = (steps * before.square()).addcmul_(out, out, value=SIZES["add"] ** 2).sqrt_()
    return replay.absolute(out, scale)


RULES["aten::native_layer_norm"] = _layer_norm
RULES["aten::native_batch_norm"] = _batch_norm
