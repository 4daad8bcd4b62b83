"""Sums over windows, bins and segments: pooling, scatter, embedding bags, resampling.

Here the order of summation is free (atomics) or short, so partial sums are bounded by their expectation:
n/3 · S² + n/2 · Σx² for n terms with sum S.
"""

from __future__ import annotations

import math
from typing import Any

import torch

from assay.oracle.arithmetic import is_real_or_complex
from assay.oracle.replay import BATCHED, RULES, Replay, product_of
from assay.oracle.stacks import tensors_in

SMALL_WINDOW = 9
"""Most elements of a window whose maximum is taken image by image."""


def _average_pool(replay: Replay, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """avg_pool2d and avg_pool3d."""
    args = replay.widen(args)
    name = replay.note(func)
    out = replay.run(func, args, kwargs)
    if not replay.runs + replay.serial or out.numel() == 0:
        return out
    names = [a.name for a in func._schema.arguments]
    given = {**dict(zip(names, args, strict=False)), **kwargs}
    rank = 3 if name.endswith("3d") else 2
    kernel = list(given["kernel_size"])
    terms = product_of(kernel if len(kernel) == rank else kernel * rank)
    divisor = given.get("divisor_override") or terms
    squares = func(args[0].square(), *args[1:], **kwargs).clamp(min=0.0)
    scale = (terms / 3.0 * out.square() + 0.5 * terms / divisor * squares).sqrt()
    return replay.absolute(out, scale + 0.5 * out.abs())


def _linear(replay: Replay, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Maps that are linear in their first tensor, with few terms: u · Σ|terms|."""
    args = replay.widen(args)
    replay.note(func)
    out = replay.run(func, args, kwargs)
    if not replay.runs + replay.serial or not is_real_or_complex(out.dtype) or out.numel() == 0:
        return out
    # Antialiasing weights are computed from coordinates, whose rounding grows with the image.
    factor = 16.0 if str(func._schema.name).endswith("_aa") else 1.0
    return replay.absolute(out, factor * func(args[0].abs(), *args[1:], **kwargs).abs() + out.abs())


def _bins(out: torch.Tensor, squares: torch.Tensor, terms: torch.Tensor) -> torch.Tensor:
    """Error scale of sums `out` of `terms` numbers with squares summing to `squares`; 0 for one term."""
    scale = (terms / 3.0 * out.abs().square() + terms / 2.0 * squares.abs()).sqrt()
    return torch.where(terms > 1, scale, torch.zeros_like(scale))


def _accumulate(replay: Replay, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """scatter_add, index_add, index_put with accumulation, scatter with reduce="add"."""
    args = replay.widen(args)
    name = replay.note(func)
    out = replay.run(func, args, kwargs)
    adds = name in ("scatter_add", "index_add", "_index_put_impl", "index_put", "_unsafe_index_put")
    if name in ("index_put", "_unsafe_index_put", "_index_put_impl"):
        adds = bool(args[3] if len(args) > 3 else kwargs.get("accumulate", False))
    mode = kwargs.get("reduce", args[4] if len(args) > 4 else None)
    if len(args) > 4 and isinstance(mode, str):
        kwargs = {**kwargs, "reduce": mode, **({"include_self": args[5]} if len(args) > 5 else {})}
        args = args[:4]
    if name in ("scatter", "scatter_reduce", "index_reduce"):
        adds = mode in ("add", "sum", "mean", "multiply", "prod")
    floating = is_real_or_complex(out.dtype)
    if not adds or not floating or not replay.runs + replay.serial or out.numel() == 0:
        return out
    if name == "index_reduce":
        # It has no sum: treat it as a scatter of whole slices.
        return replay.absolute(out, 8.0 * out.abs() + out.abs().square().mean().sqrt())
    place = next(i for i in range(len(args) - 1, 0, -1) if _is_source(args[i]))
    source = args[place]

    def with_source(base: torch.Tensor, value: Any) -> torch.Tensor:
        pieces = [base, *args[1:]]
        pieces[place] = value
        result = func(*pieces, **({**kwargs, "reduce": "sum"} if mode in ("mean", "prod") else kwargs))
        assert isinstance(result, torch.Tensor)
        return result

    ones = torch.ones_like(source) if isinstance(source, torch.Tensor) else 1.0
    if isinstance(source, torch.Tensor) and source.is_complex():
        ones = ones.to(args[0].dtype)  # type: ignore[union-attr]
    if mode in ("multiply", "prod"):
        if name == "scatter":
            return replay.relative(out, 0.5 * math.sqrt(8.0))
        counts = with_source(torch.ones_like(args[0]), ones)
        return replay.absolute(out, out.abs() * 0.5 * counts.abs().sqrt())
    counts = with_source(torch.ones_like(args[0]), ones).abs()
    square = source.abs().square() if isinstance(source, torch.Tensor) else abs(source) ** 2
    if isinstance(square, torch.Tensor):
        square = square.to(args[0].dtype)
    squares = with_source(args[0].abs().square().to(args[0].dtype), square)
    if mode == "mean":
        scale = _bins(out * counts, squares, counts) / counts + 0.5 * out.abs()
        return replay.absolute(out, scale)
    return replay.absolute(out, _bins(out, squares, counts))


def _is_source(value: Any) -> bool:
    if isinstance(value, torch.Tensor):
        return is_real_or_complex(value.dtype)
    return isinstance(value, float)


def _embedding_bag(replay: Replay, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Sums or means of embedding rows by bag; the maximum is exact."""
    args = replay.widen(args)
    replay.note(func)
    out = replay.run(func, args, kwargs)
    names = [a.name for a in func._schema.arguments]
    given: dict[str, Any] = {a.name: a.default_value for a in func._schema.arguments if a.has_default_value()}
    given.update(zip(names, args, strict=False))
    given.update(kwargs)
    result = out[0]
    if given["mode"] == 2 or not replay.runs + replay.serial or result.numel() == 0:
        return out
    weights = given.get("per_sample_weights")
    squares = func(
        **{
            **given,
            "weight": given["weight"].square(),
            "mode": 0,
            "per_sample_weights": None if weights is None else weights.square(),
        }
    )[0]
    ones = func(
        **{**given, "weight": torch.ones_like(given["weight"]), "mode": 0, "per_sample_weights": None}
    )[0]
    terms = ones.clamp(min=0.0)
    if given["mode"] == 1:
        scale = _bins(result * terms, squares, terms) / terms.clamp(min=1.0) + 0.5 * result.abs()
    else:
        scale = _bins(result, squares, terms)
        if weights is not None:
            scale = scale + 0.5 * squares.clamp(min=0.0).sqrt()
    replay.absolute(result, scale)
    return out


def _folded(spatial: int) -> Any:
    """Executor for operators on (N, C, *spatial) or (C, *spatial): the runs join the batch."""

    def execute(replay: Replay, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], out: Any) -> Any:
        x: torch.Tensor = args[0]
        stack = replay.stack(x)
        if stack is None or any(replay.has_stack(t) for t in tensors_in(args[1:])):
            return None
        if x.dim() == spatial + 1:
            return func(stack, *args[1:], **kwargs)
        result = func(stack.flatten(0, 1), *args[1:], **kwargs)

        def split(t: torch.Tensor) -> torch.Tensor:
            return t.reshape(replay.runs, x.shape[0], *t.shape[1:])

        return split(result) if isinstance(result, torch.Tensor) else [split(t) for t in result]

    return execute


def _window_maxima(replay: Replay, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], out: Any) -> Any:
    """max_pool2d over small windows, as the larger of its shifted images.

    That is several times faster than the operator, which looks for indices. They are the exact run's where every run
    has its maxima there, and else the operator decides.
    """
    names = [a.name for a in func._schema.arguments]
    given = {"stride": [], "padding": [0], "dilation": [1], "ceil_mode": False}
    given |= {**dict(zip(names, args, strict=False)), **kwargs}
    kernel, padding, dilation = (_pair(given[n]) for n in ("kernel_size", "padding", "dilation"))
    stride = _pair(given["stride"] or given["kernel_size"])
    stack = replay.stack(args[0])
    if stack is None or product_of(kernel) > SMALL_WINDOW or given["ceil_mode"] or out[0].numel() == 0:
        return _folded(2)(replay, func, args, kwargs, out)
    image = stack
    if any(padding):
        image = torch.nn.functional.pad(stack, (padding[1], padding[1], padding[0], padding[0]), value=-math.inf)
    best: torch.Tensor | None = None
    for top in range(kernel[0]):
        for left in range(kernel[1]):
            part = image
            for axis, first in ((0, top), (1, left)):
                start = first * dilation[axis]
                stop = start + stride[axis] * (out[0].shape[axis - 2] - 1) + 1
                places = slice(start, stop, stride[axis])
                part = part[..., places, :] if axis == 0 else part[..., places]
            best = part if best is None else torch.maximum(best, part)
    index = out[1].flatten(-2).expand(replay.runs, *out[1].flatten(-2).shape)
    chosen = stack.flatten(-2).gather(-1, index).view(replay.runs, *out[0].shape)
    if best is None or not torch.equal(chosen, best):
        return _folded(2)(replay, func, args, kwargs, out)
    return [chosen, None]


