"""What TF32 does to a product, for a process that emulates a device: operands keep ten bits of their mantissa."""

from __future__ import annotations

from typing import Any

import numpy as np


def install() -> None:
    """Round float32 operands of `tl.dot` where the kernel asks for TF32, as tensor cores do."""
    from triton.runtime import interpreter

    builder: Any = interpreter.interpreter_builder
    plain = builder.create_dot

    def dot(a: Any, b: Any, d: Any, precision: Any, imprecise: Any) -> Any:
        if str(precision).rpartition(".")[2].lower() == "tf32":
            a, b = _rounded(a), _rounded(b)
        return plain(a, b, d, precision, imprecise)

    builder.create_dot = dot


def _rounded(handle: Any) -> Any:
    data = handle.data
    if data.dtype != np.float32:
        return handle
    bits = data.view(np.uint32).astype(np.uint64)
    rounded = ((bits + 0x1000) & ~np.uint64(0x1FFF)).astype(np.uint32).view(np.float32)
    return type(handle)(np.where(np.isfinite(data), rounded, data), handle.dtype)
