"""What lies in the buffers: new each time, unforeseeable, with known draws among the rest."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from assay.bench.schedule import KNOWN, Schedule

GROUPS = ((0, 1), (2, 3), (4, 5))


@given(seed=st.integers(0, 1 << 31), buffers=st.integers(4, 200), groups=st.integers(1, 3))
def test_every_buffer_is_passed_once_and_known_draws_follow_each_other(seed: int, buffers: int, groups: int) -> None:
    filling = Schedule(seed, buffers).filling(GROUPS[:groups])
    assert sorted(filling.order) == list(range(buffers))
    assert set(GROUPS[groups - 1]) <= set(filling.known.values()), "the newest are always among them"
    assert len(filling.known) <= KNOWN
    positions = sorted(filling.known)
    assert positions == list(range(positions[0], positions[0] + len(positions)))
    for position, draw in filling.known.items():
        assert filling.contents[filling.order[position]] == (draw, 1.0)


@given(seed=st.integers(0, 1 << 31), buffers=st.integers(4, 200))
def test_no_two_buffers_hold_the_same_values(seed: int, buffers: int) -> None:
    filling = Schedule(seed, buffers).filling(GROUPS[:1])
    others = [factor for position, buffer in enumerate(filling.order) for _, factor in [filling.contents[buffer]]
              if position not in filling.known]
    assert len(set(others)) == len(others)
    assert all(1.0 < factor <= 1.5 for factor in others)


def test_before_a_witness_another_draw_lies_in_the_place_of_a_known_one() -> None:
    filling = Schedule(5, 16).filling(GROUPS)
    stale = filling.stale()
    assert (stale.order, stale.known) == (filling.order, filling.known)
    for position, buffer in enumerate(filling.order):
        if position in filling.known:
            assert stale.contents[buffer][0] != filling.known[position]
        else:
            assert stale.contents[buffer] == filling.contents[buffer]


def test_calls_that_are_not_checked_see_no_draw_that_will_be() -> None:
    filling = Schedule(3, 16).filling(GROUPS, hidden=True)
    assert filling.known == {}
    assert all(factor > 1.0 for _, factor in filling.contents)


def test_known_draws_may_lie_anywhere() -> None:
    schedule = Schedule(7, 16)
    starts = {min(schedule.filling(GROUPS[:1]).known) for _ in range(400)}
    assert starts == set(range(15)), "the first calls and the last are looked at like all others"


def test_a_seed_gives_its_schedule_and_another_gives_another() -> None:
    first, again, other = (Schedule(s, 32).filling(GROUPS) for s in (1, 1, 2))
    assert first == again
    assert first != other


def test_contenders_take_turns() -> None:
    schedule = Schedule(0, 4)
    orders = [schedule.rotated(["a", "b", "c"], turn) for turn in range(6)]
    assert orders[0] == ["a", "b", "c"]
    assert orders[1] == ["c", "b", "a"]
    for place in range(3):
        assert {order[place] for order in orders} == {"a", "b", "c"}


def test_small_outputs_are_looked_at_whole() -> None:
    schedule = Schedule(0, 4)
    assert schedule.places(100, 100) == []
    places = schedule.places(1000, 50)
    assert len(set(places)) == 50
    assert 0 <= places[0] <= places[-1] < 1000
