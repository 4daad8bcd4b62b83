"""What is known of a task is worked out once for all its candidates that are fed the same draws."""

from __future__ import annotations

import threading
import time

import pytest

from assay.bench.learned import Learned, Shelf
from assay.errors import InputError

from .conftest import Time


def test_many_threads_that_ask_at_once_wait_for_one() -> None:
    shelf, made = Shelf(), []

    def make() -> Learned:
        made.append(threading.get_ident())
        time.sleep(0.05)
        return Learned(None, None, None, None)  # type: ignore[arg-type]

    threads = [threading.Thread(target=shelf.get, args=("a", make)) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(made) == 1


def test_the_oldest_makes_room_and_a_failure_is_not_kept() -> None:
    shelf, made = Shelf(limit=1), []

    def make(name: str) -> Learned:
        made.append(name)
        return Learned(None, None, None, None)  # type: ignore[arg-type]

    def fail() -> Learned:
        raise InputError("no")

    for name in ("a", "b", "a"):
        shelf.get(name, lambda name=name: make(name))  # type: ignore[misc]
    assert made == ["a", "b", "a"]
    with pytest.raises(InputError):
        shelf.get("c", fail)
    shelf.get("c", lambda: make("c"))
    assert made[-1] == "c"


def test_the_second_candidate_of_a_task_finds_its_truths_there(timed: Time) -> None:
    shelf = Shelf()
    first = timed("twins/one_buffer", shelf=shelf, inputs_seed=9, seed=1)
    second = timed("twins/first_calls_only", shelf=shelf, inputs_seed=9, seed=2)
    assert {"study", "truths"} <= set(first.phases)
    assert not {"study", "truths"} & set(second.phases)
    assert second.checked >= 6
    assert second.findings == ()
