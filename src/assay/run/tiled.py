"""Calls on a batch repeated many times on the device, of which a few blocks come back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch


def parse(condition: str) -> tuple[int, int, tuple[int, ...]]:
    """(copies, rows, leaves) of `COPIES/ROWS/LEAF,LEAF`."""
    copies, rows, leaves = condition.split("/")
    return int(copies), int(rows), tuple(int(n) for n in leaves.split(","))


def repeat(inputs: list[torch.Tensor], copies: int, leaves: tuple[int, ...]) -> list[torch.Tensor]:
    """The inputs with the named ones repeated along their first dimension."""
    return [t.repeat(copies, *[1] * (t.dim() - 1)) if i in leaves else t for i, t in enumerate(inputs)]


def blocks(outputs: Any, copies: int, rows: int, count: int,
           change: Callable[[Any, Callable[[torch.Tensor], torch.Tensor]], Any]) -> list[Any]:
    """`count` blocks of an output: the first, the last, and evenly between, each as from the small batch.

    An output whose first dimension is not the repeated batch stays as it is, so that its shape is judged.
    """
    numbers = [round(i * (copies - 1) / (count - 1)) for i in range(count)]

    def block(number: int) -> Callable[[torch.Tensor], torch.Tensor]:
        def cut(tensor: torch.Tensor) -> torch.Tensor:
            if tensor.dim() == 0 or tensor.shape[0] != copies * rows:
                return tensor
            return tensor[number * rows:(number + 1) * rows].clone()

        return cut

    return [change(outputs, block(number)) for number in numbers]
