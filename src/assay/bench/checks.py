"""Outputs of timed calls against the truth of what they were fed, with the tolerance of every other verdict."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from assay import oracle
from assay.gates.numbers import shown
from assay.oracle import LeafTruth
from assay.probe.record import Truth

SAMPLE = 1 << 11
"""Elements of a large output that a timed call is checked at."""
WHOLE = 1 << 18
"""Outputs of at most so many elements are checked whole."""


@dataclass(frozen=True)
class Wrong:
    """One output that is not right: where, and what it is instead."""

    output: str
    expected: str
    actual: str
    tolerance: float


def sampled(leaf: LeafTruth) -> bool:
    """Whether elements of this output can be judged by themselves, and there are many."""
    return leaf.kind == "float" and leaf.index is None and leaf.y.numel() > WHOLE


class Expected:
    """Truth of one draw, ready to be compared with elements at any positions.

    Args:
        truth: of the draw; it is `ok`.
    """

    def __init__(self, truth: Truth) -> None:
        self.truth = truth

    def wrong(self, outputs: Sequence[tuple[tuple[int, ...], torch.Tensor]],
              places: Sequence[Sequence[int]] | None = None) -> Wrong | None:
        """The first output that is wrong; None where none is.

        Args:
            outputs: shape and values of each output tensor; the values whole, or those at `places`.
            places: flat positions by output; an empty list means whole.
        """
        leaves, paths = self.truth.leaves, self.truth.paths
        if len(outputs) != len(leaves):
            return Wrong("", f"{len(leaves)} tensors", f"{len(outputs)} tensors", 0.0)
        for number, ((shape, values), leaf, path) in enumerate(zip(outputs, leaves, paths, strict=True)):
            if shape != tuple(leaf.y.shape):
                return Wrong(path, f"shape {list(leaf.y.shape)}", f"shape {list(shape)}", 0.0)
            where = places[number] if places is not None else ()
            if where:
                if values.numel() != len(where):
                    return Wrong(path, f"{len(where)} elements", f"{values.numel()} elements", 0.0)
                leaf = elements_of(leaf, where)
            found = _whole(leaf, path, values)
            if found is not None:
                return found
        return None


def elements_of(leaf: LeafTruth, where: Sequence[int]) -> LeafTruth:
    """The truth of the elements of a floating output at flat positions, as a leaf of shape [len(where)]."""
    place = torch.unravel_index(torch.tensor(list(where)), tuple(leaf.y.shape))
    return dataclasses.replace(
        leaf, y=leaf.y[place], native=leaf.native[place], spread=leaf.spread[place],
        pooled=leaf.pooled.expand(leaf.spread.shape)[place], decided=leaf.decided[place])


def _whole(leaf: LeafTruth, path: str, values: torch.Tensor) -> Wrong | None:
    result = oracle.compare(leaf, values.reshape(leaf.y.shape))
    if result.ok:
        return None
    return Wrong(path, shown(result.expected), shown(result.actual), result.tolerance)
