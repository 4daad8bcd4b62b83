"""Pointwise operators: basic arithmetic at u of the result, elementary functions with their argument error.

Sizes are standard deviations in units of u·|result|. One rounding has a deviation of 0.29 u (result
just below a power of two) to 0.58 u (just above); 0.75 u leaves room for what a dozen runs do not sample.
Division gets u, roots and reciprocals 2u and the reciprocal root 3u, because devices provide them with errors
up to 2 ulp that repeat wherever the argument does; elementary functions get 2u.
"""

from __future__ import annotations

import math
from typing import Any

import torch

from assay.oracle import approximate
from assay.oracle.arithmetic import is_real_or_complex, round_to
from assay.oracle.replay import EXACT, JUMPS, RULES, Replay
from assay.oracle.stacks import tensors_in

SIZES: dict[str, float] = {
    "add": 0.75,
    "sub": 0.75,
    "rsub": 0.75,
    "mul": 0.75,
    "square": 0.75,
    "div": 1.0,
    "true_divide": 1.0,
    "reciprocal": 2.0,
    "sqrt": 2.0,
    "rsqrt": 3.0,
    "hypot": 2.0,
}
"""Operators with a relative error of their own, in units of u."""

LINEAR = {"add", "sub", "rsub", "mul", "square"}
"""Operators whose result is independent of the algorithm when it is representable."""

POOLED_SCALE = frozenset({"log", "log2", "log10", "atanh", "logit", "erfinv", "sinc"})
"""Functions that legal kernels compute with an error relative to the tensor's scale where the result is
small."""

UNIT_SCALE = frozenset({"tanh", "expm1", "log1p", "sinh", "asinh"})
"""Functions that kernel languages lack, so that legal kernels go through exp(x) and log(1 + x): the error is
that of numbers near 1, however small the result."""

EXPONENTIAL = frozenset({"expm1", "sinh", "cosh"})
"""Functions whose large results carry the argument error of an exponential."""

LIBRARY = 2.0
"""Relative error of elementary functions, in units of u."""

_EXACT = """
neg abs relu relu_ sign sgn floor ceil round trunc maximum minimum fmax fmin clamp clamp_min clamp_max eq ne
lt le gt ge isnan isinf isfinite isposinf isneginf logical_and logical_or logical_not logical_xor
bitwise_and bitwise_or bitwise_not bitwise_xor where masked_fill threshold hardtanh relu6 nan_to_num
copysign signbit real imag conj conj_physical _conj_physical positive heaviside frexp
nextafter _shape_as_tensor
"""

for _name in _EXACT.split():
    EXACT.add(f"aten::{_name}")
_JUMPS = """
sign sgn floor ceil round trunc eq ne lt le gt ge signbit heaviside fmod remainder floor_divide isclose
"""

for _name in _JUMPS.split():
    JUMPS.add(f"aten::{_name}")


def on_grid(replay: Replay, out: torch.Tensor) -> bool:
    """Whether every value of `out` is a number of the accumulation format."""
    return bool((round_to(out, replay.arithmetic.accumulate) == out).all())


