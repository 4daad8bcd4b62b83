"""From batches to times and reasons."""

from __future__ import annotations

import pytest

from assay.bench.checks import Wrong
from assay.bench.clocks import Allowance, Batch
from assay.bench.contender import Stopped
from assay.bench.judging import baseline_of, clocks_of, findings_of, times_of, why_left_out
from assay.bench.model import Concern
from assay.bench.rounds import Mistake, Seen

CALLS, CALL = 50, 4e-5


def seen(claim: float = 1.0, *, rounds: int = 5, tail: float = 0.0, types: tuple[str, ...] = ()) -> Seen:
    """Batches of calls that took 40 µs each, of which the worker claims some share."""
    found = Seen(checked=10)
    for _ in range(rounds):
        for kind in ("cold", "warm"):
            each = (claim * CALL,) * CALLS if kind == "cold" else ()
            found.batches[kind].append(Batch(kind, CALLS, 2e-4 + CALLS * CALL, claim * CALLS * CALL, each, tail, types))
        found.batches["flush"].append(Batch("flush", CALLS, 2e-4, 0.0))
        found.batches["empty"].append(Batch("flush", 1, 2e-4, 0.0))
    return found


def concerns(each: Seen, facts: dict[str, object] | None = None) -> list[Concern]:
    return [f.concern for f in findings_of(each, clocks_of(each, Allowance()), facts or {})]


def test_nothing_is_found_where_nothing_is_wrong() -> None:
    assert concerns(seen()) == []


@pytest.mark.parametrize(("each", "facts", "concern"), [
    (seen(0.1), {}, Concern.CLOCK_DISAGREES),
    (seen(tail=1e-3), {}, Concern.WORK_LEFT_BEHIND),
    (seen(types=("candidate.Lazy",)), {}, Concern.LAZY_OUTPUT),
    (seen(), {"patched": ["time.time"]}, Concern.PATCHED),
    (seen(), {"threads": ["Thread-1"]}, Concern.BACKGROUND),
])
def test_each_reason_is_told(each: Seen, facts: dict[str, object], concern: Concern) -> None:
    assert concern in concerns(each, facts)


def test_a_wrong_output_outdoes_a_late_one() -> None:
    late, both = seen(), seen()
    late.mistakes["witness"] = both.mistakes["witness"] = Mistake(Wrong("out", "1", "2", 0.1), 2)
    both.mistakes["warm"] = Mistake(Wrong("out", "1", "3", 0.1), 1)
    assert concerns(late) == [Concern.LATE_OUTPUT]
    assert concerns(both) == [Concern.WRONG_OUTPUT]


def test_who_stops_is_told_how() -> None:
    raised, forged = Seen(stopped=Stopped("raised", "ValueError: no")), Seen(stopped=Stopped("forged", ""))
    assert concerns(raised) == [Concern.STOPPED]
    assert concerns(forged) == [Concern.FORGED]


def test_a_baseline_that_a_busy_machine_held_up_makes_nobody_fast() -> None:
    held_up = seen(0.1)
    theirs = times_of("eager", clocks_of(held_up, Allowance()), None, trusted=True)
    assert theirs.cold.value == pytest.approx(0.1 * CALL)
    suspected = times_of("candidate", clocks_of(held_up, Allowance()), None)
    assert suspected.cold.value == pytest.approx(CALL)
    assert baseline_of(theirs, suspected).speedup.value == pytest.approx(0.1)


def test_a_baseline_is_left_out_with_its_reason() -> None:
    assert why_left_out(seen()) is None
    assert why_left_out(seen(), compiled=True) is None
    assert why_left_out(seen(), compiled=False) == "torch.compile compiled nothing of it"
    assert why_left_out(Seen()) == "it was not timed"
    assert why_left_out(Seen(stopped=Stopped("memory", "out of memory"))) == "memory: out of memory"
    wrong = seen()
    wrong.mistakes["cold"] = Mistake(Wrong("out", "1", "2", 0.1), 0)
    assert "outside the tolerance" in str(why_left_out(wrong))
