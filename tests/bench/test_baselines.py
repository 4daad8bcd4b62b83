"""Baselines that stay loaded serve one candidate after the other, and are replaced when they have ended."""

from __future__ import annotations

from assay.bench.cache import TaskCache
from assay.bench.learned import Learned
from assay.bench.making import baseline_cache

from .conftest import Time


def test_the_second_candidate_of_a_task_meets_the_same_reference(timed: Time) -> None:
    tasks = TaskCache[Learned]()
    with baseline_cache() as baselines:
        first = timed("twins/one_buffer", tasks=tasks, baselines=baselines, inputs_seed=9, seed=1)
        (kept,) = baselines._kept.values()
        second = timed("exploits/one_buffer", tasks=tasks, baselines=baselines, inputs_seed=9, seed=2)
        third = timed("twins/first_calls_only", tasks=tasks, baselines=baselines, inputs_seed=9, seed=3)
        assert list(baselines._kept.values()) == [kept]
        assert kept["eager"].usable
        assert first.speedup is not None
        assert second.findings
        assert third.speedup is not None
    assert not kept["eager"]._session._worker


def test_a_baseline_that_ended_is_loaded_anew(timed: Time) -> None:
    tasks = TaskCache[Learned]()
    with baseline_cache() as baselines:
        timed("twins/one_buffer", tasks=tasks, baselines=baselines, inputs_seed=9, seed=1)
        (before,) = baselines._kept.values()
        before["eager"]._worker.kill()
        lost = timed("twins/one_buffer", tasks=tasks, baselines=baselines, inputs_seed=9, seed=2)
        assert "eager" in lost.left_out
        assert not lost.counts
        again = timed("twins/one_buffer", tasks=tasks, baselines=baselines, inputs_seed=9, seed=3)
        assert again.counts
