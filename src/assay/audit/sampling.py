"""Drawing from strata in proportion, the same way for the same seed."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from typing import TypeVar

T = TypeVar("T")


def allocate(sizes: dict[str, int], wanted: int) -> dict[str, int]:
    """How many to draw from each stratum: in proportion, by largest remainders, one at least where there is room.

    Never more than a stratum has; the sum is the smaller of `wanted` and of all there is.
    """
    whole = sum(sizes.values())
    wanted = min(wanted, whole)
    names = sorted(name for name, size in sizes.items() if size)
    if not names:
        return {}
    shares = {name: wanted * sizes[name] / whole for name in names}
    taken = {name: int(shares[name]) for name in names}
    if wanted >= len(names):
        taken = {name: max(1, count) for name, count in taken.items()}
    by_need = sorted(names, key=lambda name: (taken[name] - shares[name], name))
    while (missing := wanted - sum(taken.values())) != 0:
        step = 1 if missing > 0 else -1
        for name in by_need if step > 0 else reversed(by_need):
            low = 1 if wanted >= len(names) else 0
            if low <= taken[name] + step <= sizes[name]:
                taken[name] += step
                break
        by_need.sort(key=lambda name: (taken[name] - shares[name], name))
    return taken


def draw(items: Iterable[tuple[str, T]], wanted: int, seed: int) -> list[T]:
    """Draw `wanted` of the items from their strata; in the order of the items.

    Args:
        items: (stratum, item).
        wanted: how many.
        seed: of the draw; each stratum has a stream of its own.
    """
    strata: dict[str, list[tuple[int, T]]] = {}
    for position, (name, item) in enumerate(items):
        strata.setdefault(name, []).append((position, item))
    counts = allocate({name: len(members) for name, members in strata.items()}, wanted)
    drawn: list[tuple[int, T]] = []
    for name, count in counts.items():
        drawn += random.Random(f"{seed}/{name}").sample(strata[name], count)
    return [item for _, item in sorted(drawn, key=lambda pair: pair[0])]


def stratum(columns: Sequence[object]) -> str:
    """The name of a stratum from the values of the columns that make it."""
    return " / ".join("none" if value is None else str(value) for value in columns)
