"""Noise for the replay, drawn once per device and reused in random windows.

Variates have a random sign and a magnitude between 0.6 and 1.4, scaled to a variance of 1. With a dozen runs
the root mean square of normal variates is off by a fifth, and half the error of a row often comes from one
number (the sum of a softmax); there a fixed magnitude gives the spread almost exactly, and where many numbers
contribute the distribution is normal anyway. Magnitudes vary so that two equal sources do not cancel exactly.

Fresh variates would cost more than the operations they perturb. A pool of 2^21 of them, read from a random
offset for every operation, is as good for a root mean square over a dozen runs.
"""

from __future__ import annotations

import math
import random

import torch

POOL = 1 << 21
"""Variates in a pool."""
WINDOW = POOL - POOL // 8
"""Most variates in one window."""
SPREAD = math.sqrt(1.0 + 0.8**2 / 12.0)
"""Root mean square of a magnitude drawn evenly from 0.6 to 1.4."""

_base: dict[torch.device, torch.Tensor] = {}
_factors: dict[tuple[torch.device, float], torch.Tensor] = {}
_MAX_FACTORS = 6


def _pool(device: torch.device) -> torch.Tensor:
    pool = _base.get(device)
    if pool is None:
        generator = torch.Generator().manual_seed(20_011)
        draw = torch.rand(POOL, dtype=torch.float64, generator=generator)
        sign = torch.where(torch.rand(POOL, generator=generator) < 0.5, -1.0, 1.0)
        pool = (sign * (0.6 + 0.8 * draw) / SPREAD).to(device)
        _base[device] = pool
    return pool


def _factor_pool(device: torch.device, size: float) -> torch.Tensor:
    key = (device, size)
    pool = _factors.get(key)
    if pool is None:
        if len(_factors) >= _MAX_FACTORS:
            _factors.pop(next(iter(_factors)))
        pool = torch.add(1.0, _pool(device), alpha=size)
        _factors[key] = pool
    return pool


class Noise:
    """A reproducible stream of windows into the pools."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def _window(self, pool: torch.Tensor, count: int) -> torch.Tensor:
        if count <= WINDOW:
            start = self._random.randrange(POOL - count + 1)
            return pool[start : start + count]
        pieces = []
        while count > 0:
            take = min(WINDOW, count)
            start = self._random.randrange(POOL - take + 1)
            pieces.append(pool[start : start + take])
            count -= take
        return torch.cat(pieces)

    def unit(self, shape: tuple[int, ...], device: torch.device) -> torch.Tensor:
        """Noise of unit variance, float64, of `shape`; a view into the pool, never to be written to."""
        count = 1
        for size in shape:
            count *= size
        return self._window(_pool(device), count).view(shape)

    def factor(self, shape: tuple[int, ...], size: float, device: torch.device) -> torch.Tensor:
        """1 + size · noise of unit variance, float64, of `shape`; a view never to be written to."""
        count = 1
        for extent in shape:
            count *= extent
        return self._window(_factor_pool(device, size), count).view(shape)
