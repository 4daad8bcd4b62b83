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
    open_sizes = {name: size for name, size in sizes.items() if size}
    wanted = min(wanted, sum(open_sizes.values()))
    taken: dict[str, int] = {}
    if wanted >= len(open_sizes):
        # strata whose share is less than one get one; the others share what is left
        while small := [n for n in open_sizes if (wanted - sum(taken.values())) * open_sizes[n]
                        < sum(open_sizes.values())]:
            taken.update(dict.fromkeys(small, 1))
            open_sizes = {n: size for n, size in open_sizes.items() if n not in small}
    left = wanted - sum(taken.values())
    whole = sum(open_sizes.values())
    shares = {name: left * size / whole for name, size in open_sizes.items()}
    taken.update({name: int(share) for name, share in shares.items()})
    by_remainder = sorted(shares, key=lambda name: (int(shares[name]) - shares[name], name))
    for name in by_remainder[:wanted - sum(taken.values())]:
        taken[name] += 1
    return {name: count for name, count in sorted(taken.items()) if count}


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
