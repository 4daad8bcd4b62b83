"""The CUDA device library (`tl.extra.cuda.libdevice`) on numpy arrays.

Functions of float32 are computed in float64 and rounded once, so they are more accurate
than the library's documented 1 to 4 units in the last place. As Triton builds it, the
library takes subnormal float32 numbers for zeros, except in logarithms. Names and meanings: the CUDA
math API and the libdevice user's guide.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from .errors import NeedsGpu
from .formats import Array, converter, flush_subnormals
from .native import on_torch

_Function = Callable[..., Any]


def _torch(function: Any) -> _Function:
    return lambda *args: on_torch(function, *(a.astype(np.float64) for a in args))


def _each(function: Callable[..., float]) -> _Function:
    return np.vectorize(function, otypes=[np.float64])


def _bessel_yn(n: Array, x: Array) -> Array:
    before, now = torch.special.bessel_y0, torch.special.bessel_y1
    result: Array = _each(lambda k, v: _recur(int(k), v, before, now))(n, x)
    return result


def _bessel_jn(n: Array, x: Array) -> Array:
    """Integral form of the Bessel function of integer order (Abramowitz and Stegun 9.1.21)."""
    t = (np.arange(4096) + 0.5) * (math.pi / 4096)
    result: Array = _each(lambda k, v: float(np.mean(np.cos(k * t - v * np.sin(t)))))(n, x)
    return result


def _recur(order: int, value: float, zero: Any, one: Any) -> float:
    x = torch.tensor(float(value), dtype=torch.float64)
    before, now = float(zero(x)), float(one(x))
    if order == 0:
        return before
    for k in range(1, order):
        before, now = now, 2 * k / float(value) * now - before
    return now


def _erfcinv(x: Array) -> Array:
    near: Array = _torch(torch.special.ndtri)(x / 2) * -math.sqrt(0.5)
    return near


def _tgamma(x: float) -> float:
    if math.isnan(x) or x == -math.inf:
        return math.nan
    if x == 0:
        return math.copysign(math.inf, x)
    if x < 0 and x == math.floor(x):
        return math.nan
    try:
        return math.gamma(x)
    except OverflowError:
        return math.inf


def _round_half_away(x: Array) -> Array:
    whole = np.trunc(x)
    return np.copysign(np.where(np.abs(x - whole) >= 0.5, np.abs(whole) + 1, np.abs(whole)), x)


def _pi_part(function: Any) -> _Function:
    """sin(pi x) and cos(pi x), exact where x is a multiple of one half."""

    def scaled(x: Array) -> Array:
        reduced = np.fmod(x, 2.0)
        doubled = reduced * 2
        exact = doubled == np.round(doubled)
        table = np.array([0.0, 1.0, 0.0, -1.0])
        step = np.where(exact & np.isfinite(doubled), doubled, 0).astype(np.int64)
        if function is np.cos:
            step = step + 1
        return np.where(exact, table[step % 4], function(math.pi * reduced))

    return scaled


def _logb(x: Array) -> Array:
    exponent = np.frexp(x)[1] - 1.0
    special = np.where(x == 0, -np.inf, np.where(np.isinf(x), np.inf, x))
    return np.where((x == 0) | ~np.isfinite(x), special, exponent)


_FLOAT: dict[str, _Function] = {
    "abs": np.abs,
    "fabs": np.abs,
    "acos": np.arccos,
    "acosh": np.arccosh,
    "asin": np.arcsin,
    "asinh": np.arcsinh,
    "atan": np.arctan,
    "atan2": np.arctan2,
    "atanh": np.arctanh,
    "cbrt": np.cbrt,
    "ceil": np.ceil,
    "copysign": np.copysign,
    "cos": np.cos,
    "cosh": np.cosh,
    "cospi": _pi_part(np.cos),
    "cyl_bessel_i0": _torch(torch.special.i0),
    "cyl_bessel_i1": _torch(torch.special.i1),
    "erf": _torch(torch.erf),
    "erfc": _torch(torch.erfc),
    "erfcinv": _erfcinv,
    "erfcx": _torch(torch.special.erfcx),
    "erfinv": _torch(torch.erfinv),
    "exp": np.exp,
    "exp10": lambda x: np.power(10.0, x),
    "exp2": np.exp2,
    "expm1": np.expm1,
    "fdim": lambda x, y: np.where(np.isnan(x) | np.isnan(y), np.nan, np.maximum(x - y, 0)),
    "floor": np.floor,
    "fmod": np.fmod,
    "hypot": np.hypot,
    "j0": _torch(torch.special.bessel_j0),
    "j1": _torch(torch.special.bessel_j1),
    "lgamma": _torch(torch.lgamma),
    "log": np.log,
    "log10": np.log10,
    "log1p": np.log1p,
    "log2": np.log2,
    "logb": _logb,
    "nearbyint": np.rint,
    "norm3d": lambda a, b, c: np.sqrt(a * a + b * b + c * c),
    "norm4d": lambda a, b, c, d: np.sqrt(a * a + b * b + c * c + d * d),
    "normcdf": _torch(lambda x: torch.special.erfc(x * -math.sqrt(0.5)) / 2),
    "normcdfinv": _torch(torch.special.ndtri),
    "pow": np.power,
    "powi": lambda x, n: np.power(x, n.astype(np.float64)),
    "rcbrt": lambda x: 1 / np.cbrt(x),
    "remainder": np.vectorize(
        lambda x, y: math.nan if math.isinf(x) or y == 0 else math.remainder(x, y), otypes=[np.float64]
    ),
    "rhypot": lambda x, y: 1 / np.hypot(x, y),
    "rint": np.rint,
    "rnorm3d": lambda a, b, c: 1 / np.sqrt(a * a + b * b + c * c),
    "rnorm4d": lambda a, b, c, d: 1 / np.sqrt(a * a + b * b + c * c + d * d),
    "round": _round_half_away,
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "saturate": lambda x: np.fmin(np.fmax(np.where(np.isnan(x), 0, x), 0), 1),
    "sin": np.sin,
    "sinh": np.sinh,
    "sinpi": _pi_part(np.sin),
    "sqrt": np.sqrt,
    "tan": np.tan,
    "tanh": np.tanh,
    "tgamma": _each(_tgamma),
    "trunc": np.trunc,
    "y0": _torch(torch.special.bessel_y0),
    "y1": _torch(torch.special.bessel_y1),
    "jn": _bessel_jn,
    "yn": _bessel_yn,
    "fma": lambda x, y, z: x * y + z,
    "fdividef": lambda x, y: x / y,
}
"""Functions of floats, evaluated in float64."""

_PREDICATE: dict[str, _Function] = {
    "finitef": np.isfinite,
    "isfinited": np.isfinite,
    "isinfd": np.isinf,
    "isinff": np.isinf,
    "isnand": np.isnan,
    "isnanf": np.isnan,
    "signbitd": np.signbit,
    "signbitf": np.signbit,
}
_ARITHMETIC: dict[str, _Function] = {
    "add": lambda x, y: x + y,
    "sub": lambda x, y: x - y,
    "mul": lambda x, y: x * y,
    "div": lambda x, y: x / y,
    "rcp": lambda x: 1 / x,
    "sqrt": np.sqrt,
    "fma": lambda x, y, z: x * y + z,
    "rsqrt": lambda x: 1 / np.sqrt(x),
}
_ROUND_TO_INT: dict[str, _Function] = {"rn": np.rint, "rz": np.trunc, "rd": np.floor, "ru": np.ceil}
_INT_NAMES = {"int": "int32", "uint": "uint32", "ll": "int64", "ull": "uint64"}
_FLOAT_NAMES = {"float": np.float32, "double": np.float64}
_BITCASTS = {
    "float_as_int",
    "float_as_uint",
    "int_as_float",
    "uint_as_float",
    "double_as_longlong",
    "longlong_as_double",
}


def _directed(exact: Array, dtype: np.dtype[Any], mode: str) -> Array:
    """`exact` (float64) rounded to `dtype` in a direction."""
    near = exact.astype(dtype)
    if mode == "rn" or dtype == np.float64:
        return near
    back = near.astype(np.float64)
    down = np.where(back > exact, np.nextafter(near, dtype.type(-np.inf)), near)
    up = np.where(back < exact, np.nextafter(near, dtype.type(np.inf)), near)
    if mode == "rd":
        return down
    if mode == "ru":
        return up
    return np.where(exact >= 0, down, up)


def _integer(name: str, args: list[Array], dtype: np.dtype[Any]) -> Array | None:
    """Functions of integers; None if `name` is not one."""
    x = args[0]
    bits = x.dtype.itemsize * 8
    unsigned = x.view(np.dtype(f"u{bits // 8}")) if x.dtype.kind == "i" else x
    if name in ("clz", "clzll"):
        return np.vectorize(lambda v: bits - int(v).bit_length(), otypes=[np.int32])(unsigned)  # type: ignore[no-any-return]
    if name in ("popc", "popcll"):
        return np.vectorize(lambda v: int(v).bit_count(), otypes=[np.int32])(unsigned)  # type: ignore[no-any-return]
    if name in ("ffs", "ffsll"):
        return np.vectorize(lambda v: (int(v) & -int(v)).bit_length(), otypes=[np.int32])(unsigned)  # type: ignore[no-any-return]
    if name in ("brev", "brevll"):
        flip = np.vectorize(lambda v: int(f"{int(v):0{bits}b}"[::-1], 2), otypes=[unsigned.dtype])
        return flip(unsigned).view(x.dtype)  # type: ignore[no-any-return]
    if name in ("abs", "llabs"):
        return np.abs(x)
    if name in ("mulhi", "umulhi", "mul64hi", "umul64hi"):
        wide = np.vectorize(lambda a, b: (int(a) * int(b)) >> bits, otypes=[x.dtype])
        return wide(x, args[1])  # type: ignore[no-any-return]
    if name in ("mul24", "umul24"):
        return _mul24(x, args[1])
    if name in ("sad", "usad"):
        distance = np.abs(x.astype(np.int64) - args[1].astype(np.int64))
        return (distance + args[2].astype(np.int64)).astype(dtype)
    if name in ("hadd", "uhadd"):
        return ((x.astype(np.int64) + args[1].astype(np.int64)) >> 1).astype(dtype)
    if name in ("rhadd", "urhadd"):
        return ((x.astype(np.int64) + args[1].astype(np.int64) + 1) >> 1).astype(dtype)
    if name == "byte_perm":
        return np.vectorize(_byte_perm, otypes=[np.int32])(x, args[1], args[2])  # type: ignore[no-any-return]
    return None


def _mul24(a: Array, b: Array) -> Array:
    shift = np.array(8, dtype=a.dtype)
    low_a = np.right_shift(np.left_shift(a, shift), shift).astype(np.int64)
    low_b = np.right_shift(np.left_shift(b, shift), shift).astype(np.int64)
    result: Array = (low_a * low_b).astype(a.dtype)
    return result


def _byte_perm(a: int, b: int, selector: int) -> int:
    pool = (int(a) & 0xFFFFFFFF) | ((int(b) & 0xFFFFFFFF) << 32)
    result = 0
    for i in range(4):
        result |= ((pool >> (8 * ((int(selector) >> (4 * i)) & 7))) & 0xFF) << (8 * i)
    return result - (1 << 32) if result >> 31 else result


def _conversion(name: str, args: list[Array], dtype: np.dtype[Any]) -> Array | None:
    """Conversions such as ``float2int_rz``; None if `name` is not one."""
    if name in _BITCASTS:
        return args[0].view(dtype)
    if name == "double2hiint":
        return (args[0].view(np.int64) >> 32).astype(np.int32)
    if name == "double2loint":
        return args[0].view(np.int64).astype(np.int32)
    if name == "hiloint2double":
        high, low = args[0].astype(np.int64), args[1].view(np.uint32).astype(np.int64)
        return ((high << 32) | low).view(np.float64)
    pair, _, mode = name.partition("_")
    _, found, target = pair.partition("2")
    if not found or mode not in _ROUND_TO_INT:
        return None
    if target in _INT_NAMES:
        whole = _ROUND_TO_INT[mode](args[0])
        source = "fp64" if whole.dtype == np.float64 else "fp32"
        return converter(source, _INT_NAMES[target])(whole)
    if target in _FLOAT_NAMES:
        return _directed(args[0].astype(np.float64), dtype, mode)
    return None


def call(symbol: str, args: list[Array], dtype: np.dtype[Any]) -> Array:
    """The value of a device library function.

    Args:
        symbol: its name there, such as ``__nv_tanhf``.
        args: arrays of one shape.
        dtype: dtype of the result.

    Raises:
        NeedsGpu: if there is no such function here.
    """
    args = [np.ascontiguousarray(a).reshape(a.shape) for a in args]
    name = symbol.removeprefix("__nv_")
    bits_only = name in _BITCASTS or name.startswith("nextafter")
    if not bits_only and name not in ("logf", "log2f", "log10f"):
        args = [flush_subnormals(a) for a in args]
    result = _lookup(name, args, dtype)
    if result is None:
        raise NeedsGpu(f"the device function {symbol}")
    return result if bits_only else flush_subnormals(result)


def _lookup(name: str, args: list[Array], dtype: np.dtype[Any]) -> Array | None:
    if name in _PREDICATE:
        return np.asarray(_PREDICATE[name](args[0])).astype(dtype)
    if args and args[0].dtype.kind in "iu":
        result = _integer(name, args, dtype)
        if result is not None:
            return result
    result = _conversion(name, args, dtype)
    if result is not None:
        return result
    if name.startswith("fast_"):
        name = name.removeprefix("fast_")
    stem, _, mode = name.rpartition("_")
    if mode in _ROUND_TO_INT and stem:
        operation = stem[1:] if stem[0] in "fd" and stem[1:] in _ARITHMETIC else stem.removesuffix("f")
        if operation in _ARITHMETIC:
            exact = _ARITHMETIC[operation](*(a.astype(np.float64) for a in args))
            return _directed(exact, dtype, mode)
    if name in ("nextafter", "nextafterf"):
        return np.nextafter(*args)
    if name in ("ilogb", "ilogbf"):
        exponent = _logb(args[0].astype(np.float64))
        return converter("fp64", "int32")(np.where(np.isnan(exponent), -np.inf, exponent))
    if name in ("llrint", "llrintf"):
        return converter("fp64", "int64")(np.rint(args[0].astype(np.float64)))
    if name in ("llround", "llroundf"):
        return converter("fp64", "int64")(_round_half_away(args[0].astype(np.float64)))
    if name in ("ldexp", "ldexpf", "scalbn", "scalbnf"):
        return np.ldexp(args[0].astype(np.float64), args[1]).astype(dtype)
    if name == "rcp64h":
        return 1 / args[0]
    function = _FLOAT.get(name) or (_FLOAT.get(name[:-1]) if name.endswith("f") else None)
    if function is None:
        return None
    return np.asarray(function(*(a.astype(np.float64) for a in args))).astype(dtype)
