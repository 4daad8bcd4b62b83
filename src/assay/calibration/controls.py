"""The control set: every operator, algorithm, dtype and data kind that belong together."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.utils import _pytree as pytree

from assay.calibration import norms, pointwise, products, reductions
from assay.calibration.model import Control, Operator

OPERATORS: tuple[Operator, ...] = (
    *reductions.OPERATORS,
    *norms.OPERATORS,
    *products.OPERATORS,
    *pointwise.OPERATORS,
)
"""Every operator of the control set."""


def as_kernel(algorithm: Callable[..., Any], dtype: torch.dtype) -> Callable[..., Any]:
    """An algorithm in float32 as a kernel of `dtype`: it widens what it loads and rounds what it stores."""

    def widened(value: Any) -> Any:
        return value.float() if isinstance(value, torch.Tensor) and value.is_floating_point() else value

    def rounded(value: Any) -> Any:
        return value.to(dtype) if isinstance(value, torch.Tensor) and value.is_floating_point() else value

    @functools.wraps(algorithm)
    def kernel(*inputs: Any) -> Any:
        return pytree.tree_map(rounded, algorithm(*(widened(v) for v in inputs)))

    return kernel


def controls() -> Iterator[Control]:
    """All controls, in a fixed order; those of one operator, dtype and data kind follow one another."""
    for operator in OPERATORS:
        for dtype in operator.dtypes:
            for data in operator.kinds:
                yield from _of(operator, dtype, data)


def _of(operator: Operator, dtype: torch.dtype, data: str) -> Iterator[Control]:
    make = functools.partial(operator.inputs, data, dtype)
    yield Control(operator.name, "native", dtype, data, operator.reference, operator.reference, make)
    for name, algorithm in operator.algorithms.items():
        if dtype not in operator.only.get(name, operator.dtypes):
            continue
        if data not in operator.per_algorithm.get(name, operator.kinds):
            continue
        kernel = as_kernel(algorithm, dtype)
        yield Control(operator.name, name, dtype, data, operator.reference, kernel, make)
