"""Wrong backward passes are rejected, each with the reason that says what is wrong."""

from __future__ import annotations

import pytest
from tests.gradients import faults
from tests.gradients.faults import FAULTS, Fault

from assay.contract import Contract
from assay.run.process import Zygote
from assay.verify import Options, verify_task
from assay.vocabulary import Label

FIRST = {fault.reason: fault.id for fault in reversed(FAULTS)}
PARAMETERS = [
    pytest.param(fault, id=fault.id, marks=() if fault.id in FIRST.values() else pytest.mark.slow) for fault in FAULTS
]


@pytest.mark.parametrize("fault", PARAMETERS)
def test_a_wrong_backward_is_rejected_for_its_reason(zygote: Zygote, fault: Fault) -> None:
    report = verify_task(faults.task_of(fault.operator), faults.wrong(fault), zygote=zygote,
                         contract=Contract(gradients="training"),
                         options=Options(device="cpu", seed=3, only=("gradients",)))
    assert report.label is Label.REJECTED
    assert fault.reason in {f.reason for f in report.findings}


def test_every_operator_has_three_faults() -> None:
    for operator in faults.OPERATORS:
        assert sum(fault.operator == operator for fault in FAULTS) >= 3
