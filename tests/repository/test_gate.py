"""The gate on small repositories, with real verdicts."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from xml.etree import ElementTree

import jsonschema
import pytest
from tests.doubling import REFERENCE, RIGHT

from assay.repository.model import GateReport
from assay.repository.verdicts import Verdicts

from .conftest import Gate
from .made import WRONG, commit, git, write

TOML = """
[[pairs]]
reference = "k/*/reference.py"
candidate = "{dir}/kernel.py"
release = true

[battery]
device = "cpu"
tier = "quick"
"""
RAISING = REFERENCE.replace("return x * 2", "raise ValueError('not today')")
HANGING = RIGHT.replace("return x + x", "while True: pass")


def repository(root: Path, toml: str = TOML, **candidates: str) -> Path:
    files = {f"k/{name}/kernel.py": text for name, text in candidates.items()}
    return write(root, {"assay.toml": toml, **files, **{f"k/{name}/reference.py": REFERENCE for name in candidates}})


def test_a_repository_is_gated_and_what_was_decided_is_not_decided_again(gate: Gate, tmp_path: Path) -> None:
    root = repository(tmp_path / "r", right=RIGHT, wrong=WRONG, broken=RIGHT, torn="def ModelNew(:\n")
    write(root, {"k/broken/reference.py": RAISING})
    store = tmp_path / "store"
    files = {option: tmp_path / f"out.{option}" for option in ("junit", "sarif", "markdown")}
    outputs = [word for option, path in files.items() for word in (f"--{option}", path)]
    first = gate(root, "--store", store, "--html-dir", tmp_path / "html", *outputs)
    assert first.status == 1
    assert first.decisions() == {"k/right/kernel": "merge", "k/wrong/kernel": "block", "k/broken/kernel": "bad_input",
                                 "k/torn/kernel": "block"}
    assert first.report is not None
    by_name = {pair.name: pair for pair in first.report.pairs}
    assert by_name["k/wrong/kernel"].screen is not None
    assert by_name["k/wrong/kernel"].screen.passed
    assert "not today" in by_name["k/broken/kernel"].why[0]
    assert "1 may merge, 2 blocked, 1 at fault as input" in first.out

    suite = ElementTree.parse(files["junit"]).getroot()[0]
    assert (suite.get("tests"), suite.get("failures"), suite.get("errors")) == ("4", "2", "1")
    assert "| `k/wrong/kernel` | pass | REJECTED | release | **BLOCKED** |" in files["markdown"].read_text()
    sarif = json.loads(files["sarif"].read_text())
    assert sarif["version"] == "2.1.0"
    places = {r["locations"][0]["physicalLocation"]["artifactLocation"]["uri"] for r in sarif["runs"][0]["results"]}
    assert {place.rsplit("/", 2)[1] for place in places} == {"wrong", "torn"}
    pages = {path.name for path in (tmp_path / "html").iterdir()}
    assert len(pages) == 4
    index = (tmp_path / "html/index.html").read_text()
    assert all(name in index for name in pages - {"index.html"})

    again = gate(root, "--store", store)
    assert again.status == 1
    assert again.decisions() == first.decisions()
    assert again.cached()["k/right/kernel"] == again.cached()["k/wrong/kernel"] == ("screen", "report")
    assert again.report is not None
    kept = {pair.name: pair.report for pair in again.report.pairs}
    assert kept["k/wrong/kernel"] == by_name["k/wrong/kernel"].report

    # what a verdict follows from is what it is kept by: another contract is another question
    write(root, {"k/right/contract.toml": 'determinism = "bounded"\n',
                 "assay.toml": TOML + '[[pairs]]\nreference = "k/right/reference.py"\n'
                 'candidate = "k/right/kernel.py"\ncontract = "{dir}/contract.toml"\nrelease = true\n'})
    third = gate(root / "k/right/kernel.py", "--store", store)
    assert third.status == 0
    assert third.cached() == {"k/right/kernel": ("screen",)}


def test_who_is_not_drawn_is_only_screened_and_who_fails_the_screen_is_verified(gate: Gate, tmp_path: Path) -> None:
    toml = TOML.replace("release = true", "") + "\n[sample]\nshare = 0.0\n"
    root = repository(tmp_path / "r", toml, right=RIGHT, nan=RIGHT.replace("x + x", "x.sqrt() + x.sqrt()"),
                      wrong=WRONG, off=RIGHT.replace("x + x", "x * 2.5"))
    write(root, {"k/nan/reference.py": REFERENCE.replace("x * 2", "x.sqrt() * 2")})
    ran = gate(root, "--store", tmp_path / "store")
    assert ran.status == 1
    assert ran.decisions() == {"k/right/kernel": "merge", "k/wrong/kernel": "merge", "k/nan/kernel": "merge",
                               "k/off/kernel": "block"}
    assert ran.report is not None
    assert {p.name: p.battery for p in ran.report.pairs} == {
        "k/right/kernel": "none", "k/wrong/kernel": "none", "k/nan/kernel": "screen", "k/off/kernel": "screen"}
    # the same, with everyone drawn, and a policy that wants a GPU for what is released, which is none
    write(tmp_path, {"policy.toml": 'gpu = "release"\n'})
    everyone = gate(root, "--store", tmp_path / "store", "--share", "1", "--policy", tmp_path / "policy.toml")
    assert everyone.status == 1
    assert everyone.decisions()["k/wrong/kernel"] == "block"
    assert everyone.decisions()["k/right/kernel"] == "merge"


def test_unchanged_pairs_are_named_and_not_judged(gate: Gate, tmp_path: Path) -> None:
    root = repository(tmp_path / "r", right=RIGHT, wrong=WRONG)
    git(root, "init", "--quiet", "--initial-branch", "main")
    commit(root)
    ran = gate(root, "--changed-since", "main", "--store", tmp_path / "store")
    assert ran.status == 0
    assert ran.decisions() == {"k/right/kernel": "unchanged", "k/wrong/kernel": "unchanged"}
    assert "2 unchanged" in ran.out


def test_files_of_a_commit_that_belong_to_no_pair_are_no_reason_to_stop(gate: Gate, tmp_path: Path) -> None:
    root = repository(tmp_path / "r", right=RIGHT)
    write(tmp_path, {"stray.py": "", "r/setup.py": ""})
    ran = gate(tmp_path / "stray.py", root / "setup.py", "--store", tmp_path / "store")
    assert ran.status == 0
    assert ran.decisions() == {}
    assert "no pair to look at" in ran.out


def test_a_store_that_travels_with_the_repository_is_refused(gate: Gate, tmp_path: Path) -> None:
    root = repository(tmp_path / "r", right=RIGHT)
    git(root, "init", "--quiet")
    write(root, {".assay/gate/00/forged.json": "{}"})
    commit(root)
    ran = gate(root)
    assert ran.status == 2
    assert "git tracks files in the store" in ran.err
    assert ran.report is None


@pytest.mark.parametrize(("arguments", "words"), [
    (("--policy", "gone.toml"), "no such file for the policy"),
    (("--changed-since", "main"), "not a git repository"),
    (("--share", "2"), "--share"),
    (("--device", "gpu"), "unknown device"),
    (("--tier", "deepest"), "did you mean `deep`"),
    (("--sarif", "/gone/out.sarif"), "--sarif /gone/out.sarif"),
    (("--store", "assay.toml"), "the store is no folder"),
    (("--junit", "-", "--markdown", "-"), "two reports for standard output"),
])
def test_bad_input_is_one_line(gate: Gate, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
                               arguments: tuple[str, ...], words: str) -> None:
    monkeypatch.chdir(repository(tmp_path / "r", right=RIGHT))
    ran = gate(*arguments)
    assert ran.status == 2
    assert ran.out == ""
    assert words in ran.err.splitlines()[-1]
    assert "Traceback" not in ran.err


def kept(store: Path) -> int:
    """Verdicts in a store."""
    return sum(json.loads(path.read_bytes())["kind"] == "verify" for path in store.glob("gate/*/*.json"))


@pytest.mark.parametrize("number", [
    signal.SIGKILL, pytest.param(signal.SIGINT, marks=pytest.mark.slow)])
def test_a_run_that_is_ended_loses_no_verdict(gate: Gate, tmp_path: Path, number: signal.Signals) -> None:
    root, store = repository(tmp_path / "r", right=RIGHT, slow=HANGING), tmp_path / "store"
    process = subprocess.Popen(
        [sys.executable, "-m", "assay", "gate", str(root), "--store", str(store), "--workers", "2"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ, "TMPDIR": str(tmp_path)})
    while not kept(store):
        assert process.poll() is None
        time.sleep(0.05)
    process.send_signal(number)
    _, err = process.communicate(timeout=60)
    assert process.returncode == (130 if number == signal.SIGINT else -number)
    assert "Traceback" not in err
    # nothing half-written stands under a verdict's name
    assert kept(store) == 1
    write(root, {"k/slow/kernel.py": RIGHT.replace("x + x", "2 * x")})
    ran = gate(root, "--store", store)
    assert ran.status == 0
    assert "report" in ran.cached()["k/right/kernel"]
    assert ran.cached()["k/slow/kernel"] == ()


def test_a_kept_verdict_that_is_damaged_or_about_another_pair_counts_as_absent(tmp_path: Path) -> None:
    from assay.accept import pair

    from .made import report

    root = repository(tmp_path / "r", right=RIGHT, other=WRONG)
    task, candidate = pair(root / "k/right/reference.py", root / "k/right/kernel.py")
    _, other = pair(root / "k/right/reference.py", root / "k/other/kernel.py")
    made = report()
    made = made.model_copy(update={"task": made.task.model_copy(update={"sha256": task.digest}),
                                   "candidate": made.candidate.model_copy(update={"sha256": candidate.digest})})
    verdicts, key = Verdicts(tmp_path / "store"), "ab" * 32
    assert verdicts.put("verify", key, made)
    assert verdicts.get("verify", key, task, candidate) == made
    assert verdicts.get("verify", key, task, other) is None
    assert verdicts.get("screen", key, task, candidate) is None
    assert Verdicts(tmp_path / "store", read=False).get("verify", key, task, candidate) is None
    path = verdicts.path(key)
    whole = path.read_bytes()
    for damaged in (whole[: len(whole) // 2], b"", b"null", whole.replace(b'"label": "contract"', b'"label": "x"')):
        path.write_bytes(damaged)
        assert verdicts.get("verify", key, task, candidate) is None
    path.write_bytes(whole)
    moved = verdicts.path("cd" * 32)
    moved.parent.mkdir()
    path.rename(moved)
    assert verdicts.get("verify", "cd" * 32, task, candidate) is None


def test_a_store_that_cannot_be_written_costs_a_note_and_no_verdict(gate: Gate, tmp_path: Path) -> None:
    root, store = repository(tmp_path / "r", right=RIGHT), tmp_path / "store"
    # where the folder of verdicts would be, there is a file
    write(store, {"gate": ""})
    ran = gate(root, "--store", store)
    assert ran.status == 0
    assert ran.report is not None
    assert any("cannot keep a verdict" in note for note in ran.report.notes)


def test_what_a_limit_left_undecided_is_not_kept(tmp_path: Path) -> None:
    from .made import report

    verdicts = Verdicts(tmp_path / "store")
    assert not verdicts.put("verify", "ab" * 32, report(undecided=("shapes",)))
    assert not verdicts.folder.exists()


def test_the_schema_of_the_report_is_valid() -> None:
    jsonschema.Draft202012Validator.check_schema(GateReport.model_json_schema(mode="serialization"))
