"""Data on which rounding behaves differently: sign, spread, size, order and cancellation."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import torch

KINDS: dict[str, str] = {
    "random": "standard normal",
    "positive": "of one sign, so that sums grow and nothing cancels",
    "offset": "normal about 1,000 standard deviations from zero (16 in half precision)",
    "subnormal": "in the subnormal range of the dtype",
    "heavy_tailed": "Student's t with two degrees of freedom",
    "sorted": "normal, each row ascending",
    "cancelling": "each row sums to almost nothing",
    "tiny_variance": "one plus a thousandth of a normal (plus a fiftieth in half precision)",
    "wide": "ten times a normal",
}
"""What each kind means."""


def seed_of(*parts: object) -> int:
    """A seed from names, the same in every process and version."""
    return int.from_bytes(hashlib.sha256("/".join(map(str, parts)).encode()).digest()[:6], "big")


def draw(kind: str, shape: Sequence[int], dtype: torch.dtype, seed: int, scale: float = 1.0) -> torch.Tensor:
    """Values of a kind, `scale` times as large, rounded to `dtype`. Raises KeyError for an unknown kind."""
    generator = torch.Generator().manual_seed(seed)
    z = torch.randn(tuple(shape), dtype=torch.float64, generator=generator)
    half = dtype in (torch.bfloat16, torch.float16)
    if kind == "random":
        x = z
    elif kind == "positive":
        x = z.abs() + 0.01
    elif kind == "offset":
        x = z + (16.0 if half else 1000.0)
    elif kind == "subnormal":
        # Up to a few bits below the smallest normal number of the dtype.
        x = z * (torch.finfo(dtype).smallest_normal / 8.0)
        scale = 1.0
    elif kind == "heavy_tailed":
        chi = -2.0 * torch.log1p(-torch.rand(tuple(shape), dtype=torch.float64, generator=generator))
        x = (z / torch.sqrt(chi / 2.0)).clamp(-100.0, 100.0)
    elif kind == "sorted":
        x = z.sort(-1).values
    elif kind == "cancelling":
        n = z.shape[-1]
        x = z.clone()
        x[..., n - n // 2 :] = -z[..., : n // 2].flip(-1) + 1e-4 * z[..., n - n // 2 :]
    elif kind == "tiny_variance":
        x = 1.0 + (0.02 if half else 1e-3) * z
    elif kind == "wide":
        x = 10.0 * z
    else:
        raise KeyError(kind)
    return (x * scale).to(dtype)
