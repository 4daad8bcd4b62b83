"""`assay bench`: what it refuses, and how it tells what it found."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from tests.doubling import REFERENCE, RIGHT

from assay import cli
from assay.bench.model import (
    Baseline,
    BenchFinding,
    BenchReport,
    Ceilings,
    Concern,
    Interval,
    SpeedOfLight,
    Steadiness,
    Times,
)
from assay.bench.page import to_html
from assay.bench.render import WORDS, seconds, to_text


def said(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str, str]:
    capsys.readouterr()
    with pytest.raises(SystemExit) as stopped:
        cli.main([str(a) for a in arguments])
    told = capsys.readouterr()
    assert isinstance(stopped.value.code, int)
    return stopped.value.code, told.out, told.err


@pytest.fixture
def files(tmp_path: Path) -> Path:
    (tmp_path / "reference.py").write_text(REFERENCE)
    (tmp_path / "right.py").write_text(RIGHT)
    return tmp_path


@pytest.mark.parametrize("arguments", [[], ["--anyway"], ["--device", "cpu"]])
def test_times_of_an_interpreter_are_refused(files: Path, capsys: pytest.CaptureFixture[str],
                                             arguments: list[str]) -> None:
    if torch.cuda.is_available() and "cpu" not in arguments:
        pytest.skip("there is a GPU here")
    status, out, err = said(capsys, "bench", files / "reference.py", files / "right.py", *arguments)
    assert (status, out) == (2, "")
    assert err.startswith("assay: --device: times of emulated kernels mean nothing")
    assert err.count("\n") == 1


@pytest.mark.parametrize(("argument", "words"), [
    ("ROWS", "`ROWS` is no size"), ("ROWS=many", "`ROWS=many` is no size"), ("ROWS=0", "`ROWS=0` is no size"),
])
def test_a_size_is_a_name_and_a_number(files: Path, capsys: pytest.CaptureFixture[str], argument: str,
                                       words: str) -> None:
    status, _, err = said(capsys, "bench", files / "reference.py", files / "right.py", "--size", argument)
    assert status == 2
    assert words in err


def test_a_file_that_is_not_there_is_named(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, _, err = said(capsys, "bench", files / "reference.py", files / "none.py")
    assert status == 2
    assert "none.py" in err


def interval(value: float) -> Interval:
    return Interval(value=value, low=0.98 * value, high=1.02 * value)


def times(name: str, cold: float) -> Times:
    return Times(name=name, cold=interval(cold), warm=interval(0.9 * cold), cold_rounds=(cold, cold),
                 warm_rounds=(0.9 * cold,) * 2, judge_cold=cold, judge_warm=cold, peak_bytes=3 << 20)


def report(*findings: BenchFinding) -> BenchReport:
    light = SpeedOfLight(read_bytes=1 << 27, written_bytes=1 << 20, flops=0, mode="fp32", bound_s=3e-5, floor_s=2.9e-5,
                         share=0.75, limited_by="memory")
    return BenchReport(
        task="softmax", task_sha256="a", candidate_sha256="b", standing="contract", device="NVIDIA H200", rounds=12,
        verdict={"label": "contract", "scope": "NVIDIA H200"}, calls=64, checked=100,
        times=(times("candidate", 4e-5), times("eager", 1e-4), times("compiled", 6e-5)),
        baselines=(Baseline(name="eager", speedup=interval(2.5), speedup_warm=interval(2.4)),
                   Baseline(name="compiled", speedup=interval(1.5), speedup_warm=interval(1.4))),
        findings=findings, speed_of_light=light, ceilings=Ceilings(copy_bytes_per_s=4e12, flops={"fp32": 5e13}),
        steadiness=Steadiness(drift=0.01))


def test_the_speedup_is_that_over_the_fastest_baseline() -> None:
    found = report()
    assert found.speedup is not None
    assert found.speedup.value == 1.5
    text = to_text(found)
    assert text.startswith("1.5x (1.47 to 1.53): faster than the fastest baseline\n")
    assert "75% of the speed of light" in text
    assert max(map(len, text.splitlines())) <= 80


@pytest.mark.parametrize("concern", list(Concern))
def test_with_a_finding_there_is_no_speedup(concern: Concern) -> None:
    detail = {"judge_s": 1e-4, "worker_s": 1e-5, "seconds": 1e-6, "floor_s": 1e-5, "share": 0.9}
    found = report(BenchFinding(concern=concern, detail=detail))
    assert found.speedup is None
    text = to_text(found)
    assert text.startswith("No speedup: the times do not count\n")
    assert WORDS[concern] in " ".join(text.split())
    assert max(map(len, text.splitlines())) <= 80


def test_a_page_needs_nothing_else_and_escapes_what_candidates_say() -> None:
    page = to_html(report(BenchFinding(concern=Concern.PATCHED, detail={"names": ["<script>alert(1)</script>"]})))
    assert "<script>" not in page
    assert "<svg" in page
    assert "http" not in page


@pytest.mark.parametrize(("value", "text"), [(2.0, "2 s"), (0.0123, "12.3 ms"), (4.56e-5, "45.6 µs"), (3e-8, "30 ns")])
def test_times_have_units_that_suit_them(value: float, text: str) -> None:
    assert seconds(value) == text
