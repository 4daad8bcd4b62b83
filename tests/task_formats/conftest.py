"""Verifying what a loader made, quickly and with the gates that a format can get wrong."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from assay.report.model import Report
from assay.run.process import Zygote
from assay.task import Candidate
from assay.task.formats import Loaded
from assay.verify import Options, verify_task
from assay.vocabulary import EffortTier

GATES = ("values", "shapes", "residency", "output_aliasing", "input_mutation", "statelessness")


@pytest.fixture
def judged(zygote: Zygote) -> Callable[[Loaded, Candidate], Report]:
    """Verdict on one candidate of a loaded task."""

    def judge(loaded: Loaded, candidate: Candidate) -> Report:
        options = Options(device="cpu", tier=EffortTier.QUICK, only=GATES, seed=3, lanes=1)
        return verify_task(loaded.task, candidate, contract=loaded.contract, options=options, zygote=zygote)

    return judge


@pytest.fixture
def tree(tmp_path: Path) -> Callable[[dict[str, str]], Path]:
    """A folder with files of these texts."""

    def make(files: dict[str, str]) -> Path:
        for name, text in files.items():
            file = tmp_path / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text, encoding="utf-8")
        return tmp_path

    return make
