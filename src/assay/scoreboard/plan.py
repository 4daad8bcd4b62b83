"""Which cases a scoreboard is made of."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from assay.scoreboard.cases import Case, mutants

GROUPS = ("mutants", "controls", "published", "operators")
"""What can be judged; `operators` are controls from PyTorch's operator database, which take a while to make."""
SHARE = 4
"""A sample of mutants comes with one control for so many."""


def plan(groups: Iterable[str] = GROUPS, *, most: int = 2, sample: int | None = None, seed: int = 0) -> list[Case]:
    """The cases of a scoreboard, in an order of which any beginning is a fair sample.

    Args:
        groups: which groups.
        most: places per mutation operator and kernel.
        sample: mutants to take, and a share of controls with them; None for all.
        seed: of the order.
    """
    wanted = set(groups)
    cases: list[Case] = []
    if "published" in wanted:
        from assay.scoreboard import published

        cases += [*published.seeded(), *published.tricks(), *published.clean()]
    if wanted & {"controls", "operators"}:
        from assay.scoreboard import controls

        found: list[Case] = []
        if "controls" in wanted:
            found += controls.controls()
        if "operators" in wanted:
            found += controls.database()
        cases += _thinned(found, sample // SHARE if sample is not None else None, seed)
    if "mutants" in wanted:
        found = mutants(seed, most)
        cases += found if sample is None else _thinned(found, sample, seed)
    return cases


def _thinned(cases: Sequence[Case], count: int | None, seed: int) -> list[Case]:
    """A sample that keeps those of one subject together; all without a count."""
    import random

    if count is None or count >= len(cases):
        return list(cases)
    chosen = random.Random(f"{seed}/sample").sample(range(len(cases)), count)
    return [cases[i] for i in sorted(chosen, key=lambda i: (cases[i].subject, i))]
