"""What lies in the buffers of a batch, drawn from a seed that the candidate does not know.

Every batch finds new values at the same addresses. Most buffers hold a draw times a factor that occurs once, so
that a result kept by address, version or content is never the right one; in a few places lie draws whose truth is
known. Nothing tells those from the rest. A draw and its twin, which begins with the same elements, follow each
other.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

KNOWN = 4
"""Places of a batch that hold draws whose truth is known, at most."""


@dataclass(frozen=True)
class Filling:
    """Contents of one batch.

    Attributes:
        contents: by buffer, a draw and the factor that its floating inputs are multiplied by.
        order: buffers in the order in which they are passed.
        known: by position in that order, the draw whose truth is known there.
    """

    contents: tuple[tuple[int, float], ...]
    order: tuple[int, ...]
    known: dict[int, int]

    def stale(self) -> Filling:
        """The same batch before the known draws are there: each place of one holds another, multiplied."""
        contents = list(self.contents)
        draws = list(self.known.values())
        for turn, position in enumerate(self.known):
            contents[self.order[position]] = (draws[turn - 1], 1.5)
        return Filling(tuple(contents), self.order, self.known)


class Schedule:
    """Fillings for the batches of a benchmark.

    Args:
        seed: hidden from the candidate.
        buffers: buffers of a batch, at least two.
    """

    def __init__(self, seed: int, buffers: int) -> None:
        self._draw = random.Random(seed)
        self.buffers = buffers

    def filling(self, groups: Sequence[Sequence[int]], *, hidden: bool = False) -> Filling:
        """One batch.

        Args:
            groups: draws that have to follow each other, such as a draw and its twin; the last group is the
                newest and always among them.
            hidden: whether no draw lies there as it is, so that those that are checked are new when they come.
        """
        chosen = [] if hidden else list(groups[-1])
        others = [group for group in groups[:-1] if len(chosen) + len(group) <= min(KNOWN, self.buffers // 2)]
        if others and not hidden:
            chosen += self._draw.choice(others)
        chosen = chosen[:self.buffers]
        # the first place is filled too: what is done once may be done there
        start = self._draw.randrange(self.buffers - len(chosen) + 1)
        known = {start + i: draw for i, draw in enumerate(chosen)}
        order = list(range(self.buffers))
        self._draw.shuffle(order)
        draws = [draw for group in groups for draw in group]
        contents: list[tuple[int, float]] = [(0, 1.0)] * self.buffers
        steps = self._draw.sample(range(1, 16 * self.buffers + 1), self.buffers)
        for position, buffer in enumerate(order):
            if position in known:
                contents[buffer] = (known[position], 1.0)
            else:
                contents[buffer] = (self._draw.choice(draws), 1.0 + 0.5 * steps[position] / (16 * self.buffers))
        return Filling(tuple(contents), tuple(order), known)

    def rotated(self, names: Sequence[str], turn: int) -> list[str]:
        """Contenders in the order of one round: each comes first as often, and every second round goes backwards."""
        shift = (turn // 2) % len(names)
        turned = [*names[shift:], *names[:shift]]
        return turned[::-1] if turn % 2 else turned

    def places(self, elements: int, count: int) -> list[int]:
        """Flat positions at which an output is looked at; empty for all of them."""
        if elements <= count:
            return []
        return sorted(self._draw.sample(range(elements), count))
