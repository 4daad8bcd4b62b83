"""Errors of a GPU's approximate intrinsics, where `numerics.fast_math` allows them.

Largest errors as published for single precision in the CUDA C++ Programming Guide (mathematical functions,
intrinsic functions) and, for the instructions that Triton emits, in the PTX ISA:

| function | largest error |
|---|---|
| division, `__fdividef`, div.approx | 2 ulp |
| reciprocal, rcp.approx | 1 ulp |
| square root, reciprocal root | 2^-23, 2^-22.4 of the result |
| `__expf(x)`, `__exp10f(x)`; ex2.approx | 2 + floor(1.173 abs(x)), 2 + floor(2.97 abs(x)) ulp; 2 ulp |
| `__logf`, `__log2f`, `__log10f` | 2^-21.41, 2^-22, 2^-24 for 0.5 ≤ x ≤ 2, else 3, 2 and 3 ulp |
| `__sinf`, `__cosf` | 2^-21.41, 2^-21.19 in [-π, π] |
| sin.approx, cos.approx | 2^-20.5 in [-2π, 2π], 2^-14.7 in [-100π, 100π] |
| `__tanf` | that of sine over cosine |
| `__powf(x, y)` | that of exp2(y · log2 x) in the intrinsics above |
| tanh.approx | 2^-11 of the result |

A replay perturbs by standard deviations, and an element is granted λ(b + b/2) = 6 of them where its neighbours
fare alike. A largest error of m is therefore entered as m / 3, which grants it twice; one ulp is at most 2u of
the result. Functions without an intrinsic (erf, gamma, Bessel) gain nothing.
"""

from __future__ import annotations

import torch

TANH = 2.0**13 / 3.0
"""2^-11 of the result is 2^13 u."""
TRIGONOMETRIC, TRIGONOMETRIC_SLOPE = 4.0, 0.7
"""2^-20.5 is 11.3 u, and 2^-14.7 at 100π is 2 u for each unit of the argument."""
LOGARITHM = {"log": 2.0, "log2": 1.4, "log10": 0.4}
"""Near 1 the error is absolute: 6 u, 4 u and 1 u."""
LOGARITHM_ULPS = {"log": 2.0, "log2": 1.4, "log10": 2.0}
"""Elsewhere 3, 2 and 3 ulp of the result."""
DIVISION = 1.4
"""2 ulp of the result."""


def exponential(x: torch.Tensor) -> torch.Tensor:
    """Standard deviation of `__expf(x)` or of exp2, relative to the result, in units of u; shape of `x`."""
    return 1.4 + 0.8 * x.abs()


def logarithm(name: str, out: torch.Tensor) -> torch.Tensor:
    """Absolute standard deviation of `log`, `log2` or `log10` with result `out`, in units of u; its shape."""
    return LOGARITHM_ULPS[name] * out.abs() + LOGARITHM[name]


def trigonometric(name: str, x: torch.Tensor) -> torch.Tensor:
    """Absolute standard deviation of sin, cos or tan at `x`, in units of u; shape of `x`."""
    x = x.double()
    level = TRIGONOMETRIC + TRIGONOMETRIC_SLOPE * x.abs()
    if name != "tan":
        return level
    cosine = x.cos()
    return level * (cosine.abs() + x.sin().abs()) / cosine.square()


def power(out: torch.Tensor, exponent: torch.Tensor | float) -> torch.Tensor:
    """Relative standard deviation of a power with result `out`, in units of u; shape of `out`."""
    # ln 2 · (4 u · |y| + 4 u · |y log2 x|) / 3 from the logarithm, 2 ulp and the argument's rounding from exp2
    size = torch.nan_to_num(torch.log2(out.abs()).abs(), nan=0.0, posinf=0.0, neginf=0.0)
    factor = exponent.abs() if isinstance(exponent, torch.Tensor) else abs(exponent)
    return 1.4 + 0.95 * factor + 1.5 * size
