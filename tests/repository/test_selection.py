"""The sample is a stated share, and anyone can draw it again."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from assay.repository.selection import select

NAMES = st.lists(st.text("abcdefgh", min_size=1, max_size=6), unique=True, max_size=30)


@given(NAMES, st.integers(0, 100), st.text(max_size=5))
def test_the_share_is_rounded_up_and_the_draw_repeats(names: list[str], percent: int, seed: str) -> None:
    rest = {name: name * 3 for name in names}
    share = percent / 100
    first = select([], rest, share, seed)
    assert first == select([], dict(reversed(rest.items())), share, seed)
    assert len(first.sample) == math.ceil(percent * len(names) / 100)
    assert first.sample <= set(names)


def test_a_larger_share_keeps_who_was_drawn() -> None:
    rest = {f"k{i}": "x" for i in range(40)}
    small, large = (select([], rest, share, "s").sample for share in (0.2, 0.6))
    assert small < large


def test_another_seed_or_content_draws_others() -> None:
    rest = {f"k{i}": "x" for i in range(40)}
    drawn = select([], rest, 0.5, "a").sample
    assert drawn != select([], rest, 0.5, "b").sample
    assert drawn != select([], dict.fromkeys(rest, "y"), 0.5, "a").sample


def test_releases_are_always_chosen() -> None:
    chosen = select(["r"], {"a": "1"}, 0.0, "")
    assert (chosen.why("r"), chosen.why("a")) == ("release", None)
    assert select(["r"], {"a": "1"}, 1.0, "").why("a") == "sample"
