"""Sums, means, variances, products, scans and softmax: errors that depend on partial results.

The error of a sum is u·sqrt(Σ s_j²) over its partial sums s_j. The bound u·sqrt(n)·Σ|x| would be up to 200
times too loose on data of mixed sign. Legal orders differ, so the largest of three is taken: forward,
backward, and interleaved lanes that are added at the end.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch

from assay.oracle.arithmetic import is_real_or_complex
from assay.oracle.replay import BATCHED, EXACT, RULES, Replay, product_of, tensors_in

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
    with replay.inside():
        mean = torch.mean(x, dims, keepdim=True)
        centred = torch.sub(x, mean)
    replay.current = name
    if replay.runs + replay.serial:
        # Welford's update rounds the running mean at every element, and what is left of earlier roundings
        # after i elements has a deviation of sqrt(i / 3) of them; a two-pass mean is rounded once.
        replay.absolute(centred, (0.5 * math.sqrt(1.0 + n / 6.0)) * mean.abs().expand_as(centred))
    with replay.inside():
        square = torch.mul(centred, centred) if not x.is_complex() else torch.abs(centred).square()
        total = torch.sum(square, dims, keepdim=keepdim)
        value = total / freedom
        if name.startswith("std"):
            value = torch.sqrt(value)
        if not name.endswith("_mean"):
            return value
        return value, mean if keepdim else mean.squeeze(dims) if dims else mean


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


def softmax(
    x: torch.Tensor, dim: int, log: bool, scaled: Callable[[torch.Tensor, torch.Tensor], None] | None = None
) -> torch.Tensor:
    """Softmax or its logarithm by the shifted definition, for the replay to perturb.

    `scaled(value, size)` may perturb a value by u · size: the shifted argument by the rounding of
    x · log2(e), which the base-2 form makes before the shift, and the logarithm of the total by the rounding
    of log Σ exp x, which a kernel may hold instead and subtract from x.
    """
    if x.numel() == 0:
        return x.clone()
    peak = torch.amax(x, dim, keepdim=True)
    shifted = x - peak
    argument = shifted
    if scaled is not None:
        argument = x - peak
        scaled(argument, 0.5 * x)
    weights = torch.exp(argument)
    total = torch.sum(weights, dim, keepdim=True)
    if not log:
        return weights / total
    level = torch.log(total)
    if scaled is not None:
        scaled(level, 0.75 * (peak + level))
    return shifted - level


def _softmax(replay: Replay, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    args = replay.widen(args)
    name = str(func._schema.name).split("::")[1]
    replay.ops[name] += 1
    x: torch.Tensor = args[0]

    def scaled(value: torch.Tensor, size: torch.Tensor) -> None:
        with torch.utils._python_dispatch._disable_current_modes():
            replay.current = "exp"
            replay.absolute(value, size.abs())

    with replay.inside():
        if x.dim() == 0:
            return softmax(x.unsqueeze(0), 0, "log" in name, scaled).squeeze(0)
        return softmax(x, args[1], "log" in name, scaled)


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
RULES["aten::_softmax_backward_data"] = _softmax_backward
RULES["aten::mean"] = _mean
RULES["aten::prod"] = _product
RULES["aten::cumsum"] = _cumsum
RULES["aten::cumprod"] = _cumprod
RULES["aten::logcumsumexp"] = _logcumsumexp
for _name in ("_softmax", "_log_softmax", "_safe_softmax"):
    if _name != "_safe_softmax":
        RULES[f"aten::{_name}"] = _softmax
for _name in ("sum", "amax", "amin"):
    RULES[f"prims::{_name}"] = _sum_to
RULES["prims::prod"] = _prims_prod
for _name in ("amax", "amin", "aminmax", "all", "any", "count_nonzero"):
    EXACT.add(f"aten::{_name}")
for _name in ("sum", "mean", "amax", "amin"):
    BATCHED[f"aten::{_name}"] = _batched_dims
for _name in ("cumsum", "cumprod", "logcumsumexp", "cummax", "cummin"):
    BATCHED[f"aten::{_name}"] = _batched_dim
