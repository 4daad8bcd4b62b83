"""Right implementations have no finding: a small part of the calibration, derived again."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest
import torch

from assay.calibration import Control, controls, measure_control
from assay.calibration.data import KINDS, draw
from assay.calibration.measure import MARGIN, measure_controls
from assay.oracle import LAMBDA, evaluate

RESULT = Path(__file__).resolve().parents[2] / "benchmarks/results/oracle.cpu.json"
ALL = list(controls())
EVERY = 83
PART = ALL[::EVERY]


def test_names_are_unique_and_both_halves_are_large() -> None:
    assert len({c.name for c in ALL}) == len(ALL)
    halves = Counter(c.half for c in ALL)
    assert min(halves.values()) >= 1500
    assert {c.data for c in ALL} == set(KINDS)


def test_both_halves_hold_every_dtype_and_data_kind() -> None:
    for half in ("calibration", "heldback"):
        mine = [c for c in ALL if c.half == half]
        assert {(c.dtype, c.data) for c in mine} == {(c.dtype, c.data) for c in ALL}


def test_inputs_are_the_same_every_time() -> None:
    for control in PART:
        for a, b in zip(control.make(), control.make(), strict=True):
            assert torch.equal(a, b)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("kind", KINDS)
def test_data_of_every_kind_is_finite_and_varied(kind: str, dtype: torch.dtype) -> None:
    x = draw(kind, (8, 64), dtype, 1)
    assert bool(torch.isfinite(x).all())
    assert len(x.unique()) > 8
    if kind == "subnormal":
        assert float(x.abs().float().max()) < torch.finfo(dtype).smallest_normal


def test_a_part_of_the_controls_has_no_finding_and_keeps_the_margin() -> None:
    results = list(measure_controls(PART))
    assert {r.half for r in results} == {"calibration", "heldback"}
    assert [r.name for r in results if r.finding] == []
    independent = [r for r in results if not (r.native and r.dtype != "fp32")]
    assert [r.name for r in independent if r.half == "calibration" and r.needed * MARGIN > LAMBDA] == []
    assert sum(r.decided > 0.5 for r in results) > 0.85 * len(results)


def test_the_committed_calibration_is_of_this_factor_and_clean() -> None:
    metrics = json.loads(RESULT.read_text())["metrics"]
    assert metrics["lambda"] == LAMBDA
    assert metrics["lambda_needed"] <= LAMBDA
    assert metrics["controls"] + metrics["heldback_controls"] == len(ALL)
    assert metrics["control_findings"] == metrics["heldback_findings"] == 0
    assert metrics["faults_caught"] == metrics["faults"] >= 90
    assert metrics["small_faults_caught"] == metrics["small_faults"] >= 40


def test_a_measurement_would_notice_a_wrong_control() -> None:
    right = next(c for c in ALL if c.name == "layer norm/Welford/fp32/random")

    def wrong(*inputs: torch.Tensor) -> torch.Tensor:
        return right.candidate(*inputs) * (1.0 + 1e-5)

    control = Control(right.operator, "wrong", right.dtype, right.data, right.reference, wrong, right.make)
    inputs = control.make()
    result = measure_control(control, evaluate(control.reference, inputs), inputs)
    assert result.finding
    assert result.needed > LAMBDA
