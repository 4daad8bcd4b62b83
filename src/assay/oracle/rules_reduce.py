"""Sums, means, variances, products and scans: errors that depend on partial results, see `summation`."""

from __future__ import annotations

import math
from typing import Any

import torch

from assay.oracle.arithmetic import is_real_or_complex
from assay.oracle.replay import BATCHED, EXACT, RULES, Replay, product_of
from assay.oracle.rules_pointwise import SIZES
from assay.oracle.stacks import tensors_in
from assay.oracle.summation import CORRELATED, GRAIN, grid_sum, normal_dims, partial_sums, repetition, rows_of
from assay.oracle.truth import finite_or_zero

OWN_SQUARES = (2.0 * SIZES["sub"]) ** 2 + SIZES["mul"] ** 2
"""Variance, in units of u²·x⁴, of the square of a difference x that is rounded once, and so is its square."""


def _keep(scale: torch.Tensor, out: torch.Tensor) -> torch.Tensor:
    return scale.reshape(out.shape)


def _sum(replay: Replay, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    args = replay.widen(args)
    replay.note(func)
    x: torch.Tensor = args[0]
    kwargs = _without_narrow_dtype(kwargs)
    if "dtype" in kwargs and is_real_or_complex(kwargs["dtype"]) and not is_real_or_complex(x.dtype):
        x, kwargs = x.to(kwargs["dtype"]), {k: v for k, v in kwargs.items() if k != "dtype"}
        args = (x, *args[1:])
    out = replay.run(func, args, kwargs)
    if not is_real_or_complex(out.dtype) or not replay.runs + replay.serial or x.numel() == 0:
        return out
    dims = normal_dims(args[1] if len(args) > 1 else kwargs.get("dim"), x.dim())
    if replay.grid and grid_sum(replay, x, dims):
        return out
    return replay.absolute(out, _keep(partial_sums(rows_of(_wide(x), dims), replay.unit), out))


def _mean(replay: Replay, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    args = replay.widen(args)
    replay.note(func)
    x: torch.Tensor = args[0]
    kwargs = _without_narrow_dtype(kwargs)
    out = replay.run(func, args, kwargs)
    if not replay.runs + replay.serial or x.numel() == 0:
        return out
    dims = normal_dims(args[1] if len(args) > 1 else kwargs.get("dim"), x.dim())
    n = product_of(x.shape[d] for d in dims)
    if replay.grid and n & (n - 1) == 0 and grid_sum(replay, x, dims):
        return out
    scale = _keep(partial_sums(rows_of(_wide(x), dims), replay.unit), out) / n
    return replay.absolute(out, scale + (0.0 if n & (n - 1) == 0 else 0.5) * out.abs())


def _wide(x: torch.Tensor) -> torch.Tensor:
    return x if is_real_or_complex(x.dtype) else x.double()


def _without_narrow_dtype(kwargs: dict[str, Any]) -> dict[str, Any]:
    dtype = kwargs.get("dtype")
    if dtype is None:
        return {k: v for k, v in kwargs.items() if k != "dtype"}
    if dtype.is_floating_point:
        return {**kwargs, "dtype": torch.float64}
    if dtype.is_complex:
        return {**kwargs, "dtype": torch.complex128}
    return kwargs


def _variance(replay: Replay, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """var, std and their _mean forms: the two-pass algorithm, with the mean's error of a running update."""
    args = replay.widen(args)
    name = str(func._schema.name).split("::")[1]
    replay.ops[name] += 1
    x: torch.Tensor = args[0]
    names = [a.name for a in func._schema.arguments]
    given = {**dict(zip(names, args, strict=False)), **kwargs}
    dims = normal_dims(given.get("dim", given.get("dims")), x.dim())
    keepdim = bool(given.get("keepdim", False))
    correction = given.get("correction")
    if correction is None:
        correction = 1 if given.get("unbiased", True) else 0
    n = product_of(x.shape[d] for d in dims)
    freedom = n - correction
    if freedom <= 0 or x.numel() == 0:
        return replay.run(func, args, kwargs)
    if x.dim() == 0:
        return replay.run(func, args, kwargs)
    mean, total, _ = about_mean(replay, x, dims, name, keepdim)
    with replay.inside():
        value = total / freedom
        if name.startswith("std"):
            value = torch.sqrt(value)
        if not name.endswith("_mean"):
            return value
        mean = _open_at_infinities(replay, mean)
        return value, mean if keepdim else mean.squeeze(dims) if dims else mean


def _open_at_infinities(replay: Replay, mean: torch.Tensor) -> torch.Tensor:
    """A mean that comes with a variance: undecided where it is infinite.

    Welford's update subtracts the running mean from the next element, so that what follows an infinity makes it NaN:
    whether anything does is up to the order of the elements.
    """
    endless = torch.isinf(mean.abs())
    if not replay.runs + replay.serial or not bool(endless.any()):
        return mean
    if replay.serial:
        return mean.masked_fill(endless, math.nan)
    known = replay.stack(mean)
    versions = mean.expand(replay.runs, *mean.shape).clone() if known is None else known.clone()
    versions[0].masked_fill_(endless, math.nan)
    replay.attach(mean, versions)
    return mean


def about_mean(
    replay: Replay, x: torch.Tensor, dims: list[int], name: str, keepdim: bool
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor | None]:
    """Mean of `x` over `dims`, dimensions kept, and the sum of squares about it, both perturbed.

    Third are the perturbed versions (k, *x.shape) of x minus its mean, without any rounding of their own, or None.
    Their roundings and those of their squares are independent, and enter the sum as one error of known size.
    """
    with replay.inside():
        mean = torch.mean(x, dims, keepdim=True)
    n = product_of(x.shape[d] for d in dims)
    # Welford's update rounds the running mean at every element, and what is left of earlier roundings
    # after i elements has a deviation of sqrt(i / 3) of them; a two-pass mean is rounded once.
    running = 0.5 * math.sqrt(1.0 + n / 6.0)
    if replay.runs + replay.serial and replay.grid and replay.stack(mean) is None:
        # the sum of small integers is exact in any order, and the running mean of equal ones
        varied = x.abs().amax(dims, keepdim=True) > x.abs().amin(dims, keepdim=True)
        mean = replay.absolute(mean, running * mean.abs() * varied)
    centred = x - mean
    square = _squared(centred)
    total = square.sum(dims, keepdim=keepdim)
    replay.current = name
    if not replay.runs + replay.serial:
        return mean, total, None
    versions = None
    ours, theirs = replay.stack(x), replay.stack(mean)
    if ours is not None or theirs is not None:
        versions = (x if ours is None else ours) - (mean if theirs is None else theirs)
        replay.attach(total, torch.stack([_sum_of_squares(v, dims, keepdim) for v in versions]))
    drift = running * mean.abs().reshape(total.shape)
    own = OWN_SQUARES * square.square().sum(dims, keepdim=keepdim)
    walk = partial_sums(rows_of(square, dims), replay.unit).reshape(total.shape).square()
    replay.absolute(total, (walk + own + 4.0 * drift.square() * total).sqrt_())
    # The squares of what a drifting mean adds do not average out.
    beyond = finite_or_zero(n * (drift * (replay.unit * replay.gain)).square())
    stack = replay.stack(total)
    if stack is not None:
        stack.add_(beyond)
    elif replay.serial:
        total.add_(beyond)
    return mean, total, versions


def _sum_of_squares(x: torch.Tensor, dims: list[int], keepdim: bool) -> torch.Tensor:
    """Σ |x|² over `dims`, by whichever function is fast where the last dimension is among them or not."""
    if x.dim() - 1 in dims:
        norm: torch.Tensor = torch.linalg.vector_norm(x, 2, dims, keepdim=keepdim)
        return norm.square()
    return _squared(x).sum(dims, keepdim=keepdim)


def _squared(x: torch.Tensor) -> torch.Tensor:
    return x.abs().square() if x.is_complex() else x.square()


def _product(replay: Replay, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """prod: each of n - 1 multiplications rounds; deviations add in quadrature."""
    args = replay.widen(args)
    replay.note(func)
    x: torch.Tensor = args[0]
    kwargs = _without_narrow_dtype(kwargs)
    out = replay.run(func, args, kwargs)
    dims = normal_dims(args[1] if len(args) > 1 else kwargs.get("dim", kwargs.get("dims")), x.dim())
    n = product_of(x.shape[d] for d in dims)
    if not is_real_or_complex(out.dtype) or n < 2:
        return out
    return replay.relative(out, 0.75 * math.sqrt(n - 1))


def _cumsum(replay: Replay, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    args = replay.widen(args)
    replay.note(func)
    x: torch.Tensor = args[0]
    kwargs = _without_narrow_dtype(kwargs)
    out = replay.run(func, args, kwargs)
    if (
        not is_real_or_complex(out.dtype)
        or not replay.runs + replay.serial
        or out.dim() == 0
        or not x.numel()
    ):
        return out
    dim = (args[1] if len(args) > 1 else kwargs["dim"]) % max(1, x.dim())
    if replay.grid and grid_sum(replay, x, [dim]):
        return out
    partial = out.abs().square()
    first = partial.narrow(dim, 0, 1)
    # A scan by blocks also adds block sums, which are differences of prefix sums: twice the squares at most.
    scale = (2.0 * (partial.cumsum(dim) - first)).clamp_(min=0.0).sqrt()
    terms = _wide(x).movedim(dim, -1)
    correlated = repetition(
        terms.real if terms.is_complex() else terms, GRAIN * replay.unit * out.abs().amax(dim)
    )
    if bool((correlated > 1.0).any()):
        bound = torch.minimum(scale * correlated.sqrt().unsqueeze(dim), CORRELATED * out.abs().cumsum(dim))
        scale = torch.maximum(scale, bound)
    return replay.absolute(out, scale)


def _cumprod(replay: Replay, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    args = replay.widen(args)
    replay.note(func)
    x: torch.Tensor = args[0]
    kwargs = _without_narrow_dtype(kwargs)
    out = replay.run(func, args, kwargs)
    if not is_real_or_complex(out.dtype) or out.dim() == 0:
        return out
    dim = (args[1] if len(args) > 1 else kwargs["dim"]) % x.dim()
    steps = torch.arange(x.shape[dim], dtype=torch.float64, device=x.device).sqrt()
    shape = [-1 if d == dim else 1 for d in range(x.dim())]
    return replay.absolute(out, out.abs() * (0.75 * steps).view(shape))


def _logcumsumexp(replay: Replay, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """log of a running sum of exponentials: the sum's relative error becomes absolute."""
    args = replay.widen(args)
    replay.note(func)
    x: torch.Tensor = args[0]
    out = replay.run(func, args, kwargs)
    if out.dim() == 0 or not is_real_or_complex(out.dtype):
        return replay.relative(out, 2.0)
    dim = (args[1] if len(args) > 1 else kwargs["dim"]) % x.dim()
    steps = torch.arange(x.shape[dim], dtype=torch.float64, device=x.device).sqrt()
    shape = [-1 if d == dim else 1 for d in range(x.dim())]
    # Each step of a scan of log-sums rounds its result once more.
    spread = 0.5 * steps.view(shape) * (1.0 + out.abs()) + 2.0 + 0.5 * out.abs() + 0.5 * x.abs()
    return replay.absolute(out, spread)


def _sum_to(replay: Replay, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """prims.sum and its kin: no keepdim, dtype last."""
    name = str(func._schema.name).split("::")[1]
    packet = getattr(torch.ops.aten, name)
    overload = packet.dim_IntList if name == "sum" else packet.default
    x, dims = args[0], list(args[1]) if args[1] is not None else list(range(args[0].dim()))
    if x.dim() == 0:
        return x.clone()
    handler = RULES.get(f"aten::{name}")
    if handler is not None:
        return handler(replay, overload, (x, dims, False), {})
    replay.note(func)
    return replay.run(overload, (x, dims, False), {})


def _prims_prod(replay: Replay, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    out = args[0]
    for dim in sorted(args[1], reverse=True):
        out = _product(replay, torch.ops.aten.prod.dim_int, (out, dim), {})
    return out


def _batched_dims(replay: Replay, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], out: Any) -> Any:
    """Reductions over one or more dimensions: the same dimensions, one further right."""
    x: torch.Tensor = args[0]
    stack = replay.stack(x)
    if stack is None or x.dim() == 0:
        return None
    names = [a.name for a in func._schema.arguments]
    keepdim = False
    if "keepdim" in names:
        place = names.index("keepdim")
        keepdim = bool(args[place] if len(args) > place else kwargs.get("keepdim", False))
    dims = [d + 1 for d in normal_dims(args[1] if len(args) > 1 else kwargs.get("dim"), x.dim())]
    name = str(func._schema.name).split("::")[1]
    if name == "sum":
        return torch.sum(stack, dims, keepdim=keepdim)
    if name == "mean":
        return torch.mean(stack, dims, keepdim=keepdim)
    if name == "amax":
        return torch.amax(stack, dims, keepdim=keepdim)
    if name == "amin":
        return torch.amin(stack, dims, keepdim=keepdim)
    return None


def _batched_dim(replay: Replay, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], out: Any) -> Any:
    """Operators with one dimension argument in second place, all other tensors being exact."""
    x: torch.Tensor = args[0]
    stack = replay.stack(x)
    if stack is None or x.dim() == 0 or len(args) < 2 or not isinstance(args[1], int):
        return None
    if any(replay.has_stack(t) for t in tensors_in(args[1:])):
        return None
    return func(stack, args[1] % x.dim() + 1, *args[2:], **kwargs)

for _space in ("aten", "prims"):
    for _name in ("var", "std", "var_mean", "std_mean"):
        RULES[f"{_space}::{_name}"] = _variance
RULES["aten::sum"] = _sum
RULES["aten::nansum"] = _sum
RULES["aten::mean"] = _mean
RULES["aten::prod"] = _product
RULES["aten::cumsum"] = _cumsum
RULES["aten::cumprod"] = _cumprod
RULES["aten::logcumsumexp"] = _logcumsumexp
for _name in ("sum", "amax", "amin"):
    RULES[f"prims::{_name}"] = _sum_to
RULES["prims::prod"] = _prims_prod
for _name in ("amax", "amin", "aminmax", "all", "any", "count_nonzero"):
    EXACT.add(f"aten::{_name}")
for _name in ("sum", "mean", "amax", "amin"):
    BATCHED[f"aten::{_name}"] = _batched_dims
for _name in ("cumsum", "cumprod", "logcumsumexp", "cummax", "cummin"):
    BATCHED[f"aten::{_name}"] = _batched_dim
