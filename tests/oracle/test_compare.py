"""The comparison itself: classes, pairs, the worst element and why."""

import math

import pytest
import torch

from assay.oracle import Reason, compare, evaluate

NAN, INF = math.nan, math.inf


def test_nan_equals_nan_and_infinities_agree_in_sign() -> None:
    x = torch.tensor([NAN, INF, -INF, 1.0])
    truth = evaluate(lambda x: x * 2, [x]).leaves[0]
    assert compare(truth, x * 2).ok
    assert compare(truth, torch.tensor([0.0, INF, -INF, 2.0])).reason is Reason.CLASS_NAN
    assert compare(truth, torch.tensor([NAN, -INF, -INF, 2.0])).reason is Reason.CLASS_INF
    assert compare(truth, torch.tensor([NAN, INF, -INF, INF])).reason is Reason.CLASS_INF


def test_worst_element_is_reported_with_its_arithmetic() -> None:
    x = torch.arange(1.0, 13.0).reshape(3, 4)
    truth = evaluate(lambda x: x / 3, [x]).leaves[0]
    actual = (x / 3).clone()
    actual[1, 2] += 0.5
    actual[2, 0] += 0.01
    result = compare(truth, actual)
    assert not result.ok
    assert (result.n_bad, result.index, result.reason) == (2, 6, Reason.VALUE)
    assert result.expected == pytest.approx(7 / 3)
    assert result.error == pytest.approx(0.5)
    assert result.ratio == pytest.approx(result.error / result.tolerance)
    assert result.parts is not None
    assert result.tolerance == pytest.approx(sum(vars(result.parts).values()))


def test_complex_results_are_pairs() -> None:
    z = torch.complex(torch.tensor([1.0, 1e6]), torch.tensor([1e-3, NAN]))
    truth = evaluate(lambda z: z * 1.5, [z]).leaves[0]
    assert compare(truth, z * 1.5).ok
    wrong = (z * 1.5).clone()
    wrong[0] = complex(1.5, 1.6e-3)
    assert compare(truth, wrong).index == 0


def test_integers_and_booleans_are_exact() -> None:
    x = torch.arange(6)
    truth = evaluate(lambda x: (x // 2, x > 2), [x]).leaves
    assert compare(truth[0], x // 2).ok
    assert compare(truth[0], x // 2 + (x == 5)).reason is Reason.INTEGER
    assert compare(truth[1], x > 2).ok
    assert not compare(truth[1], x >= 2).ok


def test_undecided_elements_never_count() -> None:
    truth = evaluate(lambda x: x * x / x, [torch.tensor([2.0, 1e30])]).leaves[0]
    result = compare(truth, torch.tensor([2.0, -7.0]))
    assert result.ok
    assert (result.n_decided, result.n) == (1, 2)


def test_empty_results_are_right() -> None:
    truth = evaluate(lambda x: x * 2, [torch.empty(0, 3)]).leaves[0]
    assert compare(truth, torch.empty(0, 3)).ok


def test_another_shape_is_an_error_of_the_caller() -> None:
    truth = evaluate(lambda x: x * 2, [torch.ones(3)]).leaves[0]
    with pytest.raises(ValueError, match="expected shape"):
        compare(truth, torch.ones(1))
