"""The script that runs all that needs a GPU: who shares one, what a step's time does, and that results are kept."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from types import ModuleType

import pytest

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    spec = importlib.util.spec_from_file_location("on_gpu", BENCHMARKS / "on_gpu.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "on_gpu", module)
    spec.loader.exec_module(module)
    return module


def test_what_is_timed_shares_no_gpu_with_the_rest(script: ModuleType) -> None:
    timed, rest = script.lanes(script.STEPS, ["0", "1"])
    assert (timed.gpu, rest.gpu) == ("0", "1")
    assert all(s.alone for s in timed.steps)
    assert not any(s.alone for s in rest.steps)
    assert {s.name for s in [*timed.steps, *rest.steps]} == {s.name for s in script.STEPS}
    (one,) = script.lanes(script.STEPS, ["3"])
    assert one.gpu == "3"
    assert len(one.steps) == len(script.STEPS)


def test_every_step_names_a_script_that_takes_its_options(script: ModuleType) -> None:
    for step in script.STEPS:
        for command in step.commands:
            name, *words = command.split()
            if name == "-m":
                continue
            text = (BENCHMARKS / name).read_text(encoding="utf-8")
            own = words[: words.index("--")] if "--" in words else words
            for option in (w for w in own if w.startswith("--")):
                assert f'"{option}"' in text, f"{name} has no {option}"


def ran(script: ModuleType, tmp_path: Path, body: str, least: float = 0.0, seconds: float = 30.0) -> dict[str, object]:
    (tmp_path / "step.py").write_text(body, encoding="utf-8")
    (tmp_path / "logs").mkdir(exist_ok=True)
    step = script.Step("own", (f"{tmp_path}/step.py {{out}}",), least, seconds)
    done: list[dict[str, object]] = []
    lane = script.Lane([step], "5", [min(os.sched_getaffinity(0))])
    script.run_lane(lane, tmp_path, time.monotonic() + seconds, done)
    assert json.loads((tmp_path / "steps.json").read_text(encoding="utf-8")) == done
    return done[0]


WRITES = "import os, pathlib, sys\npathlib.Path(sys.argv[1]).write_text(os.environ['CUDA_VISIBLE_DEVICES'])\n"


def test_a_step_sees_its_gpu_and_leaves_its_result(script: ModuleType, tmp_path: Path) -> None:
    row = ran(script, tmp_path, WRITES)
    assert (row["code"], row["written"], script.became(row)) == (0, True, "done")
    assert (tmp_path / "own.json").read_text(encoding="utf-8") == "5"


def test_a_step_that_outlasts_its_time_is_ended_and_keeps_what_it_wrote(script: ModuleType, tmp_path: Path) -> None:
    body = WRITES + "import subprocess, time\nsubprocess.Popen(['sleep', '987'])\ntime.sleep(987)\n"
    row = ran(script, tmp_path, body, seconds=3.0)
    assert (row["code"], row["written"]) == (None, True)
    assert script.became(row) == "stopped at its time, kept what it had"
    sleeping = subprocess.run(["pgrep", "-f", "sleep 987"], capture_output=True, text=True, check=False)
    assert not sleeping.stdout


def test_a_step_without_enough_time_is_not_begun(script: ModuleType, tmp_path: Path) -> None:
    row = ran(script, tmp_path, WRITES, least=60.0, seconds=5.0)
    assert script.became(row).startswith("not begun")
    assert not (tmp_path / "own.json").exists()


def test_a_step_that_fails_says_so(script: ModuleType, tmp_path: Path) -> None:
    row = ran(script, tmp_path, "raise SystemExit('no such thing')")
    assert script.became(row) == "failed with 1"
    assert "no such thing" in (tmp_path / "logs" / "own.log").read_text(encoding="utf-8")


def test_a_machine_without_a_gpu_gets_one_message(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, str(BENCHMARKS / "on_gpu.py"), str(tmp_path / "out")], text=True,
                          capture_output=True, check=False, env={**os.environ, "CUDA_VISIBLE_DEVICES": ""}, timeout=120)
    assert done.returncode == 2
    assert "no CUDA device here" in done.stderr
    assert not (tmp_path / "out").exists()


def test_a_result_says_nothing_of_where_it_lay(script: ModuleType) -> None:
    from common import _settings

    assert _settings(["--jobs", "3", "--out", "/x", "--only", "a"]) == ["--jobs", "3", "--only", "a"]
    assert _settings(["--out=/x"]) == []
