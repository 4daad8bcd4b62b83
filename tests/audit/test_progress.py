"""Time left in words, and a log that stays short."""

from __future__ import annotations

from collections import Counter

import pytest

from assay.audit.run import Progress
from assay.cli.audit_progress import duration, progress, tallies


@pytest.mark.parametrize(("seconds", "words"), [
    (0, "0 s"), (89, "89 s"), (95, "2 min"), (3600, "60 min"), (5400, "1 h 30 min"), (36 * 3600 + 300, "36 h 05 min"),
    (50 * 3600, "2 d 2 h"),
])
def test_duration(seconds: float, words: str) -> None:
    assert duration(seconds) == words


def test_tallies_are_in_order() -> None:
    assert tallies(Progress(counts=Counter({"rejected": 1200, "contract": 3}))) == "contract 3, rejected 1,200"


def test_a_log_says_when_a_phase_begins_and_ends_and_little_between(capsys: pytest.CaptureFixture[str]) -> None:
    with progress() as show:
        show(Progress("reading"))
        for done in range(51):
            show(Progress("running", done, 50, counts=Counter(contract=done)))
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == "assay: reading the corpus"
    assert lines[1] == "assay: judging 0/50  contract 0"
    assert lines[-1].startswith("assay: judging 50/50")
    assert len(lines) == 3
