"""Which size is lengthened so that a reduction is long, and what happens where a device is too small for that."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from assay.contract import Contract
from assay.gates import Context
from assay.gates.numeric_plan import lengths
from assay.run.process import Zygote
from assay.run.reference import ReferenceSession
from assay.task import load_task
from assay.vocabulary import EffortTier

ATTENTION = Path(__file__).resolve().parents[2] / "examples" / "causal_attention" / "reference.py"


@pytest.fixture(scope="module")
def attention(zygote: Zygote) -> Context:
    session = ReferenceSession(zygote, load_task(ATTENTION), {})
    try:
        study = session.study()
    finally:
        session.close()
    return Context(study=study, contract=Contract(), tier=EffortTier.STANDARD, seed=1, device="cuda",
                   language="triton", element_limit=1 << 24)


def test_a_refused_size_is_lengthened_after_the_others(attention: Context) -> None:
    first = lengths(attention)[1]
    assert first.name.startswith("WIDTH=")
    other = lengths(replace(attention, refused={"WIDTH": first.value}))[1]
    assert other.name.startswith("LENGTH=")
    assert other.sizes.get("WIDTH", 32) <= 32, "the refused size stays small"


def test_where_every_size_is_refused_it_is_lengthened_less_or_not_at_all(attention: Context) -> None:
    names = ("WIDTH", "LENGTH", "HEADS")
    less = lengths(replace(attention, refused=dict.fromkeys(names, 2048)))[1]
    assert less.name == "WIDTH=512"
    assert lengths(replace(attention, refused=dict.fromkeys(names, 512)))[1].value == 0, "not worth a probe"
