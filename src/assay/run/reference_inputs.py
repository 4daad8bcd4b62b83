"""The inputs of one draw in the reference worker: made, varied, injected, laid out."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any, Protocol

import torch

from assay.probe.layouts import distinct, distinct_like, place
from assay.probe.model import Draw, Explicit
from assay.run import codec
from assay.task.tree import Arguments

INJECTED = {"nan": float("nan"), "inf": float("inf"), "-inf": float("-inf")}


class Studied(Protocol):
    """What is known of the task whose inputs are made."""

    study: Any
    """Its Study; None before it was studied."""
    declared: dict[int, Any]
    """By position, the inputs whose domain a contract changes."""


def draw_inputs(state: Studied, instance: Any, draw: Draw, dtype: str | None) -> tuple[Any, str]:
    """The inputs of one draw as Arguments, and why it does not apply (empty when it does)."""
    from assay.contract.domain import conform
    from assay.probe import values

    arguments = instance.inputs(draw.seed)
    leaves = state.study.tensor_inputs() if state.study is not None else []
    applied = 0
    written = {each.leaf: each for each in draw.literals}

    def change(position: int, tensor: torch.Tensor) -> torch.Tensor:
        nonlocal applied
        wanted = draw.leaves is None or position in draw.leaves
        if draw.variant != "task" and wanted and position < len(leaves) and leaves[position].structure is not None:
            structure = leaves[position].structure
            if values.takes(draw.variant, structure):
                seed = (draw.seed * 1000003 + position) & 0x7FFFFFFF
                # a declared range holds at every size; an observed one, and one that follows a size, at its own
                fixed = position in state.declared and structure.high_axis is None
                sizes = None if fixed else instance.integers or None
                tensor = values.apply(draw.variant, tensor, structure, seed, sizes=sizes)
                applied += 1
        if position in state.declared:
            tensor = conform(tensor, state.declared[position])
        if position in written:
            tensor = _written_down(tensor, written[position])
        if dtype is not None and tensor.is_floating_point():
            tensor = tensor.to(codec.DTYPES[dtype])
        if draw.rows is not None and position in draw.batched:
            tensor = tensor[draw.rows[0]:draw.rows[1]].contiguous()
        layout = draw.layouts[position] if position < len(draw.layouts) else "task"
        if layout == "expanded" and tensor.dim() >= 2 and tensor.shape[0] > 1:
            tensor = tensor[:1].expand(tensor.shape).contiguous()
        return tensor

    arguments = arguments.map_tensors(change)
    if draw.variant != "task" and not applied:
        return arguments, f"no input takes the variation {draw.variant}"
    if draw.injections:
        tensors = arguments.tensors()
        done = 0
        for injection in draw.injections:
            if injection.leaf < len(tensors):
                done += _inject(tensors[injection.leaf], injection.position, injection.value)
        if not done:
            return arguments, "no floating input to put the value into"
    return arguments, ""


def _written_down(tensor: torch.Tensor, literal: Explicit) -> torch.Tensor:
    """A tensor of the same form with the values that a recipe names."""
    made = torch.full_like(tensor, literal.fill)
    if literal.places:
        flat = torch.full((tensor.numel(),), literal.fill, dtype=torch.float64)
        flat[torch.tensor(literal.places)] = torch.tensor(literal.values, dtype=torch.float64)
        made.copy_(flat.reshape(tensor.shape))
    return made


def _inject(tensor: torch.Tensor, position: float, value: str) -> int:
    if not tensor.is_floating_point() or tensor.numel() == 0:
        return 0
    info = torch.finfo(tensor.dtype)
    # as far above what is lost to subnormal numbers as the dtype has room for below ordinary ones
    tiny = (4 if tensor.dtype == torch.float16 else 2**16) * info.smallest_normal
    number = {**INJECTED, "subnormal": info.smallest_normal / 4, "-subnormal": -info.smallest_normal / 4,
              "zero": 0.0, "tiny": tiny, "-tiny": -tiny,
              "max": info.max, "-max": info.min}[value]
    flat = min(tensor.numel() - 1, int(position * tensor.numel()))
    tensor[_index(tensor, flat)] = number
    return 1


def arranged(arguments: Any, layouts: tuple[str, ...], device: str = "cpu") -> Any:
    """The arguments as private tensors, each in its layout."""

    def arrange(position: int, tensor: torch.Tensor) -> torch.Tensor:
        layout = layouts[position] if position < len(layouts) else "task"
        chosen = place(layout, tuple(tensor.shape)) if layout != "task" else None
        if chosen is None:
            made = torch.empty_strided(tuple(tensor.shape), tensor.stride(), dtype=tensor.dtype, device=device)
        else:
            storage = torch.zeros(chosen.length, dtype=tensor.dtype, device=device)
            made = storage.as_strided(tuple(tensor.shape), chosen.stride, chosen.offset)
        if made.numel():
            distinct(made).copy_(distinct_like(tensor.detach(), made))
        return made

    return arguments.map_tensors(arrange)


def _index(tensor: torch.Tensor, flat: int) -> tuple[int, ...]:
    """Index of the element that is `flat`-th in row-major order, whatever the strides."""
    return tuple(int(i) for i in torch.unravel_index(torch.tensor(flat), tensor.shape))


def otherwise(plain: Arguments, draw: Draw, factor: float = 1.0) -> Iterator[Arguments]:
    """The arguments with finite values where a draw injects others: three times, each time other values.

    With a factor, each of these values is multiplied by it, and 0 becomes how far it is from 1.
    """
    for turn in range(3):
        other = plain.map_tensors(lambda _, t: t.clone())
        tensors = other.tensors()
        for injection in draw.injections:
            if injection.leaf < len(tensors) and tensors[injection.leaf].is_floating_point():
                _replace(tensors[injection.leaf], injection.position, turn, factor)
        yield other


def own_copy(model: Any) -> Any:
    """A module of one's own; a function as it is."""
    return copy.deepcopy(model) if isinstance(model, torch.nn.Module) else model


def _replace(tensor: torch.Tensor, position: float, turn: int, factor: float) -> None:
    """Put another finite value into one element: large, large of the other sign, or its neighbour's."""
    flat = min(tensor.numel() - 1, int(position * tensor.numel()))
    values = tensor.reshape(-1)
    finite = values[torch.isfinite(values)].abs()
    scale = float(finite.max()) if finite.numel() else 1.0
    number = (4 * scale + 1, -4 * scale - 1, float(values[flat - 1]) if flat else float(values[-1]))[turn]
    tensor[_index(tensor, flat)] = number if factor == 1.0 else number * factor or factor - 1.0


def layout_applies(tensors: list[torch.Tensor], layouts: tuple[str, ...]) -> bool:
    """Whether any of the layouts, by position, says something new for its tensor's shape."""
    return any(place(layout, tuple(t.shape)) is not None
               for t, layout in zip(tensors, layouts, strict=False) if layout != "task")


def cast(arguments: Arguments, dtype: torch.dtype | None) -> Arguments:
    """Tensors that are arguments themselves, not parts of one, cast to a dtype, integers too."""
    if dtype is None:
        return arguments
    return Arguments(
        tuple(a.to(dtype) if isinstance(a, torch.Tensor) else a for a in arguments.args),
        {k: a.to(dtype) if isinstance(a, torch.Tensor) else a for k, a in arguments.kwargs.items()},
    )
