"""A ceiling on what task code may allocate, asked before the allocation happens."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
from torch.overrides import TorchFunctionMode


class TooLarge(MemoryError):
    """Task code asked for more elements than the ceiling allows."""


class AllocationLimit(TorchFunctionMode):
    """Within this context, torch's tensor makers raise TooLarge once they would pass ``elements`` in all.

    Counts what ``torch.randn``, ``torch.empty`` and their like are asked for (module constructors allocate
    through them too). What operations on existing tensors allocate is not counted.

    Args:
        elements: ceiling on the sum of elements over all makers called; 0 for none.
        plain_weights: fill large tensors with zeros where random values are asked for in place, as the
            initialisation of layers does. What a model accepts does not depend on its weights, and drawing
            a hundred million of them takes a second.
    """

    def __init__(self, elements: int, *, plain_weights: bool = False) -> None:
        super().__init__()
        self.elements = elements
        self.plain_weights = plain_weights
        self.counted = 0

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Iterable[type],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        """Count what a maker would allocate, then call it."""
        words = dict(kwargs or {})
        size = _MAKERS.get(func)
        if size is not None:
            self.counted += size(args, words)
            if self.elements and self.counted > self.elements:
                raise TooLarge(f"more than {self.elements} elements")
        elif self.plain_weights and func in _FILLS and args and args[0].numel() > _LARGE_WEIGHT:
            return args[0].zero_()
        return func(*args, **words)


def _extents(args: tuple[Any, ...], words: Mapping[str, Any]) -> int:
    """``randn(2, 3)``, ``randn((2, 3))`` or ``randn(size=(2, 3))``."""
    shape = words.get("size", args)
    if len(shape) == 1 and isinstance(shape[0], list | tuple):
        shape = shape[0]
    return _product(shape)


def _shape(args: tuple[Any, ...], words: Mapping[str, Any]) -> int:
    """``randint(0, 9, (2, 3))``, ``full((2, 3), 1.0)``: the one argument that is a shape."""
    shape = words.get("size") or next((arg for arg in args if isinstance(arg, list | tuple)), ())
    return _product(shape)


def _steps(args: tuple[Any, ...], words: Mapping[str, Any]) -> int:
    """``linspace(0, 1, 5)``."""
    return _product((words.get("steps", args[2] if len(args) > 2 else 1),))


def _square(args: tuple[Any, ...], words: Mapping[str, Any]) -> int:
    """``eye(4)``, ``eye(4, 5)``."""
    return _product(args[:2] if len(args) > 1 else (args * 2 if args else (words.get("n", 1),) * 2))


def _range(args: tuple[Any, ...], words: Mapping[str, Any]) -> int:
    """``arange(end)``, ``arange(start, end, step)``."""
    try:
        start, end, step = (0, args[0], 1) if len(args) == 1 else (args[0], args[1], (*args, 1)[2])
        return max(0, -int((start - end) // step))
    except (IndexError, TypeError, ZeroDivisionError, OverflowError):
        return 0


def _product(shape: Any) -> int:
    """Elements of a shape; 0 for what is not a shape (the call itself will complain)."""
    try:
        return math.prod(int(extent) for extent in shape)
    except (TypeError, ValueError, RuntimeError):
        return 0


_LARGE_WEIGHT = 1 << 18
_FILLS = frozenset({torch.Tensor.uniform_, torch.Tensor.normal_, torch.Tensor.erfinv_})

_MAKERS: dict[Any, Callable[[tuple[Any, ...], Mapping[str, Any]], int]] = {
    torch.rand: _extents,
    torch.randn: _extents,
    torch.zeros: _extents,
    torch.ones: _extents,
    torch.empty: _extents,
    torch.randperm: _extents,
    torch.randint: _shape,
    torch.full: _shape,
    torch.normal: _shape,
    torch.linspace: _steps,
    torch.logspace: _steps,
    torch.eye: _square,
    torch.arange: _range,
}
