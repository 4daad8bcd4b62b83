"""Which process runs which probe: alike ones together, none waits for ever, few are held."""

from __future__ import annotations

import os
import threading

from hypothesis import given, settings
from hypothesis import strategies as st

from assay.run import lanes
from assay.run.backlog import AHEAD, FAR_AHEAD, FAR_BYTES, Backlog


def _filled(kinds: str) -> Backlog[int]:
    backlog: Backlog[int] = Backlog(apart=True)
    for number, kind in enumerate(kinds):
        backlog.put(number, kind)
    backlog.close()
    return backlog


def test_jobs_alike_go_to_one_taker() -> None:
    backlog = _filled("abab")
    assert [backlog.take(0), backlog.take(1), backlog.take(0), backlog.take(1)] == [0, 1, 2, 3]
    assert backlog.take(0) is None


def test_a_taker_prefers_its_own_kind_to_a_new_one() -> None:
    backlog = _filled("abca")
    assert [backlog.take(0), backlog.take(0), backlog.take(1)] == [0, 3, 1]


def test_a_taker_without_a_kind_of_its_own_takes_anothers_after_a_while() -> None:
    backlog = _filled("aaa")
    assert backlog.take(0) == 0
    assert backlog.take(1) == 1
    assert backlog.take(1) == 2, "the kind is its own by now"


def test_what_uses_its_process_up_is_taken_when_nothing_else_is_left() -> None:
    backlog: Backlog[int] = Backlog(apart=True, owners={"a": {0}})
    backlog.put(0, "b", last=True)
    for number in range(1, 4):
        backlog.put(number, "a")
    backlog.close()
    assert [backlog.take(lane) for lane in (0, 0, 1, 1, 1)] == [1, 2, 3, 0, None]


def test_without_kinds_jobs_come_in_their_order() -> None:
    backlog: Backlog[int] = Backlog()
    for number, kind in enumerate("aaab"):
        backlog.put(number, kind)
    backlog.close()
    assert [backlog.take(n % 2) for n in range(5)] == [0, 1, 2, 3, None]


def _waits(backlog: Backlog[int], size: int, seconds: float) -> bool:
    """Whether another job has to wait, looked at for so long at most; it is taken along in any case."""
    putting = threading.Thread(target=backlog.put, args=(-1, "z", size), daemon=True)
    putting.start()
    putting.join(seconds)
    waits = putting.is_alive()
    while waits and putting.is_alive():
        backlog.take(0)
    return waits


def test_small_jobs_wait_in_larger_numbers_where_kinds_count() -> None:
    for apart, size, most in ((False, 1, AHEAD), (True, 1, FAR_AHEAD), (True, FAR_BYTES, AHEAD)):
        backlog: Backlog[int] = Backlog(apart=apart)
        for number in range(most - 1):
            backlog.put(number, "a", size)
        assert not _waits(backlog, size, 60.0)
        assert _waits(backlog, size, 0.3)


@settings(deadline=None, max_examples=20)
@given(st.lists(st.sampled_from("abcd"), max_size=40), st.integers(1, 4))
def test_every_job_is_taken_once(kinds: list[str], takers: int) -> None:
    backlog: Backlog[int] = Backlog(apart=True)
    taken: list[int] = []

    def take(number: int) -> None:
        while (job := backlog.take(number)) is not None:
            taken.append(job)

    threads = [threading.Thread(target=take, args=(n,), daemon=True) for n in range(takers)]
    for thread in threads:
        thread.start()
    for number, kind in enumerate(kinds):
        backlog.put(number, kind, 1)
    backlog.close()
    for thread in threads:
        thread.join(30)
    assert sorted(taken) == list(range(len(kinds)))


@settings(deadline=None)
@given(st.integers(0, 63), st.integers(1, 192))
def test_processes_of_a_candidate_fit_the_machine(neighbours: int, gib: int) -> None:
    on_gpu = lanes.count("cuda", neighbours, gib << 30)
    assert lanes.count("cpu", neighbours, 0) == (1 if neighbours else lanes.LANES)
    if neighbours:
        assert on_gpu == 1
        return
    assert lanes.LANES <= on_gpu <= lanes.LANES_ON_A_GPU
    if on_gpu > lanes.LANES:
        assert 2 * on_gpu <= len(os.sched_getaffinity(0))
        assert on_gpu * lanes.CONTEXT_BYTES * lanes.CONTEXTS_SHARE <= gib << 30
