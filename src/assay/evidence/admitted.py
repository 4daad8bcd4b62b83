"""Whether values written down for an input stay in the task's domain. Pure."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from assay.probe.structure import Structure, Trait

_NO_RULE: tuple[Trait, ...] = (
    "constant", "uniform", "permutation", "ascending", "descending", "rows_sum_to_one", "unit_norm_rows",
    "positive_definite", "orthogonal",
)
"""Structures of whole rows or matrices whose elements cannot be changed one at a time."""


def free(structure: Structure | None) -> bool:
    """Whether elements of an input may be changed one at a time at all."""
    return structure is not None and structure.kind != "complex" and not structure.nonfinite and (
        not structure.has(*_NO_RULE))


def admits(structure: Structure, tensor: torch.Tensor, sizes: Mapping[str, int]) -> bool:
    """Whether a tensor of finite values obeys a structure for which `free` holds.

    Args:
        structure: what is known of the input.
        tensor: the values, any dtype.
        sizes: the task's integers, for the range of an index.
    """
    if tensor.numel() == 0 or structure.kind == "boolean":
        return True
    values = tensor.double()
    if not bool(torch.isfinite(values).all()):
        return False
    low, high = _range(structure, sizes)
    if (low is not None and bool((values < low).any())) or (high is not None and bool((values > high).any())):
        return False
    checks = {
        "integral": lambda: bool((values == values.round()).all()),
        "binary": lambda: bool(((values == 0) | (values == 1)).all()),
        "signs": lambda: bool((values.abs() == 1).all()),
        "positive": lambda: bool((values > 0).all()),
        "non_negative": lambda: bool((values >= 0).all()),
        "negative": lambda: bool((values < 0).all()),
        "non_positive": lambda: bool((values <= 0).all()),
        "one_hot": lambda: bool(((values == 1).sum(-1) == 1).all() and ((values == 0) | (values == 1)).all()),
        "upper_triangular": lambda: torch.equal(values, values.triu()),
        "lower_triangular": lambda: torch.equal(values, values.tril()),
        "diagonal": lambda: torch.equal(values, values.triu().tril()),
        "banded": lambda: structure.band is not None
        and torch.equal(values, values.triu(-structure.band[0]).tril(structure.band[1])),
        "symmetric": lambda: values.shape[-1] == values.shape[-2] and torch.equal(values, values.transpose(-1, -2)),
    }
    return all(checks[trait]() for trait in structure.traits if trait in checks)


def _range(structure: Structure, sizes: Mapping[str, int]) -> tuple[float | None, float | None]:
    """Smallest and largest legal value; None where there is no bound."""
    if structure.kind == "float" and structure.has("normal_like") and not structure.has("bounded", "unit_interval"):
        return None, None
    high = structure.high
    if structure.high_axis is not None and structure.high_axis in sizes:
        high = float(sizes[structure.high_axis] + structure.high_offset)
    return structure.low, high
