"""A run judges what has no row yet, and goes on where an earlier one was killed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from assay.scoreboard.cases import Case, mutants
from assay.scoreboard.controls import controls
from assay.scoreboard.plan import plan
from assay.scoreboard.published import clean, seeded, tricks
from assay.scoreboard.rows import Rows, load
from assay.scoreboard.run import Effort, run
from assay.scoreboard.score import score
from assay.screen import ScreenVariant
from assay.vocabulary import EffortTier

ROOT = Path(__file__).parents[2]
QUICK = Effort(tiers=(EffortTier.QUICK,), screens=(ScreenVariant.KERNELBENCH_V0,), workers=1, searchers=1)


def chosen(*ids: str) -> list[Case]:
    found = {c.id: c for c in [*mutants(names=("relu",)), *controls()]}
    return [found[i] for i in ids]


def test_mutants_are_searched_then_judged_and_nothing_is_done_twice(tmp_path: Path) -> None:
    cases = chosen("relu/drop_load_mask/0", "relu/nan_swallowed/0", "relu/dropped_offset/0", "control/relu/reference")
    rows = Rows(tmp_path / "rows.jsonl")
    run(cases, rows, QUICK)
    rows.close()
    found = load([rows.path])
    assert {k for k in found if k.startswith("witness")} == {f"witness|{c.id}|" for c in cases[:3]}
    assert found["verdict|relu/drop_load_mask/0|quick"]["label"] == "rejected"
    assert found["verdict|relu/nan_swallowed/0|quick"]["label"] == "rejected"
    assert found["screen|relu/nan_swallowed/0|kernelbench-v0"]["outcome"] == "pass"
    assert found["verdict|control/relu/reference|quick"]["label"] == "contract"
    assert found["witness|relu/dropped_offset/0|"]["how"] == "stillborn"
    assert "verdict|relu/dropped_offset/0|quick" not in found
    again = Rows(rows.path)
    run(cases, again, QUICK)
    again.close()
    assert len(rows.path.read_text().splitlines()) == len(found)
    assert score(found.values()).killed["quick"].count == 2


def test_no_time_left_means_no_row(tmp_path: Path) -> None:
    rows = Rows(tmp_path / "rows.jsonl")
    run(chosen("relu/drop_load_mask/0"), rows, Effort(workers=1, searchers=1, seconds=0.0))
    assert rows.known == {}


@pytest.mark.slow
def test_a_run_that_is_killed_loses_nothing_that_had_ended(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    command = [sys.executable, str(ROOT / "benchmarks/scoreboard.py"), "run", "--rows", str(path), "--sample", "6",
               "--groups", "mutants", "--tiers", "quick", "--workers", "1", "--searchers", "1"]
    process = subprocess.Popen(command, start_new_session=True, cwd=tmp_path, env=dict(os.environ))
    try:
        while not (path.exists() and path.read_text().count('"verdict"') >= 1):
            assert process.poll() is None
            time.sleep(0.1)
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    before = [json.loads(line) for line in path.read_text().splitlines() if line.endswith("}")]
    assert before
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=580, check=False)
    assert done.returncode == 0, done.stderr
    after = load([path])
    assert len(after) > len(before)
    assert all(after[f"{r['type']}|{r['id']}|{r.get('tier') or r.get('variant') or ''}"] == r for r in before)


def test_published_sets_have_their_sizes_and_every_control_is_python() -> None:
    assert (len(list(seeded())), len(list(clean())), len(list(tricks()))) == (10, 16, 19)
    found = list(controls())
    assert len(found) >= 500
    assert len({c.id for c in found}) == len(found)
    assert {c.dtype for c in found} == {"float32", "bfloat16", "float16"}
    for case in found:
        compile(case.candidate, case.id, "exec")


def test_a_beginning_of_the_mutants_takes_many_operators_and_subjects() -> None:
    first = mutants(most=1)[:600]
    assert len({c.subject for c in first}) >= 30
    assert len({c.operator for c in first}) >= 40


def test_a_fixed_sample_of_the_scoreboard_comes_out_as_its_result_file_says(tmp_path: Path) -> None:
    told = json.loads((ROOT / "benchmarks/results/scoreboard.cpu.json").read_text(encoding="utf-8"))
    survivors = {row["name"] for row in told["rows"] if row["by"] == "case" and row["label"] != "rejected"}
    drawn = plan(("mutants",), sample=5)
    right = right_ones()
    rows = Rows(tmp_path / "rows.jsonl")
    run([*drawn, *right], rows, Effort(screens=(), workers=1, searchers=1))
    rows.close()
    found = load([rows.path]).values()
    judged = {str(r["id"]): r["label"] for r in found if r["type"] == "verdict"}
    witnessed = {str(r["id"]) for r in found if r["type"] == "witness" and r["how"] not in ("", "stillborn")}
    assert len(witnessed) >= 2
    assert {id for id in witnessed if judged[id] != "rejected"} <= survivors
    assert {c.id: judged[c.id] for c in right} == {c.id: "contract" for c in right}


def right_ones() -> list[Case]:
    """One right candidate for each of three dtypes, each of another kind."""
    found = {c.id: c for c in controls()}
    return [found[id] for id in ("control/bias_silu/inductor", "control/row_min@bfloat16/other algorithm: min",
                                 "control/layer_norm_affine@float16/split batch")]
