"""Intervals say how sure a median is, and nothing that the values do not."""

from __future__ import annotations

import random

import pytest

from assay.bench.statistics import drift, interval, ratio


def test_an_interval_holds_its_median_and_lies_within_the_values() -> None:
    draw = random.Random(4)
    values = [draw.gauss(10, 1) for _ in range(15)]
    found = interval(values)
    assert min(values) <= found.low <= found.value <= found.high <= max(values)
    assert found == interval(values), "equal values give equal intervals"


def test_one_value_has_no_width_and_none_is_refused() -> None:
    assert interval([3.0]).spread == 0.0
    with pytest.raises(ValueError, match="no values"):
        interval([])


def test_what_drifts_in_both_leaves_the_ratio_alone() -> None:
    drift = [1.0 + 0.1 * i for i in range(10)]
    found = ratio([3.0 * d for d in drift], [2.0 * d for d in drift])
    assert (found.low, found.high) == pytest.approx((1.5, 1.5))
    assert interval([2.0 * d for d in drift]).spread > 0.05


def test_pairs_have_to_be_pairs() -> None:
    with pytest.raises(ValueError, match="shorter"):
        ratio([1.0, 2.0], [1.0])


def test_the_interval_covers_the_true_median_about_as_often_as_it_says() -> None:
    draw = random.Random(8)
    hits = 0
    for trial in range(200):
        found = interval([draw.expovariate(1.0) for _ in range(21)], seed=trial)
        hits += found.low <= 0.6931 <= found.high
    assert hits >= 176


def test_drift_is_relative_to_the_median_and_one_stray_value_is_none() -> None:
    assert drift([1.0, 1.0, 1.1, 1.1, 1.2, 1.2, 1.2]) == pytest.approx(0.2 / 1.1, rel=0.1)
    assert drift([1.0, 1.0, 9.0, 1.0, 1.0]) == 0.0
    assert drift([5.0]) == drift([]) == 0.0
