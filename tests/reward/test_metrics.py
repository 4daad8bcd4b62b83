"""pass@k without bias, and fast_p."""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.reward import fast_p, mean_pass_at_k, pass_at_k


@given(st.integers(1, 300), st.data())
def test_pass_at_k_is_the_exact_ratio_of_binomials(samples: int, data: st.DataObject) -> None:
    right, k = data.draw(st.integers(0, samples)), data.draw(st.integers(1, samples))
    exact = 1 - Fraction(math.comb(samples - right, k), math.comb(samples, k))
    assert math.isclose(pass_at_k(samples, right, k), exact, rel_tol=1e-12, abs_tol=0)


def test_pass_at_k_is_the_mean_over_every_draw() -> None:
    marks = [True, True, False, False, False, False]
    for k in range(1, 7):
        draws = [any(draw) for draw in combinations(marks, k)]
        assert math.isclose(pass_at_k(6, 2, k), sum(draws) / len(draws), rel_tol=1e-12)


def test_pass_at_k_stays_accurate_where_binomials_overflow_or_cancel() -> None:
    assert math.isclose(pass_at_k(10**9, 1, 1), 1e-9, rel_tol=1e-12)
    none = Fraction(900_000 * 899_999 * 899_998, 1_000_000 * 999_999 * 999_998)
    assert math.isclose(pass_at_k(10**6, 3, 10**5), 1 - none, rel_tol=1e-12)


@pytest.mark.parametrize(("samples", "right", "k"), [(5, 6, 1), (5, -1, 1), (5, 1, 0), (5, 1, 6), (0, 0, 1)])
def test_pass_at_k_refuses_what_cannot_be(samples: int, right: int, k: int) -> None:
    with pytest.raises(ValueError, match="no pass@"):
        pass_at_k(samples, right, k)


def test_the_mean_is_over_tasks() -> None:
    assert mean_pass_at_k([(4, 4), (4, 0)], 2) == 0.5
    with pytest.raises(ValueError, match="no tasks"):
        mean_pass_at_k([], 1)


RESULTS = [(True, 2.0), (True, 0.5), (True, None), (False, 9.0), (True, 1.0)]


@pytest.mark.parametrize(("p", "wanted"), [(0, 0.8), (0.5, 0.4), (1, 0.2), (2, 0.0)])
def test_fast_p_counts_what_is_right_and_more_than_p_times_as_fast(p: float, wanted: float) -> None:
    assert fast_p(RESULTS, p) == wanted


def test_fast_p_refuses_what_cannot_be() -> None:
    with pytest.raises(ValueError, match="no results"):
        fast_p([], 1)
    with pytest.raises(ValueError, match="fast_p"):
        fast_p(RESULTS, -1)
