"""Number formats that numpy lacks, and conversions as the GPU makes them.

bfloat16 values are held as uint16 and float8 values as uint8 bit patterns, as Triton's
interpreter holds them; arithmetic on them goes through float32.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
import triton.language as tl

Array = npt.NDArray[Any]

_FP8 = {
    "fp8e5": torch.float8_e5m2,
    "fp8e4nv": torch.float8_e4m3fn,
    "fp8e4b8": torch.float8_e4m3fnuz,
    "fp8e5b16": torch.float8_e5m2fnuz,
}

NUMPY: dict[str, np.dtype[Any]] = {
    "int1": np.dtype(np.bool_),
    "int8": np.dtype(np.int8),
    "uint8": np.dtype(np.uint8),
    "int16": np.dtype(np.int16),
    "uint16": np.dtype(np.uint16),
    "int32": np.dtype(np.int32),
    "uint32": np.dtype(np.uint32),
    "int64": np.dtype(np.int64),
    "uint64": np.dtype(np.uint64),
    "fp16": np.dtype(np.float16),
    "fp32": np.dtype(np.float32),
    "fp64": np.dtype(np.float64),
    "bf16": np.dtype(np.uint16),
    "fp8e5": np.dtype(np.uint8),
    "fp8e4nv": np.dtype(np.uint8),
    "fp8e4b8": np.dtype(np.uint8),
    "fp8e5b16": np.dtype(np.uint8),
    "fp8e4b15": np.dtype(np.uint8),
}
"""Storage dtype of each Triton scalar type."""


def numpy_dtype(scalar: tl.dtype) -> np.dtype[Any]:
    """Storage dtype of a Triton scalar type; pointers are uint64."""
    return NUMPY.get(scalar.name) or np.dtype(np.uint64)


def is_packed(name: str) -> bool:
    """Whether values of this type are bit patterns rather than numpy numbers."""
    return name == "bf16" or name.startswith("fp8")


def bf16_to_fp32(bits: Array) -> Array:
    """Exact float32 values of bfloat16 bit patterns."""
    wide: Array = bits.astype(np.uint32)
    return np.left_shift(wide, np.uint32(16)).view(np.float32)


def fp32_to_bf16(values: Array, toward_zero: bool = False) -> Array:
    """bfloat16 bit patterns of float32 values, ties to even; NaN stays a (quiet) NaN."""
    bits = np.ascontiguousarray(values).view(np.uint32)
    if toward_zero:
        rounded = (bits >> np.uint32(16)).astype(np.uint16)
    else:
        bias = ((bits >> np.uint32(16)) & np.uint32(1)) + np.uint32(0x7FFF)
        rounded = ((bits + bias) >> np.uint32(16)).astype(np.uint16)
    nan = np.isnan(values)
    if nan.any():
        rounded[nan] = ((bits[nan] >> np.uint32(16)) | np.uint32(0x40)).astype(np.uint16)
    return rounded


def flush_subnormals(values: Array) -> Array:
    """Subnormal float32 numbers replaced by zeros of their sign; other dtypes unchanged."""
    if values.dtype != np.float32:
        return values
    small = np.abs(values) < np.finfo(np.float32).tiny
    return np.where(small, np.copysign(np.float32(0), values), values) if small.any() else values


def fp64_to_fp32_odd(values: Array) -> Array:
    """float32 by rounding to odd, so that a second rounding to a narrower format is exact."""
    doubles = np.asarray(values, dtype=np.float64)
    near = doubles.astype(np.float32)
    too_far = np.abs(near.astype(np.float64)) > np.abs(doubles)
    down = np.where(too_far, np.nextafter(near, np.float32(0)), near).astype(np.float32)
    inexact = (down.astype(np.float64) != doubles) & np.isfinite(doubles)
    bits = down.view(np.uint32) | inexact.astype(np.uint32)
    result: Array = bits.view(np.float32)
    return result


def _fp8e4b15_table() -> Array:
    codes = np.arange(256, dtype=np.uint32)
    exponent, mantissa = (codes >> 3) & 15, codes & 7
    values = np.where(
        exponent == 0,
        mantissa / 8.0 * 2.0**-14,
        (1 + mantissa / 8.0) * 2.0 ** (exponent.astype(np.float64) - 15),
    )
    values = np.where((codes & 0x7F) == 0x7F, 1.75, values)
    return np.where(codes & 0x80, -values, values).astype(np.float32)


def _tables() -> dict[str, Array]:
    codes = torch.arange(256, dtype=torch.int32).to(torch.uint8)
    tables: dict[str, Array] = {
        name: codes.view(dtype).to(torch.float32).numpy() for name, dtype in _FP8.items()
    }
    tables["fp8e4b15"] = _fp8e4b15_table()
    return tables


_FP8_VALUES = _tables()


def _fp32_to_fp8(values: Array, name: str) -> Array:
    """Ties to even and saturating, as the ``cvt.rn.satfinite`` instructions do."""
    table = _FP8_VALUES[name]
    largest = float(np.nanmax(np.where(np.isinf(table), np.nan, table)))
    clipped = np.clip(values, -largest, largest).astype(np.float32)
    if name == "fp8e4b15":
        order = np.argsort(table[:128], kind="stable")
        magnitude = np.abs(clipped)
        upper = np.clip(np.searchsorted(table[:128][order], magnitude), 0, 127)
        lower = np.maximum(upper - 1, 0)
        low, high = table[:128][order][lower], table[:128][order][upper]
        below, above = magnitude - low, high - magnitude
        take_low = (below < above) | ((below == above) & (order[lower] % 2 == 0))
        codes = np.where(take_low, order[lower], order[upper]).astype(np.uint8)
        negative: Array = (np.signbit(clipped).astype(np.uint8) << np.uint8(7)) | codes
        return negative
    tensor = torch.from_numpy(np.ascontiguousarray(clipped))
    return tensor.to(_FP8[name]).view(torch.uint8).numpy().reshape(values.shape)


def to_fp32(data: Array, name: str) -> Array:
    """float32 values of data held as Triton type `name` (any floating type but fp64 is exact)."""
    if name == "bf16":
        return bf16_to_fp32(data)
    if name.startswith("fp8"):
        return _FP8_VALUES[name][data]
    return data.astype(np.float32)


def truncated_to_tf32(values: Array) -> Array:
    """float32 values as the matrix instructions read them for TF32: without the last 13 bits of the significand.

    That is what an H200 gives, to the last bit of its sums. NaN and infinities stay what they are.
    """
    kept = (np.ascontiguousarray(values).view(np.uint32) & np.uint32(0xFFFFE000)).view(np.float32)
    return np.array(np.where(np.isfinite(values), kept, values))


def from_fp32(values: Array, name: str) -> Array:
    """Data of Triton type `name` nearest to float32 values."""
    if name == "bf16":
        return fp32_to_bf16(values)
    if name.startswith("fp8"):
        return _fp32_to_fp8(values, name)
    return values.astype(NUMPY[name])


_NAN_TO_ZERO = frozenset({"int8", "uint8", "uint16"})
_INT_RANGE_THROUGH = {"int8": "int16", "uint8": "uint16"}


def _float_to_int(values: Array, name: str) -> Array:
    """Toward zero and saturating, as the ``cvt.rzi`` instructions do on an H200.

    NaN gives 0, or the top bit alone where the source or the target is 64 bits wide (from
    float64: for targets of 32 and 64 bits and int16). 8-bit integers are produced by
    truncating a 16-bit conversion, as the compiler does.
    """
    wide = NUMPY[_INT_RANGE_THROUGH.get(name, name)]
    limits = np.iinfo(wide)
    doubles = values.astype(np.float64)
    nan = np.isnan(doubles)
    whole = np.trunc(np.where(nan, 0.0, doubles))
    # 2**63 and 2**64 are doubles but no integers of the type: take the limit itself there.
    over, under = whole >= float(limits.max), whole <= float(limits.min)
    inside = np.where(over | under, 0.0, whole).astype(wide)
    result = np.array(np.where(over, wide.type(limits.max), np.where(under, wide.type(limits.min), inside)))
    if nan.any() and (wide.itemsize == 8 or (values.dtype == np.float64 and name not in _NAN_TO_ZERO)):
        result[nan] = limits.min if wide.kind == "i" else limits.max // 2 + 1
    return result.astype(NUMPY[name])


def _truncate_to_fp16(values: Array) -> Array:
    near = values.astype(np.float16)
    too_far = np.abs(near.astype(np.float64)) > np.abs(values.astype(np.float64))
    fixed = np.where(too_far, np.nextafter(near, np.float16(0)), near)
    return fixed.astype(np.float16)


def converter(src: str, dst: str, toward_zero: bool = False) -> Callable[[Array], Array]:
    """The conversion from one Triton scalar type to another, by their names.

    `toward_zero` asks for ``rtz`` rounding of a narrowing floating conversion.
    """
    source_float = src.startswith(("fp", "bf"))
    target_float = dst.startswith(("fp", "bf"))
    target = NUMPY[dst]
    if source_float and not target_float:
        if dst == "int1":
            return lambda data: _as_number(data, src) != 0
        return lambda data: _float_to_int(_as_number(data, src), dst)
    if not target_float:
        return lambda data: data.astype(target)
    if dst == "fp64":
        return lambda data: _as_number(data, src).astype(np.float64)
    if src == "fp64":
        if toward_zero and dst == "fp16":
            return _truncate_to_fp16
        if is_packed(dst):
            return lambda data: from_fp32(fp64_to_fp32_odd(data), dst)
        return lambda data: data.astype(target)
    if toward_zero and dst == "bf16":
        return lambda data: fp32_to_bf16(to_fp32(data, src), toward_zero=True)
    if toward_zero and dst == "fp16":
        return lambda data: _truncate_to_fp16(to_fp32(data, src))
    if is_packed(dst):
        return lambda data: from_fp32(to_fp32(data, src), dst)
    if is_packed(src):
        return lambda data: to_fp32(data, src).astype(target)
    return lambda data: data.astype(target)


def _as_number(data: Array, name: str) -> Array:
    return to_fp32(data, name) if is_packed(name) else data
