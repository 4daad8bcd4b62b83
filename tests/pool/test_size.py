"""How many judges a machine takes by itself."""

from __future__ import annotations

import os

import pytest

from assay.pool import Pool
from assay.pool.size import fitting, judges

GIB = 1 << 30


@pytest.mark.parametrize(("cores", "free", "gpus", "memory", "wanted"), [
    (16, 512, 0, 0, 8),
    (1, 512, 0, 0, 1),
    (16, 7, 0, 0, 3),
    (16, 1, 0, 0, 1),
    (16, 512, 1, 141, 16),
    (32, 512, 2, 141, 32),
    # a small GPU, little host memory, a driver that says nothing of its memory, more GPUs than processors
    (16, 512, 1, 24, 6),
    (32, 512, 2, 24, 12),
    (16, 20, 1, 141, 10),
    (16, 512, 1, 0, 16),
    (4, 512, 8, 141, 8),
    (16, 512, 1, 2, 1),
])
def test_judges_are_as_many_as_processors_and_memory_take(cores: int, free: int, gpus: int, memory: int,
                                                          wanted: int) -> None:
    assert fitting(cores, free * GIB, gpus, memory * GIB) == wanted


def test_a_pool_without_a_number_has_as_many() -> None:
    with Pool(device="cpu") as pool:
        assert pool.workers == judges("cpu") <= max(1, len(os.sched_getaffinity(0)) // 2)
