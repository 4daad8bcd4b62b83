"""`assay scoreboard` and `assay selftest` refuse what they cannot do, in one line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from assay.cli import main

from .test_score import control, screen, verdict, witness


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    said = capsys.readouterr()
    return int(ended.value.code or 0), said.out, said.err


@pytest.mark.parametrize(("arguments", "words"), [
    (("scoreboard", "--tier", "standart"), "did you mean `standard`"),
    (("scoreboard", "--only", "mutant"), "did you mean `mutants`"),
    (("scoreboard", "--sample", "0"), "give a positive number"),
    (("scoreboard", "--merge", "/nowhere/rows.jsonl"), "no such file of rows"),
    (("selftest", "--only", "valeus"), "did you mean `values`"),
    (("selftest", "--workers", "0"), "give 1 or more"),
])
def test_bad_input_is_one_line_and_status_2(
    arguments: tuple[str, ...], words: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    monkeypatch.chdir(tmp_path)
    status, _, err = run(capsys, *arguments)
    assert status == 2
    assert words in err
    assert len(err.strip().splitlines()) == 1
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(("wronged", "status"), [(False, 0), (True, 1)])
def test_a_sitting_without_time_reports_what_is_known(
    wronged: bool, status: int, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    rows = [witness("a"), verdict("a", ("values", "value", 40.0)), screen("a", "pass"),
            control("c", *([("values", "value", 2.0)] if wronged else []))]
    known = tmp_path / "known.jsonl"
    known.write_text("".join(json.dumps(r) + "\n" for r in rows))
    out = tmp_path / "out"
    got, text, _ = run(capsys, "scoreboard", "--merge", str(known), "--seconds", "0.001", "--only", "published",
                       "-o", str(out))
    assert got == status
    assert "1 of 1 mutants killed" in text
    assert json.loads((out / "scoreboard.json").read_text())["metrics"]["screen_missed"] == 1
    assert "| values |" in (out / "scoreboard.md").read_text()
    assert (out / "tolerance.svg").read_text().lstrip().startswith("<?xml")
