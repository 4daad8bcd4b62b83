"""What an operator does to arrays, once its types are settled."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import triton.language as tl

from .formats import Array, from_fp32, is_packed, to_fp32


def _floor_toward_zero(a: Array, b: Array) -> Array:
    quotient = np.floor_divide(a, b)
    if a.dtype.kind == "u":
        return quotient
    remainder = a - quotient * b
    result: Array = quotient + ((remainder != 0) & ((a < 0) != (b < 0))).astype(a.dtype)
    return result


def _remainder(a: Array, b: Array) -> Array:
    """Integers: C's `%`. Floats: ``fma(-trunc(a / b), b, a)``, as the compiler expands it."""
    if a.dtype != np.float32:
        return np.fmod(a, b)
    quotient = np.trunc(a / b).astype(np.float64)
    exact = (a.astype(np.float64) - quotient * b.astype(np.float64)).astype(np.float32)
    return np.where(np.isinf(b) & np.isfinite(a), a, exact)


def _shift(function: Callable[..., Array]) -> Callable[[Array, Array], Array]:
    """Shifts by the width or more give what is left after shifting everything out."""

    def shift(a: Array, b: Array) -> Array:
        width = a.dtype.itemsize * 8
        amount = b.astype(np.int64)
        wide = (amount >= width) | (amount < 0)
        if not wide.any():
            return function(a, b)
        if function is np.right_shift and a.dtype.kind == "i":
            result: Array = function(a, np.where(wide, width - 1, amount).astype(a.dtype))
            return result
        moved = function(a, np.where(wide, 0, amount).astype(a.dtype))
        return np.where(wide, np.zeros((), a.dtype), moved)

    return shift


ARITHMETIC: dict[str, Callable[[Array, Array], Array]] = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "truediv": np.true_divide,
    "fdiv": np.true_divide,
    "floordiv": _floor_toward_zero,
    "mod": _remainder,
    "and_": np.bitwise_and,
    "or_": np.bitwise_or,
    "xor_": np.bitwise_xor,
    "shl": _shift(np.left_shift),
    "lshr": _shift(np.right_shift),
    "ashr": _shift(np.right_shift),
    "minimum": np.minimum,
    "maximum": np.maximum,
    "minnum": np.fmin,
    "maxnum": np.fmax,
}
COMPARISON: dict[str, Callable[[Array, Array], Array]] = {
    "greater_than": np.greater,
    "greater_equal": np.greater_equal,
    "less_than": np.less,
    "less_equal": np.less_equal,
    "equal": np.equal,
    "not_equal": np.not_equal,
}
# One-bit integers add modulo 2.
ONE_BIT = {"add": np.logical_xor, "sub": np.logical_xor, "mul": np.logical_and}
BITWISE = frozenset({"and_", "or_", "xor_", "shl", "lshr", "ashr"})


def division_type(a: Any, b: Any) -> Any:
    """Type in which `/` is computed, by Triton's rules for true division."""
    if a.is_floating() and b.is_floating():
        return a if a.fp_mantissa_width > b.fp_mantissa_width else b
    if a.is_floating():
        return a
    if b.is_floating():
        return b
    return tl.float32


def compose(
    function: Callable[[Array, Array], Array],
    common: str,
    comparison: bool,
    left: tuple[Array | None, Callable[[Array], Array] | None],
    right: tuple[Array | None, Callable[[Array], Array] | None],
) -> Callable[[Array, Array], Array]:
    """`function` on operands converted to `common`, in float32 where numpy lacks the type."""
    (left_const, left_cast), (right_const, right_cast) = left, right
    if is_packed(common):
        # The exact float32 result of two operands of at most 8 significant bits rounds once.
        if left_const is not None:
            left_const = to_fp32(left_const, common)
        if right_const is not None:
            right_const = to_fp32(right_const, common)

        def packed(a: Array, b: Array) -> Array:
            x = left_const if left_const is not None else to_fp32(left_cast(a) if left_cast else a, common)
            y = right_const
            if y is None:
                y = to_fp32(right_cast(b) if right_cast else b, common)
            z = function(x, y)
            return z if comparison else from_fp32(z, common)

        return packed
    if left_const is None and right_const is None and not left_cast and not right_cast:
        return function
    if right_const is not None and not left_cast and left_const is None:
        return lambda a, b: function(a, right_const)
    if left_const is not None and not right_cast and right_const is None:
        return lambda a, b: function(left_const, b)

    def general(a: Array, b: Array) -> Array:
        x = left_const if left_const is not None else (left_cast(a) if left_cast else a)
        y = right_const if right_const is not None else (right_cast(b) if right_cast else b)
        return function(x, y)

    return general
