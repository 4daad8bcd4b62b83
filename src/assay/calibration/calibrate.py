"""The calibration as a whole: what was measured, the λ it asks for, and its numbers for a result file."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Iterable
from typing import Any

from assay.calibration.controls import controls
from assay.calibration.faults import faults
from assay.calibration.measure import MARGIN, ControlResult, FaultResult, measure_controls, measure_fault
from assay.calibration.model import Control, Half
from assay.oracle.truth import LAMBDA

SMALL = (1e-6, 1e-3)
"""Relative size of the faults that matter most: too small for a fixed tolerance, too large for rounding."""

Progress = Callable[[str], None]


@dataclasses.dataclass(frozen=True)
class Calibration:
    """Results of controls and faults."""

    controls: tuple[ControlResult, ...]
    """Right implementations."""
    faults: tuple[FaultResult, ...]
    """Wrong ones."""

    def half(self, half: Half) -> list[ControlResult]:
        """Results of one half of the controls."""
        return [r for r in self.controls if r.half == half]

    @property
    def needed(self) -> float:
        """The smallest λ with which the calibration half passes with the margin.

        A half-precision reference as torch runs it is no independent implementation (where it is less precise
        than the model, the stability guard takes the element out), so it has no say in λ.
        """
        say = [r.needed for r in self.half("calibration") if not (r.native and r.dtype != "fp32")]
        return MARGIN * max(say, default=0.0)

    @property
    def holds(self) -> bool:
        """Whether λ has its margin, no control has a finding and every fault is caught."""
        clean = not any(r.finding for r in self.controls)
        return clean and self.needed <= LAMBDA and all(r.caught for r in self.faults)

    def metrics(self) -> dict[str, float]:
        """Flat numbers for a result file."""
        calibration, heldback = self.half("calibration"), self.half("heldback")
        small = [r for r in self.faults if r.kind == "semantic" and SMALL[0] <= r.size <= SMALL[1]]
        return {
            "lambda": LAMBDA,
            "lambda_needed": self.needed,
            "controls": len(calibration),
            "control_findings": sum(r.finding for r in calibration),
            "heldback_controls": len(heldback),
            "heldback_findings": sum(r.finding for r in heldback),
            "largest_ratio": max((r.ratio for r in self.controls), default=0.0),
            "controls_undecided": sum(r.decided == 0.0 for r in self.controls),
            "faults": len(self.faults),
            "faults_caught": sum(r.caught for r in self.faults),
            "small_faults": len(small),
            "small_faults_caught": sum(r.caught for r in small),
            "precision_faults": sum(r.kind == "precision" for r in self.faults),
            "precision_faults_attributed": sum(r.kind == "precision" and r.caught for r in self.faults),
        }

    def rows(self) -> list[dict[str, Any]]:
        """Controls by operator and dtype with the one that comes closest to a finding; then every fault."""
        key = lambda r: (r.operator, r.dtype)  # noqa: E731
        found: list[dict[str, Any]] = []
        for (operator, dtype), group in itertools.groupby(self.controls, key=key):
            results = list(group)
            worst = max(results, key=lambda r: r.needed)
            found.append(
                {
                    "operator": operator,
                    "dtype": dtype,
                    "controls": len(results),
                    "findings": sum(r.finding for r in results),
                    "needed": worst.needed,
                    "ratio": max(r.ratio for r in results),
                    "closest": f"{worst.name.split('/', 1)[1]}",
                    "decided": sum(r.decided for r in results) / len(results),
                    "unmodelled": sorted({name for r in results for name in r.unmodelled}),
                }
            )
        return found + [
            {"fault": r.name, **{k: v for k, v in dataclasses.asdict(r).items() if k != "name"}} for r in self.faults
        ]


def calibrate(
    part: int | None = None, device: str = "cpu", progress: Progress = lambda _: None, *, offset: int = 0
) -> Calibration:
    """Measure the controls and faults, or about one in `part` of each from the `offset`-th on, spread over operators.

    Results do not depend on `part`: a control's inputs and the oracle's draws are its own. Raises ValueError
    for a part below 1.
    """
    chosen: Iterable[Control] = controls()
    wrong = list(faults())
    if part is not None:
        if part < 1:
            raise ValueError(f"part: expected at least 1, got {part}")
        chosen, wrong = list(chosen)[offset::part], wrong[offset::part]
    measured = []
    for result in measure_controls(chosen, device):
        progress(result.operator)
        measured.append(result)
    tried = []
    for fault in wrong:
        progress(fault.name)
        tried.append(measure_fault(fault, device))
    return Calibration(tuple(measured), tuple(tried))
