"""Approximate intrinsics and TF32 that truncates: granted where the contract allows them, and only there."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch

from assay import oracle
from assay.oracle.arithmetic import arithmetic_for, round_to

Function = Callable[[torch.Tensor], torch.Tensor]


def erring(exact: torch.Tensor, largest: torch.Tensor) -> torch.Tensor:
    """float32 results that are off by up to `largest`, in a pattern that looks random."""
    generator = torch.Generator().manual_seed(exact.numel())
    share = 2.0 * torch.rand(exact.shape, generator=generator, dtype=torch.float64) - 1.0
    return (exact + share.sign() * share.abs().sqrt() * largest).float()


def ulp(x: torch.Tensor) -> torch.Tensor:
    """Distance of float32 numbers at `x`."""
    return torch.exp2(torch.floor(torch.log2(x.abs().clamp(min=2.0**-126))) - 23.0)


def fast_exp(x: torch.Tensor) -> torch.Tensor:
    y = x.double().exp()
    return erring(y, (2.0 + torch.floor(1.173 * x.double().abs())) * ulp(y))


def fast_log(x: torch.Tensor) -> torch.Tensor:
    wide = x.double()
    y = wide.log()
    near = (wide >= 0.5) & (wide <= 2.0)
    return erring(y, torch.where(near, torch.full_like(y, 2.0**-21.41), 3.0 * ulp(y)))


def fast_sin(x: torch.Tensor) -> torch.Tensor:
    wide = x.double()
    inner = wide.abs() <= 2.0 * math.pi
    return erring(wide.sin(), torch.where(inner, 2.0**-20.5, 2.0**-14.7 * wide.abs() / (100.0 * math.pi)))


def fast_cos(x: torch.Tensor) -> torch.Tensor:
    return erring(x.double().cos(), torch.full(x.shape, 2.0**-20.5, dtype=torch.float64))


def fast_tan(x: torch.Tensor) -> torch.Tensor:
    return fast_sin(x) / fast_cos(x)


def fast_tanh(x: torch.Tensor) -> torch.Tensor:
    y = x.double().tanh()
    return erring(y, 2.0**-11 * y.abs())


def fast_sigmoid(x: torch.Tensor) -> torch.Tensor:
    down = 1.0 + fast_exp(-x)
    y = 1.0 / down.double()
    return erring(y, 2.0 * ulp(y))


def fast_power(x: torch.Tensor) -> torch.Tensor:
    wide = x.double()
    near = (wide >= 0.5) & (wide <= 2.0)
    y = wide.log2()
    logarithm = erring(y, torch.where(near, torch.full_like(y, 2.0**-22), 2.0 * ulp(y)))
    z = (2.5 * logarithm).double().exp2()
    return erring(z, 2.0 * ulp(z))


def fast_softmax(x: torch.Tensor) -> torch.Tensor:
    weights = fast_exp(x - x.amax(-1, keepdim=True))
    y = (weights / weights.sum(-1, keepdim=True)).double()
    return erring(y, 2.0 * ulp(y))


def fast_gelu(x: torch.Tensor) -> torch.Tensor:
    inner = math.sqrt(2.0 / math.pi) * (x + 0.044715 * x * x * x)
    return 0.5 * x * (1.0 + fast_tanh(inner))


def power(x: torch.Tensor) -> torch.Tensor:
    return x**2.5


def gelu(x: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.gelu(x, approximate="tanh")


def softmax(x: torch.Tensor) -> torch.Tensor:
    return x.softmax(-1)


def drawn(kind: str) -> torch.Tensor:
    generator = torch.Generator().manual_seed(5)
    x = torch.randn(64, 256, generator=generator)
    if kind == "wide":
        return 6.0 * x
    if kind == "positive":
        return x.abs() + 0.25
    return 1.0 + 0.01 * x if kind == "near one" else x


CASES: list[tuple[str, Function, Function, str, bool]] = [
    ("exp", torch.exp, fast_exp, "plain", False),
    ("exp wide", torch.exp, fast_exp, "wide", False),
    ("log", torch.log, fast_log, "positive", True),
    ("log near one", torch.log, fast_log, "near one", True),
    ("sin", torch.sin, fast_sin, "plain", True),
    ("sin wide", torch.sin, fast_sin, "wide", True),
    ("cos", torch.cos, fast_cos, "plain", True),
    ("tan", torch.tan, fast_tan, "plain", True),
    ("tanh", torch.tanh, fast_tanh, "plain", True),
    ("sigmoid", torch.sigmoid, fast_sigmoid, "plain", False),
    ("power", power, fast_power, "positive", False),
    ("softmax", softmax, fast_softmax, "plain", False),
    ("gelu", gelu, fast_gelu, "plain", True),
]
"""Name, reference, right kernel in approximate intrinsics, data, and whether the default is finer than that."""


@pytest.mark.parametrize(("reference", "kernel", "data", "coarse"), [c[1:] for c in CASES], ids=[c[0] for c in CASES])
def test_intrinsics_pass_where_fast_math_is_declared(
    reference: Function, kernel: Function, data: str, coarse: bool
) -> None:
    x = drawn(data)
    arithmetic = arithmetic_for(torch.float32, fast_math=True)
    allowed = oracle.evaluate(reference, [x], arithmetic=arithmetic).leaves[0]
    default = oracle.evaluate(reference, [x]).leaves[0]
    assert oracle.compare(allowed, kernel(x)).ratio < 1.0
    assert oracle.compare(default, kernel(x)).ok is not coarse


@pytest.mark.parametrize(
    ("reference", "wrong"),
    [
        (torch.exp, lambda x: torch.exp(x) * (1.0 + 3e-6)),
        (torch.sin, lambda x: torch.sin(x + 2e-5)),
        (gelu, torch.nn.functional.gelu),
        (torch.erf, lambda x: torch.erf(x) * (1.0 + 3e-6)),
        (power, lambda x: x.abs() ** 2.5001),
    ],
    ids=["scaled exp", "shifted sine", "erf for tanh", "scaled erf", "other power"],
)
def test_fast_math_excuses_no_other_error(reference: Function, wrong: Function) -> None:
    x = drawn("positive")
    truth = oracle.evaluate(reference, [x], arithmetic=arithmetic_for(torch.float32, fast_math=True)).leaves[0]
    # where tanh.approx is allowed, the two forms of gelu are less apart than its error
    assert oracle.compare(truth, wrong(x)).ok is (reference is gelu)


def operands(data: str, n: int) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(n)
    a, b = torch.rand(16, n, generator=generator), torch.rand(n, 24, generator=generator)
    if data == "mixed":
        return 2.0 * a - 1.0, 2.0 * b - 1.0
    if data == "worst":
        # just below a number of TF32: truncation costs nearly a whole unit
        return torch.full_like(a, 1.0 + 2.0**-10 - 2.0**-23), torch.full_like(b, 1.0 + 2.0**-10 - 2.0**-23)
    return (a, b) if data == "positive" else (-a - 3.0, b + 3.0)


@pytest.mark.parametrize("way", ["tf32", "tf32 truncated"])
@pytest.mark.parametrize("data", ["mixed", "positive", "offset", "worst"])
@pytest.mark.parametrize("n", [64, 4096])
def test_tf32_passes_rounded_or_truncated(way: str, data: str, n: int) -> None:
    a, b = operands(data, n)
    declared = arithmetic_for(torch.float32, matmul="tf32")
    truth = oracle.evaluate(torch.matmul, [a, b], arithmetic=declared).leaves[0]
    kernel = (round_to(a.double(), way).float() @ round_to(b.double(), way).float())
    assert oracle.compare(truth, kernel).ratio < 0.95
    if data == "mixed":
        fine = oracle.evaluate(torch.matmul, [a, b]).leaves[0]
        assert oracle.compare(fine, kernel).ratio > 10.0


def test_tf32_excuses_no_bfloat16() -> None:
    a, b = operands("mixed", 4096)
    truth = oracle.evaluate(torch.matmul, [a, b], arithmetic=arithmetic_for(torch.float32, matmul="tf32")).leaves[0]
    assert oracle.compare(truth, (a.bfloat16().float() @ b.bfloat16().float())).ratio > 1.5
