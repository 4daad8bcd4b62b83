"""Calibration of the oracle: right implementations that must pass, wrong ones that must not, and λ.

`controls` and `faults` are the evidence, `measure` confronts it with the oracle, `assay calibrate` prints it.
"""

from assay.calibration.calibrate import Calibration, calibrate
from assay.calibration.controls import controls
from assay.calibration.faults import faults
from assay.calibration.measure import ControlResult, FaultResult, measure_control, measure_fault
from assay.calibration.model import Control, Fault, Half

__all__ = [
    "Calibration",
    "Control",
    "ControlResult",
    "Fault",
    "FaultResult",
    "Half",
    "calibrate",
    "controls",
    "faults",
    "measure_control",
    "measure_fault",
]
