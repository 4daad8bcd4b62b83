"""A fixed sample of the scoreboard: every mutant with a witness is rejected, every control accepted."""

from __future__ import annotations

from pathlib import Path

import pytest

from assay.scoreboard.plan import plan
from assay.scoreboard.rows import Rows
from assay.scoreboard.run import Effort, run
from assay.scoreboard.score import score
from assay.screen import ScreenVariant

MUTANTS = 16


@pytest.mark.slow
def test_the_sample_is_judged_right(tmp_path: Path) -> None:
    cases = plan(("mutants", "controls"), sample=MUTANTS, seed=1)
    rows = Rows(tmp_path / "rows.jsonl")
    run(cases, rows, Effort(workers=1, searchers=1, screens=(ScreenVariant.KERNELBENCH_V0,)))
    rows.close()
    found = score(rows.known.values())
    assert found.made == MUTANTS
    assert found.metrics["mutants"] >= MUTANTS // 2
    assert found.survivors == ()
    assert found.alarmed == ()
    assert found.undecided == 0
    assert 0 < found.metrics["screen_missed"] < found.metrics["mutants"]
