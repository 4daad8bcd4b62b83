"""Outputs of timed calls are judged with the tolerance of every verdict, whole or at some positions."""

from __future__ import annotations

import pytest
import torch

from assay.bench.checks import WHOLE, Expected, elements_of, sampled
from assay.probe.model import Draw
from assay.probe.record import Truth
from assay.run.process import Zygote
from assay.run.reference import ReferenceSession
from assay.task import load_task

from .conftest import TIMING


@pytest.fixture(scope="module")
def truth(zygote: Zygote) -> Truth:
    session = ReferenceSession(zygote, load_task(TIMING / "tasks" / "rows.py"))
    try:
        return session.truth({"ROWS": 600, "COLS": 500}, None, Draw(seed=4), 4)
    finally:
        session.close()


def returned(values: torch.Tensor) -> list[tuple[tuple[int, ...], torch.Tensor]]:
    return [(tuple(values.shape), values)]


def test_the_reference_s_own_output_is_right(truth: Truth) -> None:
    native = truth.leaves[0].native
    assert native.numel() > WHOLE
    assert sampled(truth.leaves[0])
    assert Expected(truth).wrong(returned(native)) is None
    where = [3, 777, 299_999]
    assert Expected(truth).wrong([((600, 500), native.reshape(-1)[where])], [where]) is None


def test_a_wrong_element_is_seen_whole_and_where_it_is_looked_at(truth: Truth) -> None:
    spoilt = truth.leaves[0].native.clone()
    spoilt[1, 277] += 1e-4
    whole = Expected(truth).wrong(returned(spoilt))
    assert whole is not None
    assert float(whole.actual) == pytest.approx(float(spoilt[1, 277]))
    at = Expected(truth).wrong([((600, 500), spoilt.reshape(-1)[[3, 777]])], [[3, 777]])
    assert at is not None
    assert (at.expected, at.actual, at.tolerance) == (whole.expected, whole.actual, whole.tolerance)
    assert Expected(truth).wrong([((600, 500), spoilt.reshape(-1)[[3, 778]])], [[3, 778]]) is None


def test_the_tolerance_at_a_position_is_that_of_the_whole(truth: Truth) -> None:
    leaf, where = truth.leaves[0], [0, 12_345, 299_999]
    assert torch.equal(elements_of(leaf, where).tolerance, leaf.tolerance.reshape(-1)[where])


@pytest.mark.parametrize("shape", [(600, 499), (500, 600), (300_000,)])
def test_another_shape_is_wrong(truth: Truth, shape: tuple[int, ...]) -> None:
    found = Expected(truth).wrong(returned(torch.zeros(shape)))
    assert found is not None
    assert found.expected == "shape [600, 500]"


def test_nan_and_missing_tensors_are_wrong(truth: Truth) -> None:
    expected = Expected(truth)
    assert expected.wrong(returned(torch.full((600, 500), float("nan")))) is not None
    assert expected.wrong([]) is not None
    assert expected.wrong([((600, 500), torch.zeros(2))], [[1, 2, 3]]) is not None
