"""Findings on the command line: verified, listed, replayed, copied to another store; and stores that are no good."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.cli.conftest import REFERENCE, RIGHT, WRONG, Said

from assay import cli
from assay.evidence import Store
from assay.report.model import Report

ONE_GATE = ("--only", "values", "--device", "cpu", "--tier", "quick")


@pytest.fixture
def assay(capsys: pytest.CaptureFixture[str]) -> Callable[..., Said]:
    def run(*arguments: object) -> Said:
        capsys.readouterr()
        with pytest.raises(SystemExit) as stopped:
            cli.main([str(a) for a in arguments])
        said = capsys.readouterr()
        assert isinstance(stopped.value.code, int)
        return Said(stopped.value.code, said.out, said.err)

    return run


def test_a_finding_replays_from_the_store_after_its_files_are_gone(tmp_path: Path,
                                                                   assay: Callable[..., Said]) -> None:
    reference, wrong, store = tmp_path / "reference.py", tmp_path / "wrong.py", tmp_path / "kept"
    reference.write_text(REFERENCE)
    wrong.write_text(WRONG)
    told = assay("verify", reference, wrong, "--store", store, *ONE_GATE)
    assert told.status == 1
    command = re.search(r"assay replay (\w+) --store (\S+)", told.out)
    assert command is not None
    reference.unlink()
    wrong.unlink()
    replayed = assay("replay", command[1], "--store", command[2])
    assert replayed.status == 0, replayed.out + replayed.err
    assert "reproduced: the candidate still shows it" in replayed.out
    assert "the same, bit for bit" in replayed.out
    assert "as it was" in replayed.out
    # and from a copy of the store on another place
    assert assay("store", "export", tmp_path / "copy", command[1], "--store", store).status == 0
    assert assay("replay", command[1][:7], "--store", tmp_path / "copy").status == 0
    assert command[1] in assay("store", "list", "--store", tmp_path / "copy").out
    assert assay("store", "verify", "--store", tmp_path / "copy").out.startswith("sound: 1 verdicts")


@pytest.mark.slow
def test_smallest_inputs_on_the_command_line(tmp_path: Path, assay: Callable[..., Said]) -> None:
    (tmp_path / "reference.py").write_text(REFERENCE)
    (tmp_path / "wrong.py").write_text(WRONG)
    store = ("--store", tmp_path / "s")
    told = assay("verify", tmp_path / "reference.py", tmp_path / "wrong.py", "--shrink", "--json", tmp_path / "r.json",
                 *store, *ONE_GATE)
    assert told.status == 1
    assert "smallest   ROWS=1" in told.out
    (finding,) = Report.model_validate_json((tmp_path / "r.json").read_text()).findings
    assert finding.minimal is not None
    assert finding.minimal.elements == 1
    assert assay("replay", finding.id, "--minimal", *store).status == 0
    again = assay("shrink", finding.id, "--seconds", "20", *store)
    assert again.status == 0
    assert "nothing smaller was found" in again.out
    assert "replay --minimal" not in again.out
    assert f"assay replay {finding.id} --minimal --store" in again.out
    script = tmp_path / "finding.py"
    assert assay("replay", finding.id, "--minimal", "--script", "-o", script, *store).status == 0
    shown = subprocess.run([sys.executable, str(script)], text=True, capture_output=True, check=False)
    assert shown.returncode == 1
    assert "DISAGREES" in shown.stdout


def test_a_verdict_is_printed_though_it_cannot_be_kept(tmp_path: Path, assay: Callable[..., Said]) -> None:
    (tmp_path / "reference.py").write_text(REFERENCE)
    (tmp_path / "wrong.py").write_text(WRONG)
    (tmp_path / "file").write_text("")
    told = assay("verify", tmp_path / "reference.py", tmp_path / "wrong.py", "--store", tmp_path / "file/s", *ONE_GATE)
    assert told.status == 1
    assert "rejected on cpu-emulation" in told.out
    assert told.err.count("assay: warning: nothing will be kept:") == 1
    # what was not kept cannot be replayed from a store
    assert "assay replay" not in told.out
    assert "--seed" in told.out


def test_a_damaged_store_stops_a_verification_before_it_starts(tmp_path: Path, assay: Callable[..., Said]) -> None:
    (tmp_path / "reference.py").write_text(REFERENCE)
    (tmp_path / "right.py").write_text(RIGHT)
    Store.open(tmp_path / "s", create=True).close()
    (tmp_path / "s/store.sqlite").write_bytes(b"")
    for command in (("verify", tmp_path / "reference.py", tmp_path / "right.py", *ONE_GATE), ("store", "stats"),
                    ("replay", "abc")):
        told = assay(*command, "--store", tmp_path / "s")
        assert told.status == 2
        assert told.out == ""
        lines = [line for line in told.err.splitlines() if "damaged" in line]
        assert len(lines) == 1
        assert lines[0].startswith("assay: ")
    assert (tmp_path / "s/store.sqlite").read_bytes() == b""


def test_nothing_is_left_behind_without_a_store(tmp_path: Path, assay: Callable[..., Said],
                                                monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "reference.py").write_text(REFERENCE)
    (tmp_path / "right.py").write_text(RIGHT)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("ASSAY_STORE")
    assert assay("verify", "reference.py", "right.py", "--no-store", *ONE_GATE).status == 0
    assert not (tmp_path / ".assay").exists()
    assert assay("verify", "reference.py", "right.py", *ONE_GATE).status == 0
    assert (tmp_path / ".assay/.gitignore").read_text() == "*\n"
    assert "contract" in assay("store", "list").out


@pytest.mark.parametrize(
    ("command", "said"),
    [
        (("replay", "abc", "--store", "nowhere"), "there is no store"),
        (("replay", "abc", "--output", "x.py"), "add --script"),
        (("store", "stats"), "give --store"),
        (("store", "list", "--store", "nowhere", "--label", "fine"), "unknown label"),
        (("store", "gc", "--store", "nowhere", "--keep", "-1"), "-1 verdicts cannot be kept"),
        (("verify", "a", "b", "--store", "x", "--no-store"), "leave one of the two out"),
        (("verify", "a", "b", "--no-store", "--shrink"), "leave out --no-store"),
        (("shrink", "abc", "--seconds", "0"), "leave no time"),
    ],
)
def test_bad_commands_are_told_in_one_line(command: tuple[str, ...], said: str, tmp_path: Path,
                                           assay: Callable[..., Said], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a").write_text("")
    (tmp_path / "b").write_text("")
    told = assay(*command)
    assert told.status == 2
    assert said in told.err
    assert len(told.err.strip().splitlines()) == 1
