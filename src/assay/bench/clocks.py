"""The judge's clock against the worker's: which of the two counts, and when they contradict each other."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace

MOST_ROUNDS = 0.75
"""Share of the rounds in which the clocks have to contradict each other."""
BUSY = 2.0
"""How much longer than a trusted contender's batches a candidate's may be held up on a busy machine."""
FEWEST_ROUNDS = 3
"""Rounds below which a contradiction may be chance."""


@dataclass(frozen=True)
class Batch:
    """One batch as both clocks saw it.

    Attributes:
        kind: `warm`, `cold`, `witness` or `flush`.
        calls: number of calls.
        wall: seconds between the judge's question and the worker's answer, by the judge's clock.
        total: seconds that the worker claims, every stream at rest at both ends.
        each: seconds that it claims for single calls, where it took them.
        tail: seconds that other streams went on after the one that was called on.
        types: outputs' types that are no plain tensors.
    """

    kind: str
    calls: int
    wall: float
    total: float
    each: tuple[float, ...] = ()
    tail: float = 0.0
    types: tuple[str, ...] = ()


@dataclass(frozen=True)
class Allowance:
    """How far the two clocks may be apart.

    Attributes:
        factor: the judge's clock may show so many times what the worker's does.
        batch_s: and so many seconds more in a batch, for the exchange.
        call_s: and so many seconds more in each call that has events of its own, for what lies round them.
    """

    factor: float = 1.3
    batch_s: float = 3e-4
    call_s: float = 1e-5

    def contradicts(self, claimed: float, seen: float, calls: int, *, single: bool) -> bool:
        """Whether a call's time by the judge is more than the worker's claim can explain.

        Args:
            claimed: seconds of a call by the worker.
            seen: seconds of a call by the judge.
            calls: of the batch.
            single: whether each call had events of its own.
        """
        return seen > self.factor * claimed + self.batch_s / calls + (self.call_s if single else 0.0)


    def beside(self, trusted: Told | None, calls: int) -> Allowance:
        """The allowance on a machine as busy as a trusted contender saw it in the same rounds.

        Args:
            trusted: what both clocks say of code whose word is believed; None where there is none.
            calls: of a batch.
        """
        if trusted is None:
            return self
        held_up = statistics.median(max(0.0, s - c) for s, c in zip(trusted.seen, trusted.claimed, strict=True))
        return replace(self, batch_s=max(self.batch_s, BUSY * held_up * calls))


@dataclass(frozen=True)
class Told:
    """What both clocks say of a call over the rounds.

    Attributes:
        claimed: per round, seconds by the worker.
        seen: per round, seconds by the judge.
        contradicted: whether the judge's is more than the claim explains, and not in a few rounds only: a machine
            that looks away for a moment makes the judge's clock run on.
    """

    claimed: tuple[float, ...]
    seen: tuple[float, ...]
    contradicted: bool

    @property
    def counting(self) -> tuple[float, ...]:
        """Per round, the time that counts: the worker's finer one while the judge's bears it out."""
        return self.seen if self.contradicted else self.claimed


def trimmed(values: Sequence[float]) -> float:
    """Mean of the middle four fifths: events tick coarsely, so that a median would jump from tick to tick."""
    middle = sorted(values)[len(values) // 10:len(values) - len(values) // 10]
    return statistics.fmean(middle)


def told(batches: Sequence[Batch], empty: Sequence[Batch], allowance: Allowance) -> Told:
    """Seconds of one call by both clocks, over the rounds.

    Args:
        batches: one per round, of one kind.
        empty: batches of the same length in which nothing is called; what they take is not the calls'.
        allowance: how far the clocks may be apart.
    """
    idle_wall = statistics.median(b.wall for b in empty)
    idle_total = statistics.median(b.total for b in empty)
    seen, claimed, against = [], [], 0
    for batch in batches:
        seen.append(max((batch.wall - idle_wall) / batch.calls, 1e-9))
        whole = statistics.fmean(batch.each) if batch.each else (batch.total - idle_total) / batch.calls
        claimed.append(max(trimmed(batch.each) if batch.each else whole, 1e-9))
        against += allowance.contradicts(max(whole, 0.0), seen[-1], batch.calls, single=bool(batch.each))
    contradicted = len(batches) >= FEWEST_ROUNDS and against > MOST_ROUNDS * len(batches)
    return Told(tuple(claimed), tuple(seen), contradicted)


def left_behind(batches: Sequence[Batch], least: float) -> float:
    """Share of their batches that other streams went on for, in the middle; 0 below `least` seconds a batch."""
    tails = [b.tail for b in batches]
    if not tails or statistics.median(tails) < least:
        return 0.0
    return statistics.median(b.tail / b.wall for b in batches)
