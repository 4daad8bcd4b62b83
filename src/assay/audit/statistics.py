"""Intervals and tests that audits quote. Exact where the textbooks have an exact form; no approximation of tails."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

Z95 = 1.959963984540054
"""Two-sided 95% point of the standard normal distribution."""


@dataclass(frozen=True)
class Rate:
    """A count out of a denominator, with its Wilson 95% interval.

    Attributes:
        count: how many.
        total: out of how many.
    """

    count: int
    total: int

    @property
    def value(self) -> float | None:
        """The proportion; None for an empty denominator."""
        return self.count / self.total if self.total else None

    @property
    def interval(self) -> tuple[float, float]:
        """Wilson score interval at 95%; all of [0, 1] for an empty denominator."""
        return wilson(self.count, self.total)

    def to_json(self) -> dict[str, float | int | None]:
        """As plain data."""
        low, high = self.interval
        return {"count": self.count, "total": self.total, "rate": self.value, "low": low, "high": high}


def wilson(count: int, total: int, z: float = Z95) -> tuple[float, float]:
    """Wilson's score interval (E. B. Wilson, JASA 22, 1927) for `count` of `total`; (0, 1) where total is 0.

    Raises ValueError when the count is not within 0 and the total.
    """
    if not 0 <= count <= total:
        raise ValueError(f"{count} of {total} is no proportion")
    if total == 0:
        return 0.0, 1.0
    p = count / total
    square = z * z
    middle = p + square / (2 * total)
    half = z * math.sqrt(p * (1 - p) / total + square / (4 * total * total))
    scale = 1 + square / total
    low = 0.0 if count == 0 else max(0.0, (middle - half) / scale)
    high = 1.0 if count == total else min(1.0, (middle + half) / scale)
    return low, high


def binomial_tail(count: int, total: int, p: float) -> float:
    """P(X >= count) for X ~ Binomial(total, p), summed from logarithms so that large totals do not overflow."""
    if count <= 0:
        return 1.0
    if count > total or p <= 0.0:
        return 0.0
    if p >= 1.0:
        return 1.0
    logs = [_log_choose(total, k) + k * math.log(p) + (total - k) * math.log1p(-p) for k in range(count, total + 1)]
    largest = max(logs)
    return min(1.0, math.exp(largest) * math.fsum(math.exp(value - largest) for value in logs))


def _log_choose(total: int, k: int) -> float:
    return math.lgamma(total + 1) - math.lgamma(k + 1) - math.lgamma(total - k + 1)


def clopper_pearson(count: int, total: int, alpha: float = 0.05) -> tuple[float, float]:
    """The exact interval of a proportion (Clopper and Pearson, Biometrika 26, 1934), by bisection."""
    if total == 0:
        return 0.0, 1.0
    low, high = 0.0, 1.0
    if count > 0:
        low = _root(lambda p: binomial_tail(count, total, p) - alpha / 2)
    if count < total:
        # P(X <= count) falls in p, and is 1 - P(X >= count + 1)
        high = _root(lambda p: binomial_tail(count + 1, total, p) - (1 - alpha / 2))
    return low, high


def _root(rising: Callable[[float], float]) -> float:
    low, high = 0.0, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        if rising(middle) < 0:
            low = middle
        else:
            high = middle
    return (low + high) / 2


@dataclass(frozen=True)
class McNemar:
    """Two decisions on the same cases, compared by the cases on which they differ.

    Attributes:
        first: cases that only the first decision passes.
        second: cases that only the second decision passes.
        p: two-sided exact p-value that both directions are equally likely.
        share: `first` of all that differ, with its exact 95% interval.
        low: lower end of that interval.
        high: upper end.
    """

    first: int
    second: int
    p: float
    share: float | None
    low: float
    high: float


def mcnemar(first: int, second: int) -> McNemar:
    """McNemar's test in its exact, conditional form: a binomial test of the discordant pairs against one half."""
    total = first + second
    p = 1.0 if total == 0 else min(1.0, 2 * binomial_tail(max(first, second), total, 0.5))
    low, high = clopper_pearson(first, total)
    return McNemar(first, second, p, first / total if total else None, low, high)


def stratified(parts: list[tuple[int, int, int]]) -> tuple[float, float, float] | None:
    """A proportion from strata that were sampled at different rates, with a 95% interval.

    Args:
        parts: (positive, sampled, population) of each stratum.

    Returns:
        Estimate, low and high, or None where nothing was sampled. Strata that were not sampled drop out of
        the population. The variance of each stratum comes from the Wilson centre, so that a stratum without
        a miss still has one; the finite population is taken into account.
    """
    seen = [(k, n, size) for k, n, size in parts if n > 0 and size > 0]
    whole = sum(size for _, _, size in seen)
    if not whole:
        return None
    estimate = sum(size / whole * k / n for k, n, size in seen)
    variance = 0.0
    for k, n, size in seen:
        centre = (k + Z95 * Z95 / 2) / (n + Z95 * Z95)
        finite = (size - n) / (size - 1) if size > 1 and size >= n else 0.0
        variance += (size / whole) ** 2 * centre * (1 - centre) / n * finite
    half = Z95 * math.sqrt(variance)
    return estimate, max(0.0, estimate - half), min(1.0, estimate + half)
