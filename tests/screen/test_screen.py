"""The screen follows the KernelBench rule verdict for verdict, and its hardened form closes the gaps."""

from __future__ import annotations

import json
import textwrap
from typing import Any

import jsonschema
import pytest
import torch

from assay.errors import InputError
from assay.report.schema import screen_schema
from assay.run.process import Zygote
from assay.screen import ScreenReport, ScreenVariant, rule_of, screen_task, trial_seeds
from assay.task import parse_candidate, parse_task
from assay.vocabulary import Outcome, Reason

V0, HEAD, HARDENED = ScreenVariant.KERNELBENCH_V0, ScreenVariant.KERNELBENCH, ScreenVariant.HARDENED

REFERENCE = """
import torch
import torch.nn as nn

class Model(nn.Module):
    def __init__(self{arguments}):
        super().__init__()
        {init}
    def forward(self, {names}):
        {body}

def get_inputs():
    return [{inputs}]

def get_init_inputs():
    return [{init_inputs}]
"""


def reference(
    body: str,
    *,
    inputs: str = "torch.randn(16, 8)",
    names: str = "x",
    init: str = "pass",
    arguments: str = "",
    init_inputs: str = "",
) -> str:
    return REFERENCE.format(
        body=body, inputs=inputs, names=names, init=init, arguments=arguments, init_inputs=init_inputs
    )


def candidate(body: str, *, names: str = "x", init: str = "pass", arguments: str = "") -> str:
    return textwrap.dedent(f"""
        import torch
        import torch.nn as nn

        class ModelNew(nn.Module):
            def __init__(self{arguments}):
                super().__init__()
                {init}
            def forward(self, {names}):
                {body}
        """)


def screened(
    zygote: Zygote, task: str, source: str, variant: ScreenVariant = V0, **more: Any
) -> ScreenReport:
    report = screen_task(
        parse_task(task),
        parse_candidate(source, strict=False),
        variant=variant,
        device="cpu",
        zygote=zygote,
        **more,
    )
    jsonschema.validate(json.loads(report.to_json()), screen_schema())
    return report


def usual_check(task: str, source: str, tolerance: float, precision: torch.dtype | None) -> bool:
    """The published rule, in one process, as its harness runs it."""
    ours: dict[str, Any] = {}
    theirs: dict[str, Any] = {}
    exec(compile(task, "task", "exec"), ours)
    exec(compile(source, "candidate", "exec"), theirs)

    def cast(values: list[Any]) -> list[Any]:
        return [
            v.to(precision) if precision is not None and isinstance(v, torch.Tensor) else v for v in values
        ]

    torch.manual_seed(42)
    init = cast(ours["get_init_inputs"]())
    torch.manual_seed(42)
    model = ours["Model"](*init)
    torch.manual_seed(42)
    other = theirs["ModelNew"](*init)
    torch.manual_seed(42)
    seeds = [int(torch.randint(0, 2**32 - 1, (1,)).item()) for _ in range(5)]
    with torch.no_grad():
        for seed in seeds:
            torch.manual_seed(seed)
            inputs = cast(ours["get_inputs"]())
            torch.manual_seed(seed)
            if precision is not None:
                model, other = model.to(precision), other.to(precision)
            want = model(*inputs)
            try:
                got = other(*inputs)
                if want.shape != got.shape or not torch.allclose(want, got, atol=tolerance, rtol=tolerance):
                    return False
            except Exception:
                return False
    return True


