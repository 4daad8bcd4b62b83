"""Medians and bootstrap intervals of times that were taken in pairs."""

from __future__ import annotations

import random
import statistics
from collections.abc import Sequence

from assay.bench.model import Interval

RESAMPLES = 2000
LEVEL = 0.95


def interval(values: Sequence[float], *, seed: int = 0) -> Interval:
    """Median with its percentile bootstrap interval (Efron and Tibshirani, 1993, chapter 13).

    Args:
        values: at least one number.
        seed: of the resampling, so that equal values give equal intervals.

    Raises:
        ValueError: there is no value.
    """
    if not values:
        raise ValueError("no values")
    middle = statistics.median(values)
    if len(values) == 1:
        return Interval(value=middle, low=middle, high=middle)
    draw = random.Random(seed)
    medians = sorted(statistics.median(draw.choices(values, k=len(values))) for _ in range(RESAMPLES))
    tail = (1 - LEVEL) / 2
    low, high = medians[int(tail * RESAMPLES)], medians[min(RESAMPLES - 1, int((1 - tail) * RESAMPLES))]
    return Interval(value=middle, low=min(low, middle), high=max(high, middle))


def ratio(over: Sequence[float], under: Sequence[float], *, seed: int = 0) -> Interval:
    """Median of the ratios of times taken in pairs, with its interval: what drifts moves both alike.

    Raises:
        ValueError: the two differ in length, or there is no pair.
    """
    return interval([a / b for a, b in zip(over, under, strict=True)], seed=seed)


def drift(values: Sequence[float]) -> float:
    """(largest - smallest) / median of the medians of three values in a row; 0 for none.

    A single value that something else held up is no drift.
    """
    if not values:
        return 0.0
    smooth = [statistics.median(values[max(0, i - 1):i + 2]) for i in range(len(values))]
    inner = smooth[1:-1] or smooth
    return (max(inner) - min(inner)) / statistics.median(inner)
