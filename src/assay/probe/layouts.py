"""Memory layouts of an input: the same values, other strides."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

LAYOUTS = ("contiguous", "transposed", "sliced", "stepped", "expanded", "offset", "channels_last")


@dataclass(frozen=True)
class Placement:
    """Where the elements of a tensor lie within its storage, in elements.

    Attributes:
        stride: one per dimension.
        offset: index of the first element.
        length: elements in the storage.
    """

    stride: tuple[int, ...]
    offset: int
    length: int


def distinct(tensor: torch.Tensor) -> torch.Tensor:
    """The part of a tensor whose elements have a place of their own: expanded dimensions cut to one."""
    return distinct_like(tensor, tensor)


def distinct_like(tensor: torch.Tensor, strided: torch.Tensor) -> torch.Tensor:
    """`tensor` cut to one along every dimension that `strided`, of the same shape, expands."""
    for dim, (size, step) in enumerate(zip(strided.shape, strided.stride(), strict=True)):
        if step == 0 and size > 1:
            tensor = tensor.narrow(dim, 0, 1)
    return tensor


def _dense(shape: Sequence[int], order: Sequence[int]) -> tuple[int, ...]:
    """Strides of a dense tensor whose dimensions vary, slowest first, in `order`."""
    stride, step = [0] * len(shape), 1
    for dim in reversed(order):
        stride[dim] = step
        step *= max(1, shape[dim])
    return tuple(stride)


def _length(shape: Sequence[int], stride: Sequence[int], offset: int) -> int:
    if any(n == 0 for n in shape):
        return offset
    return offset + 1 + sum((n - 1) * s for n, s in zip(shape, stride, strict=True))


def as_made(shape: Sequence[int], stride: Sequence[int]) -> Placement:
    """The placement of a tensor as the task made it, without the storage around it."""
    return Placement(tuple(stride), 0, _length(shape, stride, 0))


def place(layout: str, shape: Sequence[int]) -> Placement | None:
    """The placement of `shape` under a layout; None where the layout says nothing new for that shape.

    Args:
        layout: one of `LAYOUTS`.
        shape: sizes of the dimensions.

    Raises:
        ValueError: an unknown layout.
    """
    rank = len(shape)
    dims = list(range(rank))
    numel = 1
    for n in shape:
        numel *= n
    if layout == "contiguous":
        stride = _dense(shape, dims)
        return Placement(stride, 0, numel)
    if layout not in LAYOUTS:
        raise ValueError(f"unknown layout {layout!r}; known: {', '.join(LAYOUTS)}")
    if numel <= 1 and layout != "offset":
        return None
    if layout == "transposed":
        if rank < 2 or shape[-1] == 1 or shape[-2] == 1:
            return None
        stride = _dense(shape, [*dims[:-2], dims[-1], dims[-2]])
        return Placement(stride, 0, numel)
    if layout == "sliced":
        if rank < 2:
            return None
        wide = [*shape[:-1], shape[-1] + 3]
        stride = _dense(wide, dims)
        return Placement(stride, 2, _length(shape, stride, 2) + 1)
    if layout == "stepped":
        if rank == 0:
            return None
        stride = tuple(2 * s for s in _dense(shape, dims))
        return Placement(stride, 0, _length(shape, stride, 0) + 1)
    if layout == "expanded":
        if rank < 2 or shape[0] == 1:
            return None
        stride = (0, *_dense(shape[1:], list(range(rank - 1))))
        return Placement(stride, 0, _length(shape, stride, 0))
    if layout == "offset":
        stride = _dense(shape, dims)
        return Placement(stride, 1, numel + 1)
    if rank not in (4, 5) or shape[1] == 1:
        return None
    return Placement(_dense(shape, [0, *dims[2:], 1]), 0, numel)
