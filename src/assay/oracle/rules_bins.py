"""Histograms, segments and scattered writes: counts are exact, sums over bins have as many terms as fall there."""

from __future__ import annotations

import math
from typing import Any

import torch

from assay.oracle.arithmetic import is_real_or_complex
from assay.oracle.replay import BATCHED, RULES, Replay
from assay.oracle.stacks import map_tensors, tensors_in


def _blurred(replay: Replay, t: Any) -> Any:
    """A copy of `t` whose runs are off by the rounding of its place between the ends of the range.

    Kernels compute (x - low) / width in their own precision, so a value beside an edge may fall to either side.
    """
    if not isinstance(t, torch.Tensor) or not is_real_or_complex(t.dtype) or t.numel() == 0:
        return t
    copy = t.clone()
    stack = replay.stack(t)
    if stack is not None:
        replay.attach(copy, stack.clone())
    finite = torch.nan_to_num(t.abs(), nan=0.0, posinf=0.0, neginf=0.0)
    return replay.absolute(copy, finite.amax().expand(t.shape))


def _histogram(replay: Replay, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """histc, histogram and histogramdd: exact counts of blurred values; sums of weights; computed edges."""
    args = replay.widen(args)
    name = replay.note(func)
    replay.jumped = True
    if name == "_histogramdd_bin_edges":
        edges = replay.run(func, args, kwargs)
        return [replay.absolute(e, 2.0 * e.abs().amax().expand(e.shape)) for e in edges]
    out = replay.run(func, (_blurred(replay, args[0]), *args[1:]), kwargs)
    counts = out if isinstance(out, torch.Tensor) else out[0]
    weight = kwargs.get("weight")
    if weight is not None:
        sizes = func(*args, **{**kwargs, "weight": weight.abs(), "density": False})
        replay.absolute(counts, sizes if isinstance(sizes, torch.Tensor) else sizes[0])
    if kwargs.get("density"):
        replay.relative(counts, 2.0)
    if isinstance(out, torch.Tensor):
        return out
    computed = name == "histogram" and not isinstance(args[1] if len(args) > 1 else 100, torch.Tensor)
    if computed and out[1].numel():
        replay.absolute(out[1], 2.0 * out[1].abs().amax().expand(out[1].shape))
    return out


def _put(replay: Replay, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """put: a copy, or sums of what is put to one place and what is there."""
    args = replay.widen(args)
    replay.note(func)
    out = replay.run(func, args, kwargs)
    accumulate = bool(args[3] if len(args) > 3 else kwargs.get("accumulate", False))
    if not accumulate or not is_real_or_complex(out.dtype) or not replay.runs + replay.serial or not out.numel():
        return out
    base, index, source = args[:3]
    terms = func(torch.ones_like(base.abs()), index, torch.ones_like(source.abs()), accumulate=True)
    squares = func(base.abs().square(), index, source.abs().square(), accumulate=True)
    return replay.absolute(out, _of_terms(out, squares, terms))


def _of_terms(out: torch.Tensor, squares: torch.Tensor, terms: torch.Tensor) -> torch.Tensor:
    """Error scale of sums `out` of `terms` numbers with squares summing to `squares`, in any order."""
    scale = (terms / 3.0 * out.abs().square() + terms / 2.0 * squares).sqrt()
    return torch.where(terms > 1, scale, torch.zeros_like(scale))


def _segments(replay: Replay, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """segment_reduce by sum, mean, prod, max or min."""
    args = replay.widen(args)
    replay.note(func)
    data, how = args[0], str(args[1])
    out = replay.run(func, args, kwargs)
    if how in ("max", "min") or not replay.runs + replay.serial or out.numel() == 0:
        return out
    plain = {k: v for k, v in kwargs.items() if k != "initial"}
    terms = func(torch.ones_like(data), "sum", **plain).clamp(min=0.0)
    if how == "prod":
        return replay.absolute(out, 0.75 * terms.sqrt() * out.abs())
    scale = _of_terms(func(data, "sum", **plain), func(data.square(), "sum", **plain), terms)
    if how == "mean":
        return replay.absolute(out, scale / terms.clamp(min=1.0) + 0.5 * torch.nan_to_num(out.abs()))
    return replay.absolute(out, scale + (0.75 * out.abs() if kwargs.get("initial") is not None else 0.0))


def _ctc(replay: Replay, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """ctc_loss: at each time step the logarithm of a sum of up to three exponentials, held as one number.

    Its rounding is half a unit of the loss so far and two of the logarithm; those of T steps add in quadrature.
    """
    args = replay.widen(args)
    replay.note(func)
    out = replay.run(func, args, kwargs)
    steps = math.sqrt(max(1, args[0].shape[0]))
    for value in tensors_in(out):
        replay.absolute(value, steps * (0.5 * value.abs() + 2.0))
    return out


def _chunked_cross_entropy(replay: Replay, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """linear_cross_entropy as the layer and the loss that it fuses; it computes gradients only for a backward."""
    names = [a.name for a in func._schema.arguments]
    given = {a.name: a.default_value for a in func._schema.arguments if a.has_default_value()}
    given |= {**dict(zip(names, replay.widen(args), strict=False)), **kwargs}
    name = str(func._schema.name).split("::")[1]
    replay.ops[name] += 1
    reduction = "none" if name.endswith("no_reduction") else given["reduction"]
    with replay.inside():
        logits = torch.nn.functional.linear(given["input"], given["linear_weight"], given["linear_bias"])
        loss = torch.nn.functional.cross_entropy(
            logits, given["target"], weight=given["weight"], reduction=reduction,
            ignore_index=given["ignore_index"], label_smoothing=given.get("label_smoothing", 0.0))
    if len(func._schema.returns) == 1:
        return loss
    return (loss, *(loss.new_empty(0) for _ in range(len(func._schema.returns) - 1)))


def _batched_grid(replay: Replay, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], out: Any) -> Any:
    """Runs as further images, where either tensor differs between them."""
    first, grid = replay.stack(args[0]), replay.stack(args[1])
    runs = replay.runs
    images = (args[0].expand(runs, *args[0].shape) if first is None else first).flatten(0, 1)
    grids = (args[1].expand(runs, *args[1].shape) if grid is None else grid).flatten(0, 1)
    result: torch.Tensor = func(images, grids, *args[2:], **kwargs)
    return result.view(runs, *out.shape)


def _volume_samples(replay: Replay, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """grid_sampler_3d: places computed from the grid, then eight products and their sum."""
    args = replay.widen(args)
    replay.note(func)
    volume, grid = args[0], args[1]
    if replay.runs or replay.serial:
        place = map_tensors(grid, torch.clone)
        stack = replay.stack(grid)
        if stack is not None:
            replay.attach(place, stack.clone())
        replay.absolute(place, 1.0 + torch.nan_to_num(grid.abs()))
        replay.jumped = replay.jumped or args[2] == 1
        grid = place
    out = replay.run(func, (volume, grid, *args[2:]), kwargs)
    if not replay.runs + replay.serial or out.numel() == 0:
        return out
    return replay.absolute(out, func(volume.abs(), args[1], *args[2:]) + 0.5 * out.abs())


for _name in ("histc", "histogram", "_histogramdd_bin_edges", "_histogramdd_from_bin_cts",
              "_histogramdd_from_bin_tensors"):
    RULES[f"aten::{_name}"] = _histogram
RULES["aten::put"] = _put
RULES["aten::segment_reduce"] = _segments
RULES["aten::_ctc_loss"] = _ctc
RULES["aten::grid_sampler_3d"] = _volume_samples
BATCHED["aten::grid_sampler_3d"] = _batched_grid
for _name in ("_linear_cross_entropy_batch_chunked", "_linear_cross_entropy_batch_chunked_no_reduction"):
    RULES[f"torch_nn::{_name}"] = _chunked_cross_entropy
