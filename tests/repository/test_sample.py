"""The sample repository of `examples/ci`, gated as its workflow would, and the files that workflows read."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
yaml = pytest.importorskip("yaml", reason="PyYAML is not installed")


def load(path: str) -> Any:
    return yaml.safe_load((ROOT / path).read_text(encoding="utf-8"))


@pytest.mark.slow
def test_the_sample_repository_is_gated_as_it_says(tmp_path: Path) -> None:
    """Every expectation stands in the script: exit statuses, artefacts, what is taken from the store."""
    done = subprocess.run(
        ["bash", str(ROOT / "examples/ci/run.sh"), str(tmp_path)], capture_output=True, text=True, check=False,
        env={**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}, cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.endswith("run.sh: everything as expected\n")


def test_the_step_of_the_action_hands_on_what_the_gate_says(tmp_path: Path) -> None:
    """`action/gate.sh` with an `assay` that only notes what it is asked: names of files are never read as commands."""
    folder = tmp_path / "bin"
    folder.mkdir()
    (folder / "assay").write_text('#!/bin/sh\nprintf "%s\\n" "$@" > "$NOTES"\n'
                                  'while [ $# -gt 0 ]; do case "$1" in --markdown|--sarif) echo said > "$2";; esac; '
                                  "shift; done\nexit 3\n")
    (folder / "assay").chmod(0o755)
    done = subprocess.run(
        ["bash", str(ROOT / "action/gate.sh")], capture_output=True, text=True, check=False, cwd=tmp_path,
        env={"PATH": f"{folder}:{os.environ['PATH']}", "NOTES": str(tmp_path / "notes"),
             "ASSAY_PATHS": "a b\n$(touch pwned)\n--policy", "ASSAY_SINCE": "main; touch pwned",
             "ASSAY_OUT": str(tmp_path / "out dir"), "GITHUB_STEP_SUMMARY": str(tmp_path / "summary"),
             "GITHUB_OUTPUT": str(tmp_path / "output")})
    assert done.returncode == 3, done.stderr
    words = (tmp_path / "notes").read_text().splitlines()
    assert words[-4:] == ["--", "a b", "$(touch pwned)", "--policy"]
    assert words[words.index("--changed-since") + 1] == "main; touch pwned"
    assert "--policy" not in words[:-4]
    assert not list(tmp_path.glob("**/pwned"))
    assert (tmp_path / "summary").read_text() == "said\n"
    assert (tmp_path / "output").read_text() == f"status=3\nsarif={tmp_path}/out dir/assay.sarif\n"


def test_the_action_runs_nothing_that_a_pull_request_wrote() -> None:
    action = load("action.yml")
    assert action["runs"]["using"] == "composite"
    for step in action["runs"]["steps"]:
        assert "${{" not in step.get("run", "")
        assert "shell" in step or "run" not in step
    used = set(re.findall(r"inputs\.([a-z-]+)", (ROOT / "action.yml").read_text()))
    assert used == set(action["inputs"])


def test_every_variable_of_the_action_is_one_that_its_step_reads() -> None:
    gate = next(step for step in load("action.yml")["runs"]["steps"] if step.get("id") == "gate")
    script = (ROOT / "action/gate.sh").read_text()
    given = {name for name in gate["env"] if name.startswith("ASSAY_")}
    assert given <= set(re.findall(r"ASSAY_[A-Z_]+", script))


def test_the_hook_of_pre_commit_runs_as_pre_commit_would(tmp_path: Path) -> None:
    hook, = load(".pre-commit-hooks.yaml")
    assert re.search(hook["files"], "kernels/a/kernel.py")
    assert not re.search(hook["files"], "README.md")
    shutil.copytree(ROOT / "examples/ci", tmp_path / "r", ignore=shutil.ignore_patterns(".assay"))
    command = hook["entry"].replace("assay", f"{sys.executable} -m assay", 1).split()
    # what is committed belongs to no pair: the hook has nothing to say, and says so
    (tmp_path / "r/setup.py").write_text("")
    done = subprocess.run([*command, "setup.py"], cwd=tmp_path / "r", capture_output=True, text=True, check=False)
    assert (done.returncode, "no pair to look at" in done.stdout) == (0, True), done.stderr
    # settings that nobody understands hold the commit back
    (tmp_path / "r/assay.toml").write_text("pears = 1\n")
    done = subprocess.run([*command, "assay.toml"], cwd=tmp_path / "r", capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "did you mean `pairs`" in done.stderr


@pytest.mark.parametrize("name", ["ci", "release"])
def test_workflows_ask_for_no_more_than_they_need(name: str) -> None:
    workflow = load(f".github/workflows/{name}.yml")
    assert workflow["permissions"] == {"contents": "read"}
    for job in workflow["jobs"].values():
        for step in job["steps"]:
            # an expression inside a script would be read by the shell
            assert "${{" not in step.get("run", "")