PAIRS = {
    "the same": (reference("return x * 2"), candidate("return x + x")),
    "off by 5e-3": (reference("return x * 2"), candidate("return x * 2 + 5e-3")),
    "off by 5e-5": (reference("return x * 2"), candidate("return x * 2 + 5e-5")),
    "off by 2 percent": (reference("return x * 2"), candidate("return x * 2.04")),
    "a tolerance that grows with the candidate": (
        reference("return torch.full_like(x, 100.0)"),
        candidate("return torch.full_like(x, 101.012)"),
    ),
    "broadcastable shape": (reference("return x.sum(1, keepdim=True)"), candidate("return x.sum(1)")),
    "another dtype": (reference("return x * 2"), candidate("return (x * 2).half()")),
    "NaN on both sides": (reference("return x.sqrt()"), candidate("return x.sqrt()")),
    "changes its input in place": (reference("return x * 2"), candidate("return x.mul_(2)")),
    "a reference that changes its input": (reference("x.add_(1); return x * 2"), candidate("return x * 2")),
    "a reference that changes its input, and a twin": (
        reference("x.add_(1); return x * 2"),
        candidate("x.add_(1); return x * 2"),
    ),
    "weights by the same seed under other names": (
        reference("return self.fc(x)", init="self.fc = nn.Linear(8, 4)"),
        candidate(
            "return torch.nn.functional.linear(x, self.w.weight, self.w.bias)",
            init="self.w = nn.Linear(8, 4)",
        ),
    ),
    "weights drawn in another order": (
        reference("return self.a(x) - self.b(x)", init="self.a = nn.Linear(8, 4); self.b = nn.Linear(8, 4)"),
        candidate("return self.a(x) - self.b(x)", init="self.b = nn.Linear(8, 4); self.a = nn.Linear(8, 4)"),
    ),
    "dropout in training": (
        reference("return self.d(x)", init="self.d = nn.Dropout(0.5)"),
        candidate("return self.d(x)", init="self.d = nn.Dropout(0.5)"),
    ),
    "running statistics over the trials": (
        reference("self.n(x); return self.n.running_mean.clone()", init="self.n = nn.BatchNorm1d(8)"),
        candidate("self.n(x); return self.n.running_mean.clone()", init="self.n = nn.BatchNorm1d(8)"),
    ),
    "statistics that are never updated": (
        reference("self.n(x); return self.n.running_mean + 0", init="self.n = nn.BatchNorm1d(8)"),
        candidate("return self.n.running_mean + 0", init="self.n = nn.BatchNorm1d(8)"),
    ),
    "raises on the third call": (
        reference("return x * 2"),
        candidate("self.k += 1; return x * 2 if self.k < 3 else self.missing", init="self.k = 0"),
    ),
    "no bool arithmetic": (reference("return x > 0"), candidate("return x > 0")),
    "another integer": (
        reference("return x + 1", inputs="torch.randint(0, 9, (12,))"),
        candidate("return x + 2"),
    ),
}


@pytest.mark.parametrize("name", sorted(PAIRS))
def test_the_first_rule_gives_the_verdict_of_its_harness(zygote: Zygote, name: str) -> None:
    task, source = PAIRS[name]
    assert screened(zygote, task, source, V0).passed is usual_check(task, source, 1e-2, None)


@pytest.mark.parametrize(
    ("name", "precision", "tolerance"),
    [
        *((name, "fp32", 1e-4) for name in sorted(PAIRS)),
        *(
            (name, "bf16", 1e-2)
            for name in ("the same", "off by 2 percent", "another integer", "another dtype")
        ),
    ],
)
def test_the_later_rule_gives_the_verdict_of_its_harness(
    zygote: Zygote, name: str, precision: str, tolerance: float
) -> None:
    task, source = PAIRS[name]
    dtype = {"fp32": torch.float32, "bf16": torch.bfloat16}[precision]
    verdict = screened(zygote, task, source, HEAD, precision=precision).passed
    assert verdict is usual_check(task, source, tolerance, dtype)


def test_the_trial_seeds_are_five_draws_after_seed_42() -> None:
    torch.manual_seed(42)
    assert trial_seeds() == [int(torch.randint(0, 2**32 - 1, (1,))) for _ in range(5)]


def test_the_rules_have_the_published_tolerances() -> None:
    assert rule_of(V0).tolerance == 1e-2
    assert rule_of(HEAD).tolerance == 1e-4
    assert rule_of(HEAD, "fp16").tolerance == rule_of(HEAD, "bf16").tolerance == 1e-2
    with pytest.raises(InputError, match="unknown precision"):
        rule_of(HEAD, "fp8")


