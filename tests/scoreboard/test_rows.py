"""Rows are appended as they come, and read back whatever happened to the process that wrote them."""

from __future__ import annotations

from pathlib import Path

import pytest

from assay.errors import InputError
from assay.scoreboard.rows import Rows, load


def row(id: str, **more: object) -> dict[str, object]:
    return {"type": "verdict", "id": id, "tier": "standard", **more}


def test_rows_survive_a_line_that_was_cut_off(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    rows = Rows(path)
    rows.add(row("a", label="rejected"))
    rows.close()
    with path.open("a") as file:
        file.write('{"type": "verdict", "id": "b", "ti')
    again = Rows(path)
    again.add(row("c"))
    again.close()
    assert sorted(r["id"] for r in load([path]).values()) == ["a", "c"]
    assert again.get("verdict", "a", "standard") is not None
    assert again.get("verdict", "b", "standard") is None


def test_files_of_several_machines_merge_and_equal_results_count_once(tmp_path: Path) -> None:
    for name, ids in (("one", "ab"), ("two", "bc")):
        rows = Rows(tmp_path / name)
        for id in ids:
            rows.add(row(id))
        rows.close()
    assert len(load([tmp_path / "one", tmp_path / "two"])) == 3
    third = Rows(tmp_path / "three", [tmp_path / "one", tmp_path / "two"])
    assert third.get("verdict", "c", "standard") is not None
    third.close()
    assert (tmp_path / "three").read_text() == ""


def test_a_file_of_something_else_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("hello\nworld\n{}\n")
    with pytest.raises(InputError, match="not a row"):
        load([path])
