"""Which of equal elements an index names, on the cheapest tier already."""

from __future__ import annotations

from pathlib import Path

import pytest

from assay.run.process import Zygote
from assay.verify import Options, load_pair, verify_task
from assay.vocabulary import EffortTier

ROW_ARGMAX = Path(__file__).resolve().parents[2] / "examples" / "row_argmax"


@pytest.mark.parametrize(("file", "label"), [("wrong_last_tie.py", "rejected"), ("right.py", "contract")])
def test_the_last_of_equal_elements_for_the_first_is_found_by_the_quick_tier(file: str, label: str,
                                                                             zygote: Zygote) -> None:
    task, candidate = load_pair(ROW_ARGMAX / "reference.py", ROW_ARGMAX / file)
    report = verify_task(task, candidate, zygote=zygote,
                         options=Options(device="cpu", seed=11, tier=EffortTier.QUICK))
    assert report.label.value == label, report.findings
    assert all(f.slug == "values" and "ties" in f.probe for f in report.findings[:1])
