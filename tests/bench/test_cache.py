"""What is kept of the tasks seen last is made once, makes room, and is ended."""

from __future__ import annotations

import threading
import time

import pytest

from assay.bench.cache import TaskCache
from assay.errors import InputError


def fail() -> str:
    raise InputError("no")


def test_many_threads_that_ask_at_once_wait_for_one() -> None:
    cache, made = TaskCache[str](), []

    def make() -> str:
        made.append(threading.get_ident())
        time.sleep(0.05)
        return "made"

    threads = [threading.Thread(target=cache.get, args=("a", make)) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(made) == 1
    assert not cache._making


def test_the_oldest_makes_room_and_a_failure_is_not_kept() -> None:
    cache, made = TaskCache[str](limit=1), []

    def make(name: str) -> str:
        made.append(name)
        return name

    for name in ("a", "b", "a"):
        assert cache.get(name, lambda name=name: make(name)) == name  # type: ignore[misc]
    assert made == ["a", "b", "a"]
    with pytest.raises(InputError):
        cache.get("c", fail)
    cache.get("c", lambda: make("c"))
    assert made[-1] == "c"
    assert not cache._making, "nothing is left of keys that nobody waits for"


def test_what_was_asked_for_last_stays() -> None:
    cache = TaskCache[str](limit=2)
    for name in ("a", "b", "a", "c"):
        cache.get(name, lambda name=name: name)  # type: ignore[misc]
    assert cache.get("a", fail) == "a"
    with pytest.raises(InputError):
        cache.get("b", fail)


def test_what_is_replaced_makes_room_or_is_left_is_ended() -> None:
    ended: list[str] = []
    with TaskCache[str](limit=2, usable=lambda value: value != "broken", close_one=ended.append) as cache:
        cache.get("a", lambda: "broken")
        with pytest.raises(InputError):
            cache.get("a", fail)
        assert ended == []
        assert cache.get("a", lambda: "whole") == "whole"
        assert ended == ["broken"]
        cache.get("b", lambda: "second")
        cache.get("c", lambda: "third")
        assert ended == ["broken", "whole"]
    assert ended == ["broken", "whole", "second", "third"]
