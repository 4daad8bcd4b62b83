"""What a probe takes is estimated before anything is allocated."""

from __future__ import annotations

import pytest

from assay.probe.memory import candidate_bytes, fits, oracle_bytes, side_by_side
from assay.probe.model import Call, Draw, Probe
from assay.task import parse_task
from assay.task.facts import Study
from assay.task.study import study

TASK = """
import torch

class Model(torch.nn.Module):
    def forward(self, x):
        return x * 2

ROWS = 6
COLS = 50

def get_inputs():
    return [torch.randn(ROWS, COLS)]

def get_init_inputs():
    return []
"""


@pytest.fixture(scope="module")
def doubling() -> Study:
    return study(parse_task(TASK), budget_s=60.0)


def _probe(rows: int, calls: int = 1) -> Probe:
    return Probe(id="values/x", gate="values", kind="draw", sizes={"ROWS": rows}, draws=(Draw(seed=1),),
                 calls=tuple(Call() for _ in range(calls)))


def test_estimates_follow_sizes_and_calls(doubling: Study) -> None:
    assert candidate_bytes(doubling, _probe(6)) == 8 * 3 * 300
    assert candidate_bytes(doubling, _probe(12, calls=2)) == 4 * candidate_bytes(doubling, _probe(6))
    assert oracle_bytes(doubling, _probe(12)) == 2 * oracle_bytes(doubling, _probe(6))
    assert fits(doubling, _probe(6), oracle_bytes(doubling, _probe(6)))
    assert not fits(doubling, _probe(6), oracle_bytes(doubling, _probe(6)) - 1)


def test_processes_share_a_gpu_as_far_as_its_memory_goes(doubling: Study) -> None:
    one = candidate_bytes(doubling, _probe(6))
    assert [side_by_side(doubling, memory) for memory in (0, 4 * one, 11 * one, 16 * one)] == [1, 1, 2, 4]
