"""Candidates that cheat the clock are told by what they do, and their right twins are timed.

On a CPU nothing is asserted about how fast anything is.
"""

from __future__ import annotations

import hashlib
import json

import pytest
import torch

from assay.bench import BenchOptions, BenchReport, Concern, bench_task
from assay.bench.cache import TaskCache
from assay.bench.clocks import Allowance
from assay.bench.learned import Learned
from assay.errors import InputError
from assay.run.process import Zygote
from assay.run.references import References
from assay.task import load_candidate, load_task, parse_candidate, parse_task

from .conftest import ROWS, TIMING, Time

NAMES = sorted(path.stem for path in (TIMING / "exploits").glob("*.py"))
SEEN_ON_A_CPU = {
    "background_thread": {Concern.BACKGROUND},
    "cached_by_address": {Concern.WRONG_OUTPUT},
    "cached_by_first_elements": {Concern.WRONG_OUTPUT},
    "early_answer": {Concern.FORGED},
    "first_calls_only": {Concern.WRONG_OUTPUT},
    "lazy_output": {Concern.WRONG_OUTPUT, Concern.LAZY_OUTPUT},
    "lower_precision": {Concern.WRONG_OUTPUT},
    "new_inputs_skipped": {Concern.WRONG_OUTPUT},
    "one_buffer": {Concern.WRONG_OUTPUT},
    "patched_clock": {Concern.PATCHED},
    "patched_event": {Concern.PATCHED},
    "patched_synchronize": {Concern.PATCHED},
    "stale_graph": {Concern.WRONG_OUTPUT},
}
ON_A_GPU = ("background_thread", "patched_event", "replaced_harness", "side_stream", "stale_graph")
"""What behaves differently where streams, events and graphs are real; `benchmarks/timing_exploits.py` times all."""
SIZES = {"ROWS": 2048, "COLS": 1024}


def test_every_exploit_has_a_twin() -> None:
    assert len(NAMES) >= 10
    assert sorted(path.stem for path in (TIMING / "twins").glob("*.py")) == NAMES


@pytest.mark.parametrize("name", sorted(SEEN_ON_A_CPU))
def test_an_exploit_gets_no_speedup(name: str, timed: Time) -> None:
    report = timed(f"exploits/{name}")
    assert {f.concern for f in report.findings} >= SEEN_ON_A_CPU[name]
    assert not report.counts
    assert report.speedup is None


@pytest.mark.parametrize("name", NAMES)
def test_a_twin_is_timed(name: str, timed: Time) -> None:
    report = timed(f"twins/{name}")
    assert report.findings == ()
    assert report.speedup is not None
    assert report.speedup.low <= report.speedup.value <= report.speedup.high
    assert report.checked >= 6, "outputs of timed calls were compared"


def test_who_replaces_the_worker_s_clocks_is_contradicted_by_the_judge_s(timed: Time) -> None:
    report = timed("exploits/replaced_harness", sizes={"ROWS": 1024, "COLS": 1024},
                   allowance=Allowance(factor=3.0, batch_s=2e-3, call_s=0.0))
    assert Concern.CLOCK_DISAGREES in {f.concern for f in report.findings}
    own = next(t for t in report.times if t.name == "candidate")
    assert own.warm.value == own.judge_warm, "the judge's clock counts"


def test_a_candidate_that_raises_or_leaves_is_told_so(zygote: Zygote, references: References) -> None:
    endings = {"raise ValueError('no')": Concern.STOPPED, "os._exit(0)": Concern.STOPPED}
    for ending, concern in endings.items():
        source = f"import os\nimport torch\nclass ModelNew(torch.nn.Module):\n  def forward(self, x):\n    {ending}"
        report = bench_task(load_task(ROWS), parse_candidate(source), zygote=zygote,
                            references=references, options=BenchOptions(interpreted=True, compiled=False, light=False,
                                                                        buffers=4, pairs=1))
        assert [f.concern for f in report.findings] == [concern]
        assert report.rounds == 0
        assert report.speedup is None


def test_a_report_says_what_it_rests_on(timed: Time) -> None:
    report = timed("twins/one_buffer", light=True, sizes={"ROWS": 64})
    assert (report.rounds, report.calls, report.sizes) == (3, 8, {"ROWS": 64})
    assert set(report.phases) == {"study", "truths", "load", "rounds", "judging"}
    assert report.standing == "unverified"
    assert report.ceilings is not None
    assert report.ceilings.copy_bytes_per_s > 0
    assert report.speed_of_light is not None
    assert report.speed_of_light.read_bytes == 64 * 256 * 4
    assert BenchReport.model_validate_json(report.model_dump_json()) == report
    assert json.loads(report.to_json())["speedup"]["value"] > 0


def test_the_seed_gives_the_draws_and_is_committed_to(timed: Time) -> None:
    report = timed("twins/one_buffer", seed=None)
    assert report.seed_commitment == hashlib.sha256(f"{report.seed}:{report.seed_nonce}".encode()).hexdigest()


def test_a_size_that_the_task_has_not_got_is_refused(timed: Time) -> None:
    with pytest.raises(InputError, match="no size `COLUMNS`"):
        timed("twins/one_buffer", sizes={"COLUMNS": 3})


def test_a_random_reference_cannot_be_checked_and_is_refused(zygote: Zygote, references: References) -> None:
    source = ROWS.read_text().replace("1.5 * x", "torch.nn.functional.dropout(x, 0.5)")
    with pytest.raises(InputError, match="random"):
        bench_task(parse_task(source), load_candidate(TIMING / "twins" / "one_buffer.py"), zygote=zygote,
                   references=references, options=BenchOptions(interpreted=True, light=False))


def test_options_of_a_test_are_not_those_of_a_user() -> None:
    assert not BenchOptions().interpreted


@pytest.mark.gpu
@pytest.mark.parametrize("name", ON_A_GPU)
def test_an_exploit_gets_no_speedup_on_a_gpu(name: str, timed: Time, tasks: TaskCache[Learned]) -> None:
    _need_gpu()
    report = timed(f"exploits/{name}", device="cuda", tasks=tasks, inputs_seed=4, pairs=1, buffers=64, sizes=SIZES)
    assert report.findings, "nothing was seen"
    assert report.speedup is None


@pytest.mark.gpu
@pytest.mark.parametrize("name", ON_A_GPU)
def test_a_twin_is_timed_on_a_gpu(name: str, timed: Time, tasks: TaskCache[Learned]) -> None:
    _need_gpu()
    report = timed(f"twins/{name}", device="cuda", tasks=tasks, inputs_seed=4, pairs=1, buffers=64, sizes=SIZES)
    assert report.findings == ()
    assert report.speedup is not None


def _need_gpu() -> None:
    if not torch.cuda.is_available():
        pytest.skip("needs a CUDA device")
