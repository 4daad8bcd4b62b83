"""Who gets the full battery: releases, and a sample that anyone can draw again."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Selection:
    """Names of pairs, by why they get the full battery.

    Attributes:
        release: those about to be released.
        sample: those drawn from the rest.
    """

    release: frozenset[str]
    sample: frozenset[str]

    def why(self, name: str) -> str | None:
        """`release`, `sample`, or None for a pair that was not chosen."""
        if name in self.release:
            return "release"
        return "sample" if name in self.sample else None


def select(release: Sequence[str], rest: Mapping[str, str], share: float, seed: str) -> Selection:
    """Choose.

    Args:
        release: pairs about to be released.
        rest: all others by name, each with the hash of its content.
        share: share of the rest, 0 to 1, rounded up.
        seed: text that the draw follows from.

    A pair's rank is the SHA-256 of seed, name and content, so a changed candidate is drawn anew, and the draw
    can be repeated from the report.
    """
    def rank(name: str) -> bytes:
        return hashlib.sha256(f"{seed}\0{name}\0{rest[name]}".encode()).digest()

    # 1e-9: a share such as 0.1 of 10 is one, whatever its binary form
    count = min(len(rest), math.ceil(share * len(rest) - 1e-9))
    return Selection(frozenset(release), frozenset(sorted(rest, key=rank)[:count]))
