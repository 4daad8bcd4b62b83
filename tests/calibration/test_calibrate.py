"""`assay calibrate`: the table, the result file, the exit status."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from assay.calibration.calibrate import Calibration, calibrate
from assay.calibration.cli import calibrate_command
from assay.calibration.measure import ControlResult, FaultResult
from assay.calibration.opinfo import coverage

app = typer.Typer()
app.command()(calibrate_command)


def control(**changes: object) -> ControlResult:
    given = {"name": "sum/kahan/fp32/random", "operator": "sum", "dtype": "fp32", "data": "random",
             "half": "calibration", "native": False, "finding": False, "ratio": 0.2, "needed": 1.5,
             "decided": 1.0, "unmodelled": ()}
    return ControlResult(**{**given, **changes})  # type: ignore[arg-type]


CAUGHT = FaultResult("eps", "semantic", True, 1, "draw 0", 9.0, 1e-5)


def test_a_part_is_measured_printed_and_written(tmp_path: Path) -> None:
    out = tmp_path / "calibration.json"
    result = CliRunner().invoke(app, ["--part", "200", "--out", str(out)])
    assert result.exit_code == 0, result.output
    assert "held-back half: 0 findings" in result.output
    written = json.loads(out.read_text())
    assert written["metrics"]["control_findings"] == 0
    assert {"operator", "dtype", "needed"} <= written["rows"][0].keys()


def test_a_part_below_one_is_refused() -> None:
    with pytest.raises(ValueError, match="at least 1"):
        calibrate(0)


def test_the_factor_needed_comes_from_the_calibration_half_with_a_margin_of_two() -> None:
    both = Calibration((control(), control(half="heldback", needed=9.0)), (CAUGHT,))
    assert both.needed == 3.0
    assert both.holds
    assert not Calibration((control(needed=2.5),), (CAUGHT,)).holds


def test_a_half_precision_reference_has_no_say_in_the_factor() -> None:
    assert Calibration((control(native=True, dtype="bf16", needed=3.9),), ()).needed == 0.0
    assert Calibration((control(native=True, needed=1.0),), ()).needed == 2.0


def test_a_false_alarm_or_a_missed_fault_does_not_hold() -> None:
    assert not Calibration((control(half="heldback", finding=True),), (CAUGHT,)).holds
    missed = FaultResult("eps", "semantic", False, 40, "", 0.4, 1e-5)
    assert not Calibration((control(),), (missed,)).holds


def test_the_database_of_operators_is_mostly_modelled() -> None:
    found = list(coverage(part=60))
    assert len(found) >= 15
    judged = [c for c in found if c.outcome in ("modelled", "conservative", "failed", "timeout", "crashed")]
    assert sum(c.outcome == "modelled" for c in judged) > 0.85 * len(judged)
