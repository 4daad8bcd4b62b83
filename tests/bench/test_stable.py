"""Baselines that stay loaded serve one candidate after the other, and are replaced when they have ended."""

from __future__ import annotations

from assay.bench.learned import Shelf
from assay.bench.stable import Stable

from .conftest import Time


def test_the_second_candidate_of_a_task_meets_the_same_reference(timed: Time) -> None:
    shelf = Shelf()
    with Stable() as stable:
        first = timed("twins/one_buffer", shelf=shelf, stable=stable, inputs_seed=9, seed=1)
        (kept,) = stable._kept.values()
        second = timed("exploits/one_buffer", shelf=shelf, stable=stable, inputs_seed=9, seed=2)
        third = timed("twins/first_calls_only", shelf=shelf, stable=stable, inputs_seed=9, seed=3)
        assert list(stable._kept.values()) == [kept]
        assert kept["eager"].usable
        assert first.speedup is not None
        assert second.findings
        assert third.speedup is not None
    assert not kept["eager"]._session._worker


def test_a_baseline_that_ended_is_loaded_anew(timed: Time) -> None:
    shelf = Shelf()
    with Stable() as stable:
        timed("twins/one_buffer", shelf=shelf, stable=stable, inputs_seed=9, seed=1)
        (before,) = stable._kept.values()
        before["eager"]._worker.kill()
        lost = timed("twins/one_buffer", shelf=shelf, stable=stable, inputs_seed=9, seed=2)
        assert "eager" in lost.left_out
        assert not lost.counts
        again = timed("twins/one_buffer", shelf=shelf, stable=stable, inputs_seed=9, seed=3)
        assert again.counts
