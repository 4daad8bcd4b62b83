"""Inputs for one draw of a probe: the task's generator, then a variation of some of its tensors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch

from assay.probe.structure import Structure
from assay.probe.values import apply, variants
from assay.task.instance import Instance
from assay.task.tree import Arguments


def draw(
    instance: Instance,
    seed: int,
    variant: str = "task",
    *,
    structures: Sequence[Structure | None] = (),
    leaves: Sequence[int] | None = None,
    native: Mapping[str, int] | None = None,
) -> Arguments:
    """Make the inputs of an instance, with a variation applied where it is legal.

    Args:
        instance: the task at the sizes wanted.
        seed: seed of the task's generator, and of the variation.
        variant: name of a variation; ``task`` leaves the generator's values as they are. A tensor whose
            structure does not admit it keeps the task's values.
        structures: structure of each tensor input, by position (``Study.tensor_inputs()``).
        leaves: positions of the tensors to vary; None for all.
        native: values of all the task's integers; needed where the instance's sizes differ from them.

    Raises:
        TaskError: the generator raised.
        MemoryError: the inputs do not fit.
    """
    inputs = instance.inputs(seed)
    if variant == "task":
        return inputs
    sizes = {**(native or {}), **instance.sizes} if instance.sizes else None

    def change(position: int, tensor: torch.Tensor) -> torch.Tensor:
        structure = structures[position] if position < len(structures) else None
        chosen = leaves is None or position in leaves
        if structure is None or not chosen or variant not in variants(structure):
            return tensor
        # each input has randomness of its own, whichever others vary
        varied = apply(variant, tensor, structure, seed * 1_000_003 + position, sizes=sizes)
        return varied.requires_grad_(tensor.requires_grad) if tensor.requires_grad else varied

    return inputs.map_tensors(change)


def legal_variants(structures: Sequence[Structure | None]) -> tuple[str, ...]:
    """Every variation that at least one of the tensors admits, the most telling first."""
    names: dict[str, None] = {}
    for structure in structures:
        if structure is not None:
            names.update(dict.fromkeys(variants(structure)))
    return tuple(names)