def _pair(value: Any) -> list[int]:
    """One number for both spatial dimensions, or one for each."""
    sizes = [value] if isinstance(value, int) else list(value)
    return sizes * 2 if len(sizes) == 1 else sizes


RULES["aten::avg_pool2d"] = _average_pool
RULES["aten::avg_pool3d"] = _average_pool
_LINEAR = """
avg_pool2d_backward avg_pool3d_backward _adaptive_avg_pool2d_backward _adaptive_avg_pool3d
_adaptive_avg_pool2d _adaptive_avg_pool3d_backward upsample_bilinear2d_backward upsample_linear1d_backward
upsample_nearest1d_backward upsample_nearest2d_backward upsample_nearest3d_backward
upsample_bicubic2d_backward upsample_trilinear3d_backward _upsample_bilinear2d_aa _upsample_bicubic2d_aa
max_pool2d_with_indices_backward max_pool3d_with_indices_backward adaptive_max_pool2d_backward
adaptive_max_pool3d_backward unfold_backward index_select_backward
"""
for _name in _LINEAR.split():
    RULES[f"aten::{_name}"] = _linear
for _name in (
    "scatter_add",
    "index_add",
    "index_put",
    "_unsafe_index_put",
    "_index_put_impl",
    "scatter_reduce",
):
    RULES[f"aten::{_name}"] = _accumulate
RULES["aten::scatter"] = _accumulate
RULES["aten::index_reduce"] = _accumulate
RULES["aten::_embedding_bag"] = _embedding_bag
RULES["aten::_embedding_bag_forward_only"] = _embedding_bag
for _name in (
    "avg_pool2d",
    "adaptive_max_pool2d",
    "_adaptive_avg_pool2d",
    "im2col",
):
    BATCHED[f"aten::{_name}"] = _folded(2)
BATCHED["aten::max_pool2d_with_indices"] = _window_maxima
for _name in ("avg_pool3d", "max_pool3d_with_indices", "adaptive_max_pool3d", "_adaptive_avg_pool3d"):
    BATCHED[f"aten::{_name}"] = _folded(3)
