"""Seeds are committed to before they are used, and the order of probes tells nothing."""

from __future__ import annotations

import hashlib

from assay import seeds
from assay.probe.model import Call, Draw, Probe

PLAN = [Probe(id=f"values/{i}", gate="values", draws=(Draw(seed=i),), calls=(Call(),)) for i in range(60)]


def test_a_drawn_seed_is_hidden_until_its_nonce_is_known() -> None:
    one, two = seeds.draw(None), seeds.draw(None)
    assert one != two
    assert len(one.nonce) == 32
    assert one.commitment == hashlib.sha256(f"{one.value}:{one.nonce}".encode()).hexdigest()
    assert one.commitment != seeds.Seed(one.value + 1, one.nonce).commitment


def test_a_given_seed_commits_the_same_way_each_time() -> None:
    assert seeds.draw(5) == seeds.draw(5)
    assert seeds.draw(5).commitment != seeds.draw(6).commitment


def test_the_order_depends_on_the_seed_and_moves_no_probe_far() -> None:
    first, second = seeds.shuffled(PLAN, 1), seeds.shuffled(PLAN, 2)
    assert first == seeds.shuffled(PLAN, 1)
    assert first != second
    assert sorted(p.id for p in first) == sorted(p.id for p in PLAN)
    assert all(abs(first.index(p) - i) <= seeds.WINDOW for i, p in enumerate(PLAN))
    assert first != PLAN
