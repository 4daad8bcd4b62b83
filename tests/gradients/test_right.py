"""Right backward passes are accepted, in float32 and bfloat16, whatever they are written with."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.gradients import faults

from assay.contract import Contract
from assay.report.model import GateResult, Report
from assay.run.process import Zygote
from assay.task import Candidate, Task
from assay.task.model import parse_candidate, parse_task
from assay.verify import Options, verify_task
from assay.vocabulary import Outcome, Reason

HERE = Path(__file__).parent
BY_DEFAULT = ("linear-float32", "layer_norm-bfloat16", "cross_entropy-bfloat16", "attention-float32", "cumsum-bfloat16")
PAIRS = [
    pytest.param(operator, dtype, id=f"{operator}-{dtype}",
                 marks=() if f"{operator}-{dtype}" in BY_DEFAULT else pytest.mark.slow)
    for operator in faults.OPERATORS for dtype in faults.DTYPES
]


def judged(zygote: Zygote, task: Task, candidate: Candidate, *slugs: str) -> tuple[GateResult, Report]:
    only = slugs or ("gradients",)
    report = verify_task(task, candidate, contract=Contract(gradients="training"), zygote=zygote,
                         options=Options(device="cpu", seed=3, only=only))
    return report.gates[0], report


@pytest.mark.parametrize(("operator", "dtype"), PAIRS)
def test_a_right_backward_is_accepted(zygote: Zygote, operator: str, dtype: str) -> None:
    gate, report = judged(zygote, faults.task_of(operator, dtype), faults.right(operator, dtype))
    assert report.findings == ()
    assert gate.outcome is Outcome.PASS


@pytest.mark.slow
@pytest.mark.parametrize(("operator", "dtype"), [(o, d) for o in faults.OPERATORS for d in faults.DTYPES])
def test_the_reference_is_accepted_as_its_own_candidate(zygote: Zygote, operator: str, dtype: str) -> None:
    gate, report = judged(zygote, faults.task_of(operator, dtype), faults.identity(operator, dtype))
    assert report.findings == ()
    assert gate.outcome is Outcome.PASS


@pytest.mark.parametrize("kind", ["library", "triton_op", "functional",
                                  pytest.param("vmapped", marks=pytest.mark.slow)])
def test_a_backward_may_be_registered_or_functional(zygote: Zygote, kind: str) -> None:
    candidate = parse_candidate((HERE / "gelu" / f"{kind}.py").read_text(encoding="utf-8"))
    gate, report = judged(zygote, faults.task_of("gelu"), candidate)
    assert report.findings == ()
    assert gate.outcome is Outcome.PASS


WRONGLY_REGISTERED = {
    "library": ("gelu.register_autograd(backward, setup_context=setup_context)\n", "", Reason.GRADIENT_RAISED),
    "library-formula": (" + x * density", "", Reason.GRADIENT_VALUE),
    "functional": ("torch.func.vjp(one, x)[1](g)[0]", "torch.func.vjp(one, 0.5 * x)[1](g)[0]", Reason.GRADIENT_VALUE),
    "vmapped": ("vmap(one)(x)", "vmap(one)(x.detach())", Reason.SEVERED),
    "triton_op": ("x, g = x.contiguous(), g.contiguous()", "x = x.contiguous()", Reason.GRADIENT_LAYOUT),
}


@pytest.mark.parametrize("kind", [
    "library", *(pytest.param(k, marks=pytest.mark.slow) for k in WRONGLY_REGISTERED if k != "library")])
def test_a_registered_backward_that_is_wrong_is_rejected(zygote: Zygote, kind: str) -> None:
    old, new, reason = WRONGLY_REGISTERED[kind]
    source = (HERE / "gelu" / f"{kind.partition('-')[0]}.py").read_text(encoding="utf-8")
    assert source.count(old) == 1
    _, report = judged(zygote, faults.task_of("gelu"), parse_candidate(source.replace(old, new)))
    assert {f.reason for f in report.findings} == {reason}


def test_a_bare_backward_is_a_task_of_several_outputs(zygote: Zygote) -> None:
    task = parse_task((HERE / "norm_backward" / "reference.py").read_text(encoding="utf-8"))
    source = (HERE / "norm_backward" / "right.py").read_text(encoding="utf-8")
    gate, report = judged(zygote, task, parse_candidate(source), "values", "gradients")
    assert report.findings == ()
    assert gate.outcome is Outcome.PASS
    wrong = source.replace("(grad_output * hat).sum(0)", "(grad_output * x).sum(0)")
    _, report = judged(zygote, task, parse_candidate(wrong), "values")
    assert {f.output for f in report.findings} == {"1"}
