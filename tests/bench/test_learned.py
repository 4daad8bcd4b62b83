"""What is known of a task is worked out once for all its candidates that are fed the same draws."""

from __future__ import annotations

from assay.bench.cache import TaskCache
from assay.bench.learned import Learned

from .conftest import Time


def test_the_second_candidate_of_a_task_finds_its_truths_there(timed: Time) -> None:
    tasks = TaskCache[Learned]()
    first = timed("twins/one_buffer", tasks=tasks, inputs_seed=9, seed=1)
    second = timed("twins/first_calls_only", tasks=tasks, inputs_seed=9, seed=2)
    assert {"study", "truths"} <= set(first.phases)
    assert not {"study", "truths"} & set(second.phases)
    assert second.checked >= 6
    assert second.findings == ()
