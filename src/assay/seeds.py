"""Seeds that nobody could have chosen with a candidate in view, and an order of probes that tells nothing."""

from __future__ import annotations

import hashlib
import random
import secrets
from collections.abc import Sequence
from dataclasses import dataclass

from assay.probe.model import Probe

WINDOW = 12


@dataclass(frozen=True)
class Seed:
    """The seed of a plan, with what commits to it before it is revealed.

    Attributes:
        value: the seed, 31 bits.
        nonce: 128 random bits as hexadecimal, so that the commitment does not give the seed away; empty for a
            seed that was given, which is no secret and whose report must be the same each time.
    """

    value: int
    nonce: str = ""

    @property
    def commitment(self) -> str:
        """SHA-256 of `SEED:NONCE` in ASCII, as hexadecimal."""
        return hashlib.sha256(f"{self.value}:{self.nonce}".encode()).hexdigest()


def draw(given: int | None) -> Seed:
    """The seed of one verification: the given one, or a random one."""
    return Seed(given) if given is not None else Seed(secrets.randbits(31), secrets.token_hex(16))


def shuffled(plan: Sequence[Probe], seed: int) -> list[Probe]:
    """The plan with each probe moved by a few places, so that its position does not say what it is for.

    Gates take turns in a plan, and a spent budget should leave each of them with something: so no probe moves
    by more than `WINDOW` places.
    """
    source = random.Random(f"{seed}/order")
    places = [(position + source.uniform(0, WINDOW), position) for position in range(len(plan))]
    return [plan[position] for _, position in sorted(places)]
