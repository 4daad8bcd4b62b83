"""Speed as a reward: only behind the label, only when nothing is wrong with the time."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from tests.doubling import REFERENCE, RIGHT

from assay.bench import BenchOptions
from assay.bench.speed import BenchSpeed
from assay.errors import InputError
from assay.report.model import Report
from assay.reward import Stage, reward_of
from assay.reward.judge import KernelReward
from assay.run.process import Zygote
from assay.task import Candidate, Task, parse_candidate, parse_task
from assay.verify import Options, verify_task
from assay.vocabulary import EffortTier, Label

from .conftest import PATIENT

CACHING = """
import torch.nn as nn

class ModelNew(nn.Module):
    def forward(self, x):
        self.__dict__.setdefault("known", {})
        return self.known.setdefault(x.data_ptr(), x + x)
"""


@pytest.fixture(scope="module")
def task() -> Task:
    return parse_task(REFERENCE)


@pytest.fixture(scope="module")
def verdict(task: Task, zygote: Zygote) -> Report:
    options = Options(device="cpu", tier=EffortTier.QUICK, seed=3, only=("values", "residency"))
    return verify_task(task, parse_candidate(RIGHT), options=options, zygote=zygote)


@pytest.fixture(scope="module")
def speed() -> Iterator[BenchSpeed]:
    with BenchSpeed(BenchOptions(interpreted=True, compiled=False, light=False, rounds=3, buffers=6, pairs=1,
                                 allowance=PATIENT)) as timing:
        yield timing


def on_a_gpu(report: Report) -> Report:
    return report.model_copy(update={"scope": "NVIDIA H200"})


def test_a_right_candidate_is_timed_and_paid_by_the_lower_limit(speed: BenchSpeed, task: Task,
                                                                verdict: Report) -> None:
    found = speed(task, parse_candidate(RIGHT), on_a_gpu(verdict))
    assert speed.last is not None
    assert speed.last.speedup is not None
    assert found == speed.last.speedup.low
    assert speed.last.standing == "contract"
    assert reward_of(on_a_gpu(verdict), speedup=found).stage in (Stage.RIGHT, Stage.FASTER)


def test_who_cheats_the_clock_is_right_at_most(speed: BenchSpeed, task: Task, verdict: Report) -> None:
    assert speed(task, parse_candidate(CACHING), on_a_gpu(verdict)) is None
    assert reward_of(on_a_gpu(verdict), speedup=None).stage is Stage.RIGHT


def test_nothing_is_timed_before_the_label_or_after_emulation(speed: BenchSpeed, task: Task, verdict: Report) -> None:
    before = speed.last
    candidate: Candidate = parse_candidate(RIGHT)
    assert speed(task, candidate, verdict) is None, "emulated"
    assert speed(task, candidate, on_a_gpu(verdict).model_copy(update={"label": Label.SCREENED})) is None
    assert speed.last is before


def test_without_a_gpu_there_is_no_speed_to_reward() -> None:
    if torch.cuda.is_available():
        pytest.skip("there is a GPU here")
    with pytest.raises(InputError, match="mean nothing"):
        BenchSpeed()
    with pytest.raises(InputError, match="mean nothing"):
        KernelReward(speed="bench")