def _basic(replay: Replay, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    args = replay.widen(args)
    name = replay.note(func)
    alpha = kwargs.get("alpha", args[2] if name == "rsub" and len(args) > 2 else 1)
    if alpha not in (1, -1) and any(is_real_or_complex(t.dtype) for t in tensors_in(args)):
        # Two roundings, and the sum may cancel: treat the product as an operation of its own.
        first, second = args[0], args[1]
        with replay.inside():
            if name == "rsub":
                return torch.sub(second, torch.mul(first, alpha))
            scaled = torch.mul(second, alpha) if isinstance(second, torch.Tensor) else second * alpha
            return torch.add(first, scaled) if name == "add" else torch.sub(first, scaled)
    out = replay.run(func, args, kwargs)
    if not is_real_or_complex(out.dtype):
        return out
    if replay.grid and name in LINEAR and on_grid(replay, out):
        return out
    size = SIZES[name]
    if name in ("div", "true_divide") and replay.arithmetic.fast_math:
        size = approximate.DIVISION
    if name == "div" and _exact_divisor(args[1] if len(args) > 1 else None):
        return out
    if name == "mul" and _exact_divisor(args[1] if len(args) > 1 else None):
        return out
    return replay.relative(out, size)


def _exact_divisor(value: Any) -> bool:
    """Whether multiplying or dividing by `value` only moves the exponent."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return value != 0 and math.isfinite(value) and abs(math.frexp(value)[0]) == 0.5


def _division(replay: Replay, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    if kwargs.get("rounding_mode") is not None:
        replay.jumped = replay.jumped or any(replay.has_stack(t) for t in tensors_in(args))
        replay.note(func)
        return replay.run(func, replay.widen(args), kwargs)
    return _basic(replay, func, args, kwargs)


def _fused(replay: Replay, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """addcmul, addcdiv and lerp as the operations they stand for."""
    args = replay.widen(args)
    name = str(func._schema.name).split("::")[1]
    replay.ops[name] += 1
    with replay.inside():
        if name == "lerp":
            start, end, weight = args[:3]
            return start + weight * (end - start)
        inner = args[1] * args[2] if name == "addcmul" else args[1] / args[2]
        value = kwargs.get("value", 1)
        return args[0] + (inner if value == 1 else inner * value)


def _exponential(replay: Replay, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """exp, exp2, sigmoid: 2u, and the rounding of the argument of the base-2 exponential, u|x|/2."""
    args = replay.widen(args)
    name = replay.note(func)
    x: torch.Tensor = args[0]
    out = replay.run(func, args, kwargs)
    if not is_real_or_complex(out.dtype) or not replay.runs + replay.serial:
        return out
    argument = x.abs() if is_real_or_complex(x.dtype) else x.abs().double()
    if name == "sigmoid":
        # 1 / (1 + exp(-x)): the exponential counts only where it is not small.
        argument = argument * (1.0 - out).abs()
    size = LIBRARY + 0.5 * argument
    if replay.arithmetic.fast_math:
        size = torch.maximum(size, approximate.exponential(argument))
    return replay.absolute(out, out.abs() * size)


def _power(replay: Replay, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """pow: a product for small integer exponents, otherwise exp2(p · log2 x)."""
    args = replay.widen(args)
    replay.note(func)
    out = replay.run(func, args, kwargs)
    if not is_real_or_complex(out.dtype) or not replay.runs + replay.serial:
        return out
    exponent = args[1]
    if not isinstance(exponent, torch.Tensor) and not isinstance(exponent, complex):
        power = float(exponent)
        if power in (0.0, 1.0):
            return out
        if power == 2.0 and replay.grid and on_grid(replay, out):
            return out
        if power in (2.0, 0.5, -1.0):
            return replay.relative(out, 1.0)
        if power == int(power) and abs(power) <= 8:
            return replay.relative(out, max(2.0, 0.7 * abs(power)))
    size = out.abs()
    if replay.arithmetic.fast_math and not isinstance(exponent, complex):
        return replay.absolute(out, size * approximate.power(out, exponent))
    argument = torch.nan_to_num(torch.log(size).abs(), nan=0.0, posinf=0.0, neginf=0.0)
    return replay.absolute(out, size * (LIBRARY + argument))


def _function(replay: Replay, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Elementary functions: 2u of the result; some also an error relative to the tensor's scale."""
    args = replay.widen(args)
    name = replay.note(func)
    out = replay.run(func, args, kwargs)
    if not is_real_or_complex(out.dtype) or not replay.runs + replay.serial or out.numel() == 0:
        return out
    fast = replay.arithmetic.fast_math and not out.is_complex()
    if fast and name in ("sin", "cos", "tan"):
        return replay.absolute(out, approximate.trigonometric(name, args[0]))
    size = approximate.TANH if fast and name == "tanh" else LIBRARY
    magnitude = out.abs()
    if name in EXPONENTIAL:
        magnitude = magnitude * (1.0 + 0.25 * args[0].abs())
    if name in ("erf", "erfc"):
        return replay.absolute(out, erf_scale(out))
    if name in POOLED_SCALE:
        finite = torch.nan_to_num(out.abs(), nan=0.0, posinf=0.0)
        scale = size * magnitude + finite.square().mean().sqrt().clamp(max=1.0)
        if fast and name in approximate.LOGARITHM:
            scale = torch.maximum(scale, approximate.logarithm(name, out))
        return replay.absolute(out, scale)
    if name in UNIT_SCALE:
        # two intrinsics, of exp(x) or log(1 + x), where fast ones are allowed
        return replay.absolute(out, size * magnitude + torch.where(out == 0, 0.0, 2.5 if fast else 1.0))
    if name in EXPONENTIAL:
        return replay.absolute(out, size * magnitude)
    return replay.relative(out, size)


def erf_scale(out: torch.Tensor) -> torch.Tensor:
    """Error scale of erf or erfc with result `out`, in units of u; its shape.

    Rational approximations of erf, among them the one behind torch's gelu on a CPU, err by up to 10u.
    """
    size = torch.nan_to_num(out.abs(), nan=0.0)
    return LIBRARY * size + 3.0 * size.square().mean().sqrt().clamp(max=1.0)


for _name in SIZES:
    RULES[f"aten::{_name}"] = _basic
for _name in ("exp", "exp2", "sigmoid"):
    RULES[f"aten::{_name}"] = _exponential
RULES["aten::pow"] = _power


def _special(replay: Replay, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Special functions: 8u of the result and, as near their zeros, 2u of the tensor's scale (at most 1)."""
    args = replay.widen(args)
    replay.note(func)
    out = replay.run(func, args, kwargs)
    if not is_real_or_complex(out.dtype) or not replay.runs + replay.serial or out.numel() == 0:
        return out
    size = torch.nan_to_num(out.abs(), nan=0.0, posinf=0.0)
    return replay.absolute(out, 8.0 * size + 2.0 * size.square().mean().sqrt().clamp(max=1.0))


def _modulo(replay: Replay, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """fmod and remainder: exact as such, but x - y·floor(x / y) errs by u|x|; they jump at multiples of y."""
    args = replay.widen(args)
    replay.note(func)
    out = replay.run(func, args, kwargs)
    if not is_real_or_complex(out.dtype) or not replay.runs + replay.serial:
        return out
    replay.jumped = replay.jumped or replay.serial or any(replay.has_stack(t) for t in tensors_in(args))
    first = args[0] if isinstance(args[0], torch.Tensor) else torch.as_tensor(args[0], dtype=torch.float64)
    return replay.absolute(out, 0.5 * first.abs().double().expand(out.shape))


_FUNCTIONS = """
tanh log log1p expm1 log2 log10 erf erfc asinh atanh logit erfinv sin cos tan asin acos atan atan2 sinh cosh
acosh lgamma digamma sinc
"""

for _name in _FUNCTIONS.split():
    RULES[f"aten::{_name}"] = _function
RULES["prims::erf_inv"] = _function

_SPECIAL = """
i0 special_i0e special_i1 special_i1e special_bessel_j0 special_bessel_j1 special_bessel_y0 special_bessel_y1
special_modified_bessel_i0 special_modified_bessel_i1 special_modified_bessel_k0 special_modified_bessel_k1
special_scaled_modified_bessel_k0 special_scaled_modified_bessel_k1 special_spherical_bessel_j0
special_airy_ai special_erfcx special_ndtri special_zeta special_chebyshev_polynomial_t
special_chebyshev_polynomial_u special_hermite_polynomial_h special_hermite_polynomial_he
special_laguerre_polynomial_l special_legendre_polynomial_p polygamma mvlgamma igamma igammac special_log_ndtr
"""
for _name in _SPECIAL.split():
    RULES[f"aten::{_name}"] = _special
for _name in "bessel_i0 bessel_i0e bessel_i1 bessel_i1e bessel_j0 bessel_j1 erfcx ndtri zeta".split():  # noqa: SIM905
    RULES[f"prims::{_name}"] = _special
for _name in ("fmod", "remainder"):
    RULES[f"aten::{_name}"] = _modulo
RULES["aten::div"] = _division
for _name in ("addcmul", "addcdiv", "lerp"):
    RULES[f"aten::{_name}"] = _fused
