"""Resident threads of a multiprocessor, by the limit that binds."""

from __future__ import annotations

import pytest

from assay.run.emulation.targets import COMPILED_TARGETS
from assay.run.occupancy import occupancy


@pytest.mark.parametrize(("target", "warps", "registers", "shared", "expected"), [
    ("sm_90", 4, 32, 0, 1.0),                 # 16 blocks of 128 threads
    ("sm_90", 8, 255, 0, 0.125),              # one block takes all 65,536 registers
    ("sm_90", 4, 33, 0, 12 * 128 / 2048),     # 33 registers of 32 threads take 5 units of 256
    ("sm_90", 4, 32, 100 * 1024, 2 * 128 / 2048),
    ("sm_90", 1, 16, 0, 32 / 64),             # 32 blocks at most
    ("sm_89", 1, 16, 0, 24 / 48),
    ("sm_90", 4, 32, 227 * 1024, 128 / 2048),
    ("sm_90", 4, None, 0, None),
    ("gfx942", 4, 32, 0, None),
])
def test_the_limit_that_binds_decides(target: str, warps: int, registers: int | None, shared: int,
                                      expected: float | None) -> None:
    assert occupancy(COMPILED_TARGETS[target], warps, registers, shared) == expected
