"""A Triton kernel timed on a real GPU: numbers that hang together, and both baselines."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from assay import cli
from assay.bench import BenchOptions, bench_task
from assay.run.process import Zygote
from assay.run.references import References
from assay.task import load_candidate, load_task

BYTES = 4 * 2048 * 4096
SOFTMAX = Path(__file__).resolve().parents[2] / "examples" / "softmax"

pytestmark = pytest.mark.gpu


def test_a_right_kernel_gets_a_speedup_over_both_baselines(zygote: Zygote, references: References) -> None:
    if not torch.cuda.is_available():
        pytest.skip("needs a CUDA device")
    report = bench_task(load_task(SOFTMAX / "reference.py"), load_candidate(SOFTMAX / "right.py"), zygote=zygote,
                        references=references,
                        options=BenchOptions(rounds=6, pairs=1, sizes={"ROWS": 2048, "COLS": 4096}))
    assert report.findings == ()
    assert report.counts
    assert {t.name for t in report.times} >= {"candidate", "eager"}
    assert "compiled" in {t.name for t in report.times} | set(report.left_out)
    assert report.speed_of_light is not None
    light = report.speed_of_light
    assert (light.read_bytes, light.written_bytes, light.limited_by) == (BYTES, BYTES, "memory")
    assert 0 < light.floor_s <= light.bound_s
    assert light.share < 1.3
    for times in report.times:
        assert 0.5 < times.cold.value / times.judge_cold < 2.0, "both clocks tell the same"
        assert times.peak_bytes is not None
        assert times.peak_bytes >= BYTES


def test_the_command_makes_the_verdict_first_and_then_times(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    if not torch.cuda.is_available():
        pytest.skip("needs a CUDA device")
    for name, status in (("right.py", 0), ("wrong_padding_lanes.py", 1)):
        with pytest.raises(SystemExit) as stopped:
            cli.main(["bench", str(SOFTMAX / "reference.py"), str(SOFTMAX / name), "--tier", "quick", "--rounds", "3",
                      "--no-compile", "--size", "ROWS=2048", "--size", "COLS=2048", "--no-store", "--json",
                      str(tmp_path / name)])
        assert stopped.value.code == status
    report = json.loads((tmp_path / "right.py").read_text())
    assert report["standing"] == "contract"
    assert report["verdict"]["origin"] == "now"
    assert report["speedup"]["low"] > 0
    assert "not timed: the verdict is `rejected`" in capsys.readouterr().err
    assert not (tmp_path / "wrong_padding_lanes.py").exists(), "what is refused is not written down as timed"
