"""Rounds of batches, contenders in turn, outputs of timed calls checked as they come."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field

from assay.bench.checks import SAMPLE, Expected, Wrong, sampled
from assay.bench.clocks import Batch
from assay.bench.contender import Contender, Stopped
from assay.bench.draws import Known
from assay.bench.schedule import Filling, Schedule

CANDIDATE = "candidate"
WHOLE_BYTES = 8 << 20
"""Outputs of at most so many bytes are once checked whole, whatever their number of elements."""
WARMING = 2
"""Rounds of batches before the first that counts: compiling, tuning, packing and the allocator's first blocks."""


@dataclass
class Mistake:
    """A wrong output and how often there was one of its kind."""

    wrong: Wrong
    round: int
    count: int = 1


@dataclass
class Seen:
    """What the rounds brought of one contender.

    Attributes:
        batches: by kind, one per round.
        mistakes: by kind of batch, wrong outputs.
        checked: outputs of calls that were compared.
        stopped: why it could not go on.
    """

    batches: dict[str, list[Batch]] = field(default_factory=lambda: defaultdict(list))
    mistakes: dict[str, Mistake] = field(default_factory=dict)
    checked: int = 0
    stopped: Stopped | None = None


class Rounds:
    """Runs contenders against each other.

    Args:
        contenders: prepared, by name; `candidate` is among them.
        known: draws that were fed to all of them.
        schedule: what lies in the buffers.
    """

    def __init__(self, contenders: dict[str, Contender], known: Known, schedule: Schedule) -> None:
        self._contenders, self._known, self._schedule = contenders, known, schedule
        self._expected = {i: Expected(truth) for i, truth in enumerate(known.truths)}
        self._leaves = known.truths[0].leaves
        self._most = max(known.output_bytes, 1)
        self.seen = {name: Seen(stopped=contender.stopped) for name, contender in contenders.items()}

    def warm_up(self, names: Sequence[str]) -> None:
        """Calls before those that count, none of them timed, all of them like those that are."""
        groups = self._known.groups[:1]
        for _ in range(WARMING):
            for name in names:
                for kind in ("warm", "cold", "flush"):
                    self._step(name, kind, groups, first=True)

    def one(self, number: int, of: int) -> None:
        """One round: every contender cold, then every contender warm, then the candidate before witnesses."""
        groups = self._known.groups[:1 + number * len(self._known.groups) // of]
        for kind in ("cold", "warm"):
            for name in self._schedule.rotated(list(self._live()), number):
                self._step(name, kind, groups, number)
        for name in list(self._live()):
            self._step(name, "flush", groups, number)
            self._step(name, "empty", groups, number)
        if self.seen[CANDIDATE].stopped is None:
            self._step(CANDIDATE, "witness", groups, number)

    def sound(self, name: str) -> bool:
        """Whether a contender still runs and has returned nothing wrong: what comes after that counts no more."""
        return self.seen[name].stopped is None and not self.seen[name].mistakes

    def finish(self) -> None:
        """Ask every contender that still runs for its memory and for what its process says of itself."""
        for name in self._live():
            try:
                self._contenders[name].finish()
            except Stopped as stop:
                self.seen[name].stopped = stop

    def _live(self) -> list[str]:
        return [name for name in self._contenders if self.seen[name].stopped is None]

    def _step(self, name: str, kind: str, groups: Sequence[Sequence[int]], number: int = 0, *,
              first: bool = False) -> None:
        """One batch of one contender and the check of what it returned; a contender that stops is out."""
        contender, seen = self._contenders[name], self.seen[name]
        if seen.stopped is not None:
            return
        try:
            if kind in ("flush", "empty"):
                order = list(range(self._schedule.buffers)) if kind == "flush" else []
                batch = contender.batch("flush", order)
            else:
                filling = self._schedule.filling(groups, hidden=first)
                witness = kind == "witness"
                contender.fill(filling.stale() if witness else filling)
                batch = contender.batch(kind, filling.order, filling.known if witness else None, first=first)
                if first:
                    return
                self._check(name, kind, filling, number)
            if not first:
                seen.batches[kind].append(batch)
        except Stopped as stop:
            seen.stopped = stop

    def _check(self, name: str, kind: str, filling: Filling, number: int) -> None:
        """Compare what the calls on known draws returned."""
        contender, seen = self._contenders[name], self.seen[name]
        calls = sorted(filling.known)
        places = [self._schedule.places(leaf.y.numel(), SAMPLE) if sampled(leaf) else [] for leaf in self._leaves]
        if not seen.checked and self._most <= WHOLE_BYTES:
            places = [[] for _ in places]
        try:
            found = contender.collect(calls, places, self._most)
        except Stopped as stop:
            if stop.status != "raised":
                raise
            # what it returned is no tensor whose values can be read
            self._mistake(seen, kind, number, Wrong("", "tensors", stop.text[:200], 0.0))
            return
        for call, outputs in zip(calls, found, strict=True):
            seen.checked += 1
            wrong = self._expected[filling.known[call]].wrong(outputs, places)
            if wrong is not None:
                self._mistake(seen, kind, number, wrong)

    @staticmethod
    def _mistake(seen: Seen, kind: str, number: int, wrong: Wrong) -> None:
        if kind in seen.mistakes:
            seen.mistakes[kind].count += 1
        else:
            seen.mistakes[kind] = Mistake(wrong, number)


def buffers_for(known: Known, memory: int, most: int) -> int:
    """Sets of inputs at a time: as many as the memory holds with their outputs, at least four, at most `most`."""
    return max(4, min(most, math.floor(memory / max(1, known.input_bytes + known.output_bytes))))