def test_integers_are_cast_by_the_later_rule_alone(zygote: Zygote) -> None:
    task = reference(
        "return self.e(x)", inputs="torch.randint(0, 9, (4,))", init="self.e = nn.Embedding(9, 3)"
    )
    source = candidate("return self.e(x)", init="self.e = nn.Embedding(9, 3)")
    assert screened(zygote, task, source, V0).passed
    assert screened(zygote, task, source, HARDENED).passed
    with pytest.raises(InputError, match="this rule casts every input"):
        screened(zygote, task, source, HEAD)


def test_every_output_of_several_is_compared(zygote: Zygote) -> None:
    task = reference("return x.mean(), {'std': x.std(), 'n': x.numel()}")
    assert screened(zygote, task, candidate("return x.mean(), {'std': x.std(), 'n': x.numel()}")).passed
    wrong = screened(zygote, task, candidate("return x.mean(), {'std': 1 / x.std() + 1, 'n': x.numel()}"))
    assert (wrong.reason, wrong.trials[0].output) == (Reason.VALUE, "1.std")
    count = screened(zygote, task, candidate("return x.mean(), {'std': x.std(), 'n': 7}"))
    assert (count.reason, count.trials[0].output) == (Reason.VALUE, "1.n")
    less = screened(zygote, task, candidate("return x.mean()"))
    assert less.reason is Reason.STRUCTURE


def test_hardened_nan_equals_nan(zygote: Zygote) -> None:
    task, source = PAIRS["NaN on both sides"]
    assert not screened(zygote, task, source, V0).passed
    assert screened(zygote, task, source, HARDENED).passed


def test_hardened_inputs_are_private_copies(zygote: Zygote) -> None:
    task, source = PAIRS["a reference that changes its input"]
    assert screened(zygote, task, source, V0).passed
    assert not screened(zygote, task, source, HARDENED).passed
    twin = PAIRS["a reference that changes its input, and a twin"]
    assert not screened(zygote, *twin, V0).passed
    assert screened(zygote, *twin, HARDENED).passed


def test_hardened_hands_the_weights_over(zygote: Zygote) -> None:
    task, source = PAIRS["weights drawn in another order"]
    assert not screened(zygote, task, source, V0).passed
    assert screened(zygote, task, source, HARDENED).passed


def test_hardened_calls_in_both_orders(zygote: Zygote) -> None:
    task = reference("return x * 2")
    remembers = candidate("self.k += 1; return x * 2 if self.k <= 5 else x * 3", init="self.k = 0")
    assert screened(zygote, task, remembers, V0).passed
    report = screened(zygote, task, remembers, HARDENED)
    assert not report.passed
    seeds = [trial.seed for trial in report.trials]
    assert seeds[5:] == seeds[:5][::-1]


@pytest.mark.parametrize(
    ("body", "reason", "outcome"),
    [
        ("import os; os._exit(0)", Reason.EXITED, Outcome.FAIL),
        ("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)", Reason.SIGNALLED, Outcome.FAIL),
        ("raise ValueError('no such block')", Reason.RAISED, Outcome.FAIL),
        ("return bytearray(10 << 40)", Reason.OUT_OF_MEMORY, Outcome.INCONCLUSIVE),
    ],
)
def test_a_candidate_that_does_not_answer_says_how(
    zygote: Zygote, body: str, reason: Reason, outcome: Outcome
) -> None:
    report = screened(zygote, reference("return x * 2"), candidate(body))
    assert (report.reason, report.outcome) == (reason, outcome)
    assert not report.passed


def test_a_candidate_with_a_syntax_error_fails(zygote: Zygote) -> None:
    report = screened(zygote, reference("return x * 2"), "class ModelNew(:\n  pass\n")
    assert report.outcome is Outcome.FAIL
    assert "SyntaxError" in (report.text or "")


def test_a_reference_that_raises_is_an_input_fault(zygote: Zygote) -> None:
    with pytest.raises(InputError, match="the reference raises on the screen's inputs"):
        screened(zygote, reference("raise ValueError('never')"), candidate("return x"))


def test_two_screens_of_one_pair_give_the_same_bytes(zygote: Zygote) -> None:
    task, source = PAIRS["off by 2 percent"]
    first, second = (screened(zygote, task, source).to_json(timing=False) for _ in range(2))
    assert first == second
