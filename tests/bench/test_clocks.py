"""Two clocks: the finer one counts while the judge's bears it out."""

from __future__ import annotations

from assay.bench.clocks import Allowance, Batch, left_behind, told, trimmed

CALL, CALLS, EXCHANGE = 50e-6, 64, 2e-4
IDLE = [Batch("flush", CALLS, EXCHANGE, 1e-5)] * 3


def batch(claimed: float, *, wall: float | None = None, tail: float = 0.0, single: bool = False) -> Batch:
    seen = CALLS * CALL + EXCHANGE if wall is None else wall
    return Batch("cold" if single else "warm", CALLS, seen, CALLS * claimed + 1e-5,
                 (claimed,) * CALLS if single else (), tail)


def test_an_honest_worker_is_believed() -> None:
    for single in (False, True):
        found = told([batch(CALL, single=single)] * 5, IDLE, Allowance())
        assert not found.contradicted
        assert abs(found.counting[0] - CALL) < 1e-9
        assert found.counting == found.claimed


def test_a_worker_that_tells_a_tenth_is_contradicted_and_the_judges_clock_counts() -> None:
    for single in (False, True):
        found = told([batch(0.1 * CALL, single=single)] * 5, IDLE, Allowance())
        assert found.contradicted
        assert abs(found.counting[0] - CALL) < 1e-9


def test_a_machine_that_looks_away_for_a_few_rounds_accuses_nobody() -> None:
    away = batch(CALL, wall=CALLS * CALL + 0.02)
    assert not told([batch(CALL), away, batch(CALL), away, batch(CALL), away], IDLE, Allowance()).contradicted
    assert told([away] * 6, IDLE, Allowance()).contradicted


def test_a_machine_that_holds_up_whom_one_trusts_holds_up_the_others_too() -> None:
    held_up = batch(CALL, wall=CALLS * CALL + 0.02)
    trusted = told([held_up] * 5, IDLE, Allowance())
    assert not told([held_up] * 5, IDLE, Allowance().beside(trusted, CALLS)).contradicted
    liar = batch(0.1 * CALL, wall=CALLS * 30 * CALL)
    assert told([liar] * 5, IDLE, Allowance().beside(trusted, CALLS)).contradicted
    quiet = told([batch(CALL)] * 5, IDLE, Allowance())
    assert Allowance().beside(quiet, CALLS) == Allowance()


def test_one_round_contradicts_nobody() -> None:
    assert not told([batch(0.1 * CALL)], IDLE, Allowance()).contradicted


def test_a_slow_exchange_is_not_the_calls() -> None:
    idle = [Batch("flush", CALLS, 0.05, 1e-5)] * 3
    found = told([batch(CALL, wall=CALLS * CALL + 0.05)] * 4, idle, Allowance())
    assert not found.contradicted
    assert abs(found.seen[0] - CALL) < 1e-9


def test_work_that_goes_on_for_most_of_a_batch_was_left_behind() -> None:
    assert left_behind([batch(CALL, tail=2e-3)] * 5, 1e-4) > 0.5
    assert left_behind([batch(CALL, tail=2e-5)] * 5, 1e-4) == 0.0
    assert left_behind([], 1e-4) == 0.0


def test_outliers_are_trimmed_on_both_sides() -> None:
    assert trimmed([1.0] * 8 + [0.0, 100.0]) == 1.0
    assert trimmed([2.0]) == 2.0
