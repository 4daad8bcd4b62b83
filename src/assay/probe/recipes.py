"""Recipes for values: each fills a tensor of a given shape from a seed, within limits it is told.

A recipe knows nothing of structure; :mod:`assay.probe.values` chooses which are legal and projects what they
give back onto the structure. All work in float64 on the CPU.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Limits:
    """What a recipe may use."""

    shape: tuple[int, ...]
    """Shape to fill."""
    original: Tensor
    """The task's own values, float64."""
    low: float
    """Smallest legal value of a bounded input."""
    high: float
    """Largest legal value of a bounded input."""
    center: float
    """Mean of the task's values."""
    scale: float
    """Their standard deviation, never 0."""
    random: torch.Generator
    """Source of randomness."""

    def normal(self) -> Tensor:
        """Standard normal values of the shape."""
        return torch.randn(self.shape, generator=self.random, dtype=torch.float64)

    def uniform(self) -> Tensor:
        """Uniform values in [0, 1) of the shape."""
        return torch.rand(self.shape, generator=self.random, dtype=torch.float64)

    def rows(self) -> tuple[int, int]:
        """Rows and their length, the last dimension being the row; a scalar is one row of one."""
        length = self.shape[-1] if self.shape else 1
        return (math.prod(self.shape) // length if length else 0), length

    def per_row(self, values: Tensor) -> Tensor:
        """One value for each row, spread over it."""
        return values.reshape(*self.shape[:-1], 1).expand(self.shape) if self.shape else values.reshape(())


Recipe = Callable[[Limits], Tensor]


def scaled(factor: float) -> Recipe:
    """The task's values, multiplied about zero."""
    return lambda limits: limits.original * factor


def shifted(deviations: float) -> Recipe:
    """The task's values, moved by some standard deviations."""
    return lambda limits: limits.original + deviations * limits.scale


def heavy_tailed(limits: Limits) -> Tensor:
    """Normal over the square root of chi squared / 2: Student's t with 2 degrees of freedom, cut at 1,000."""
    chi = -2.0 * torch.log1p(-limits.uniform())
    return limits.center + limits.scale * (limits.normal() / torch.sqrt(chi / 2)).clamp(-1e3, 1e3)


def zeros(limits: Limits) -> Tensor:
    """Zero throughout."""
    return torch.zeros(limits.shape, dtype=torch.float64)


def zero_rows(limits: Limits) -> Tensor:
    """The task's values with every third row zero, the first and the last among them."""
    count, _ = limits.rows()
    keep = torch.ones(count, dtype=torch.float64)
    keep[::3] = 0
    keep[-1:] = 0
    return limits.original * limits.per_row(keep)


def constant_rows(limits: Limits) -> Tensor:
    """Each row one value: the largest in magnitude that the task gave it."""
    if not limits.shape or 0 in limits.shape:
        return limits.original.clone()
    place = limits.original.abs().argmax(dim=-1, keepdim=True)
    return limits.original.gather(-1, place).expand(limits.shape).clone()


def negative(limits: Limits) -> Tensor:
    """Every value below zero."""
    return -limits.original.abs() - 1e-3 * limits.scale


def nonnegative(limits: Limits) -> Tensor:
    """Every value above zero: long sums of one sign do not cancel."""
    return limits.original.abs() + 1e-3 * limits.scale


def ties(limits: Limits) -> Tensor:
    """Rounded to whole standard deviations, so that many values are equal."""
    return torch.round(limits.original / limits.scale) * limits.scale


def sorted_rows(limits: Limits) -> Tensor:
    """The task's values, each row sorted."""
    return limits.original.sort(dim=-1).values if limits.shape else limits.original.clone()


def descending_rows(limits: Limits) -> Tensor:
    """The task's values, each row sorted from the largest down."""
    return limits.original.sort(dim=-1, descending=True).values if limits.shape else limits.original.clone()


def ramp(limits: Limits) -> Tensor:
    """Each row rises evenly through the task's range, so that its largest value so far moves with every tile."""
    _, length = limits.rows()
    share = torch.linspace(0.0, 1.0, length, dtype=torch.float64) if length > 1 else torch.full((1,), 0.5)
    low, high = (float(end) for end in limits.original.aminmax())
    return (low + (high - low) * (share if limits.shape else share.reshape(()))).expand(limits.shape).clone()


def ones(limits: Limits) -> Tensor:
    """One throughout: a long sum is a count."""
    return torch.ones(limits.shape, dtype=torch.float64)


def alternating(limits: Limits) -> Tensor:
    """Signs + − + − along each row."""
    _, length = limits.rows()
    signs = 1.0 - 2.0 * (torch.arange(length, dtype=torch.float64) % 2)
    return limits.original.abs() * (signs if limits.shape else signs.reshape(()))


def cancelling(limits: Limits) -> Tensor:
    """The second half of each row is minus the first, a thousand times larger than usual: sums cancel."""
    large = limits.original * 1e3
    half = limits.rows()[1] // 2
    if half:
        large[..., half : 2 * half] = -large[..., :half] + limits.original[..., half : 2 * half]
    return large


def dominant(limits: Limits) -> Tensor:
    """One element of each row ten thousand times larger than the rest are."""
    count, length = limits.rows()
    values = limits.original.reshape(count, length).clone()
    if values.numel():
        place = torch.randint(0, length, (count,), generator=limits.random)
        values[torch.arange(count), place] = 1e4 * limits.scale
    return values.reshape(limits.shape)


def tiny_variance(limits: Limits) -> Tensor:
    """Large mean, small spread: 100 ± 0.01 standard deviations."""
    return limits.scale * (100.0 + 0.01 * limits.normal())


def sparse(limits: Limits) -> Tensor:
    """One value in twenty as the task made it, the rest zero."""
    return limits.original * (limits.uniform() < 0.05)


def small_integers(limits: Limits) -> Tensor:
    """Whole numbers from −4 to 4: sums of products stay exact."""
    return torch.round(limits.uniform() * 8 - 4)


def powers_of_two(limits: Limits) -> Tensor:
    """± powers of two from 1/8 to 8: exact products."""
    sign = torch.where(limits.uniform() < 0.5, -1.0, 1.0).to(torch.float64)
    return sign * torch.exp2(torch.round(limits.uniform() * 6 - 3))


def filled(limits: Limits) -> Tensor:
    """Uniform over the legal range."""
    return limits.low + (limits.high - limits.low) * limits.uniform()


def log_filled(limits: Limits) -> Tensor:
    """Log-uniform over a positive range."""
    low, high = math.log(limits.low), math.log(max(limits.high, limits.low))
    return torch.exp(low + (high - low) * limits.uniform())


def low_end(limits: Limits) -> Tensor:
    """Crowded at the lower end: distances from it log-uniform over six decades."""
    return limits.low + (limits.high - limits.low) * torch.pow(10.0, -6.0 * limits.uniform()) * 0.1


def high_end(limits: Limits) -> Tensor:
    """Crowded at the upper end, likewise."""
    return limits.high - (limits.high - limits.low) * torch.pow(10.0, -6.0 * limits.uniform()) * 0.1


def lowest(limits: Limits) -> Tensor:
    """The smallest legal value throughout."""
    return torch.full(limits.shape, limits.low, dtype=torch.float64)


def highest(limits: Limits) -> Tensor:
    """The largest legal value throughout."""
    return torch.full(limits.shape, limits.high, dtype=torch.float64)


def both_ends(limits: Limits) -> Tensor:
    """The two ends of the legal range, at random."""
    return torch.where(limits.uniform() < 0.5, limits.low, limits.high).to(torch.float64)


def one_high(limits: Limits) -> Tensor:
    """Each row at the lower end but for one element at the upper."""
    count, length = limits.rows()
    values = torch.full((count, length), limits.low, dtype=torch.float64)
    if values.numel():
        values[torch.arange(count), torch.randint(0, length, (count,), generator=limits.random)] = limits.high
    return values.reshape(limits.shape)


def middle(limits: Limits) -> Tensor:
    """All within a thousandth of the middle of the range."""
    return limits.low + (limits.high - limits.low) * (0.5 + 1e-3 * (limits.uniform() - 0.5))


def levels(limits: Limits) -> Tensor:
    """Four equally spaced levels of the range: many ties."""
    return limits.low + (limits.high - limits.low) * torch.round(limits.uniform() * 3) / 3


def all_same(limits: Limits) -> Tensor:
    """One legal value throughout, from the middle of the range."""
    return torch.full(limits.shape, math.floor((limits.low + limits.high) / 2), dtype=torch.float64)


def density(share: float) -> Recipe:
    """Ones with this probability, else zeros."""
    return lambda limits: (limits.uniform() < share).to(torch.float64)


def false_rows(limits: Limits) -> Tensor:
    """The task's mask with every third row all zero."""
    return zero_rows(limits)


def true_rows(limits: Limits) -> Tensor:
    """The task's mask with every third row all one."""
    count, _ = limits.rows()
    full = torch.zeros(count, dtype=torch.float64)
    full[::3] = 1
    return torch.maximum(limits.original, limits.per_row(full))


def single_true(limits: Limits) -> Tensor:
    """One 1 in each row."""
    count, length = limits.rows()
    values = torch.zeros((count, length), dtype=torch.float64)
    if values.numel():
        values[torch.arange(count), torch.randint(0, length, (count,), generator=limits.random)] = 1
    return values.reshape(limits.shape)
