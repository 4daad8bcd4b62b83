"""Intervals and tests against values worked out elsewhere."""

from __future__ import annotations

import math
from itertools import pairwise

import pytest

from assay.audit.sampling import allocate, draw
from assay.audit.statistics import Rate, binomial_tail, clopper_pearson, mcnemar, stratified, wilson


@pytest.mark.parametrize(("count", "total", "low", "high"), [
    # Newcombe, Statistics in Medicine 17 (1998), table I, method 3
    (81, 263, 0.2553, 0.3662), (15, 148, 0.0624, 0.1605), (0, 20, 0.0, 0.1611), (1, 29, 0.0061, 0.1718),
])
def test_wilson(count: int, total: int, low: float, high: float) -> None:
    assert wilson(count, total) == (pytest.approx(low, abs=5e-5), pytest.approx(high, abs=5e-5))


@pytest.mark.parametrize(("count", "total", "low", "high"), [
    # the same table, method 5
    (81, 263, 0.2527, 0.3676), (15, 148, 0.0578, 0.1617), (0, 20, 0.0, 0.1684), (1, 29, 0.0009, 0.1776),
])
def test_clopper_pearson(count: int, total: int, low: float, high: float) -> None:
    assert clopper_pearson(count, total) == (pytest.approx(low, abs=5e-5), pytest.approx(high, abs=5e-5))


def test_an_empty_denominator_says_nothing() -> None:
    assert Rate(0, 0).value is None
    assert Rate(0, 0).interval == (0.0, 1.0)
    assert clopper_pearson(0, 0) == (0.0, 1.0)


def test_more_than_all_is_refused() -> None:
    with pytest.raises(ValueError, match="3 of 2"):
        wilson(3, 2)


@pytest.mark.parametrize("total", [1, 7, 40])
def test_the_tail_is_the_sum_of_its_terms(total: int) -> None:
    for count in range(total + 2):
        direct = sum(math.comb(total, k) * 0.3**k * 0.7 ** (total - k) for k in range(count, total + 1))
        assert binomial_tail(count, total, 0.3) == pytest.approx(direct, abs=1e-12)


def test_mcnemar_is_exact() -> None:
    # 2 · P(X >= 6 | 7, 1/2) = 2 · 8/128
    assert mcnemar(6, 1).p == pytest.approx(0.125)
    assert mcnemar(1, 6).p == pytest.approx(0.125)
    assert mcnemar(3, 3).p == 1.0
    assert mcnemar(0, 0).p == 1.0
    assert mcnemar(1487, 14).p < 1e-300 or mcnemar(1487, 14).p == pytest.approx(0.0, abs=1e-300)


def test_mcnemar_gives_the_share_of_one_direction() -> None:
    found = mcnemar(1487, 14)
    assert found.share == pytest.approx(1487 / 1501)
    assert found.low < 1487 / 1501 < found.high < 1


def test_strata_weigh_by_their_size() -> None:
    found = stratified([(9, 10, 900), (1, 10, 100)])
    assert found is not None
    assert found[0] == pytest.approx(0.82)
    assert found[1] < 0.82 < found[2]
    # everything was looked at: nothing is left to chance
    assert stratified([(3, 4, 4), (5, 5, 5)]) == (pytest.approx(8 / 9),) * 3
    assert stratified([(0, 0, 10)]) is None


def test_a_draw_is_in_proportion_and_leaves_no_stratum_out() -> None:
    assert allocate({"a": 80, "b": 19, "c": 1}, 10) == {"a": 7, "b": 2, "c": 1}
    assert allocate({"a": 2, "b": 2}, 10) == {"a": 2, "b": 2}
    assert sum(allocate({"a": 5, "b": 5, "c": 5}, 2).values()) == 2


def test_a_draw_keeps_the_order_and_depends_on_its_seed() -> None:
    items = [("ab"[n % 2], n) for n in range(50)]
    found = draw(items, 20, 1)
    assert all(a < b for a, b in pairwise(found))
    assert found == draw(items, 20, 1) != draw(items, 20, 2)
