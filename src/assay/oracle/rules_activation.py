"""Activations that are several operations: one run of the whole, and the errors of its steps to first order.

A step's error is that of the elementary function or operation as `rules_pointwise` has it, times the derivative of
what follows. The steps round independently, so their squares add.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch._decomp import decomposition_table

from assay.oracle.replay import RULES, Replay
from assay.oracle.rules_pointwise import LIBRARY, SIZES, erf_scale

ROUNDING = SIZES["mul"] ** 2
"""Variance of one rounding, relative to the result, in units of u²."""


def _activation(replay: Replay, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    args = replay.widen(args)
    x: torch.Tensor = args[0]
    if x.dtype != torch.float64 or replay.arithmetic.fast_math or not replay.runs + replay.serial or x.numel() == 0:
        replay.ops[str(func._schema.name).split("::")[1]] += 1
        with replay.inside():
            return decomposition_table[func](*args, **kwargs)
    name = replay.note(func)
    # before the run, which perturbs x itself where there are no stacks
    out = replay.run(func, args, kwargs)
    if name == "silu":
        return replay.absolute(out, _silu(x, out))
    tanh = kwargs.get("approximate", "none") == "tanh"
    return replay.absolute(out, _gelu_tanh(x, out) if tanh else _gelu(x, out))


def _silu(x: torch.Tensor, out: torch.Tensor) -> torch.Tensor:
    """Error scale of x · sigmoid(x), in units of u; shape of `x`."""
    relative = (1.0 - torch.sigmoid(x)).mul_(x).abs_().mul_(0.5).add_(LIBRARY)
    return relative.square_().add_(ROUNDING).sqrt_().mul_(out.abs())


def _gelu(x: torch.Tensor, out: torch.Tensor) -> torch.Tensor:
    """Error scale of x / 2 · (1 + erf(x / √2)), in units of u; shape of `x`."""
    slope = torch.exp(-0.5 * x.square()).mul_(x).mul_(SIZES["mul"] * math.sqrt(2.0 / math.pi))
    inner = slope.square_().add_(erf_scale(torch.erf(x * math.sqrt(0.5))).square_())
    return _half_product(x, out, inner)


def _gelu_tanh(x: torch.Tensor, out: torch.Tensor) -> torch.Tensor:
    """Error scale of x / 2 · (1 + tanh(√(2/π) · (x + 0.044715 x³))), in units of u; shape of `x`."""
    cube = 0.044715 * x.square() * x
    total = x + cube
    argument = (3.0 * cube.square() + 2.0 * total.square()).mul_(ROUNDING * 2.0 / math.pi)
    value = torch.tanh(total * math.sqrt(2.0 / math.pi))
    own = LIBRARY * value.abs() + (value != 0)
    inner = (1.0 - value.square()).square_().mul_(argument).add_(own.square())
    return _half_product(x, out, inner)


def _half_product(x: torch.Tensor, out: torch.Tensor, inner: torch.Tensor) -> torch.Tensor:
    """Error scale of out = x / 2 · (1 + f), whose f has the error variance `inner`: two more roundings."""
    return inner.mul_(x).mul_(x).mul_(0.25).addcmul_(out, out, value=2.0 * ROUNDING).sqrt_()


RULES["aten::gelu"] = _activation
RULES["aten::silu"] = _activation
