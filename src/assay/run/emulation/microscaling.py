"""Blocks in microscaling formats (OCP Microscaling Formats specification 1.0)."""

from __future__ import annotations

from typing import Any

import numpy as np

from .formats import Array, to_fp32

_E2M1 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6], dtype=np.float32)


def scaled(block: Any, scale: Any, fmt: Any, k_pack: bool, k_axis: int) -> Array:
    """float32 values of a block whose groups along K share a scale."""
    name = str(fmt).rpartition(".")[2].lower()
    data = block.data
    if name == "e2m1":
        low, high = data & np.uint8(15), data >> np.uint8(4)
        axis = k_axis if k_pack else (-2 if k_axis == -1 else -1)
        codes = np.moveaxis(np.stack([low, high]), 0, data.ndim + axis + 1)
        shape = list(data.shape)
        shape[axis] *= 2
        codes = codes.reshape(shape)
        values = np.where(codes & 8, -_E2M1[codes & 7], _E2M1[codes & 7]).astype(np.float32)
    else:
        values = to_fp32(data, block.dtype.scalar.name)
    if scale is None:
        return np.asarray(values)
    if scale.dtype.scalar.name == "fp8e4nv":
        factors = to_fp32(scale.data, "fp8e4nv")
    else:
        factors = np.exp2(scale.data.astype(np.float32) - 127).astype(np.float32)
        factors = np.where(scale.data == 255, np.float32(np.nan), factors)
    if k_axis == -2:
        factors = np.swapaxes(factors, -1, -2)
    repeat = values.shape[k_axis] // factors.shape[k_axis]
    result: Array = values * np.repeat(factors, repeat, axis=k_axis)
    return result
