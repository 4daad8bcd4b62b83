"""`assay verify` and `assay screen`: statuses, the JSON report, and what is shown."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import jsonschema

from assay.report.schema import report_schema, screen_schema

from .conftest import Said

Assay = Callable[..., Said]
QUICK = ("--tier", "quick", "--device", "cpu", "--seed", "3")


def test_a_right_candidate_is_under_contract(assay: Assay, files: Path) -> None:
    said = assay("verify", files / "reference.py", files / "right.py", *QUICK)
    assert said.status == 0
    assert "contract on cpu-emulation:" in said.out
    assert "Traceback" not in said.err


def test_a_wrong_candidate_is_rejected_with_what_to_type_next(assay: Assay, files: Path) -> None:
    said = assay("verify", files / "reference.py", files / "wrong.py", *QUICK, "--only", "CMP-01,faults")
    assert said.status == 1
    assert "rejected on cpu-emulation: 1 of 2 gates failed (values)" in said.out
    replay = (
        f"assay verify {files}/reference.py {files}/wrong.py --seed 3 --only values --device cpu --tier quick"
    )
    assert replay in said.out


def test_nothing_wrong_but_undecided_is_screened(assay: Assay, files: Path) -> None:
    (files / "gpu.toml").write_text('[policy]\nscope = "gpu"\n')
    said = assay(
        "verify",
        files / "reference.py",
        files / "right.py",
        *QUICK,
        "--only",
        "values",
        "--contract",
        files / "gpu.toml",
    )
    assert said.status == 3
    assert "screened on cpu-emulation: nothing wrong found" in said.out


def test_one_seed_gives_one_report_but_for_timing(assay: Assay, files: Path) -> None:
    reports = []
    for name in ("a.json", "b.json"):
        assert (
            assay("verify", files / "reference.py", files / "wrong.py", *QUICK, "--json", files / name).status
            == 1
        )
        data = json.loads((files / name).read_text())
        jsonschema.validate(data, report_schema())
        assert data.pop("timing")["total_s"] > 0
        reports.append(json.dumps(data))
    assert reports[0] == reports[1]
    assert list(files.glob(".assay-*")) == []


def test_a_dash_puts_the_report_alone_on_standard_output(assay: Assay, files: Path) -> None:
    said = assay(
        "verify", files / "reference.py", files / "right.py", *QUICK, "--only", "values", "--json", "-"
    )
    assert said.status == 0
    assert json.loads(said.out)["label"] == "contract"
    assert "contract on cpu-emulation" in said.err


def test_a_report_replaces_an_older_one_only_when_it_is_complete(assay: Assay, files: Path) -> None:
    (files / "report.json").write_text("older")
    (files / "reference.py").write_text(
        "import nothing_of_this_name\n" + (files / "reference.py").read_text()
    )
    said = assay("verify", files / "reference.py", files / "right.py", "--json", files / "report.json")
    assert said.status == 2
    assert (files / "report.json").read_text() == "older"
    assert list(files.glob(".assay-*")) == []


def test_progress_in_a_log_file_is_sparse_and_on_standard_error(assay: Assay, files: Path) -> None:
    said = assay("verify", files / "reference.py", files / "right.py", *QUICK, "--only", "values")
    lines = said.err.splitlines()
    assert lines[:3] == ["assay: starting workers", "assay: studying the task", "assay: first call"]
    assert len(lines) <= 4
    assert all(len(line) <= 80 for line in said.out.splitlines() if "replay" not in line)


def test_the_screen_passes_and_fails_by_status(assay: Assay, files: Path) -> None:
    passed = assay("screen", files / "reference.py", files / "wrong.py", "--device", "cpu")
    assert passed.status == 0
    assert "passed the screen (kernelbench-v0, atol = rtol = 0.01) on cpu-emulation" in passed.out
    assert "No verdict" in passed.out
    failed = assay(
        "screen",
        files / "reference.py",
        files / "wrong.py",
        "--device",
        "cpu",
        "--variant",
        "kernelbench",
        "--json",
        files / "screen.json",
    )
    assert failed.status == 1
    assert "expected" in failed.out
    assert "failed the screen (kernelbench, atol = rtol = 0.0001)" in failed.out
    jsonschema.validate(json.loads((files / "screen.json").read_text()), screen_schema())
