"""A contract edited by hand changes exactly the outcomes that its clause is about, on real kernels."""

from __future__ import annotations

from typing import Any

import pytest

HEAD = "import torch\nimport torch.nn as nn\nimport torch.nn.functional as F\n\n"


def module(name: str, forward: str, parameters: str = "x", init: str = "pass") -> str:
    """A class whose two methods are single statements."""
    return (f"class {name}(nn.Module):\n    def __init__(self):\n        super().__init__()\n"
            f"        {init}\n\n    def forward(self, {parameters}):\n        {forward}\n\n\n")


def task_source(sizes: str, forward: str, inputs: str, parameters: str = "x", init: str = "pass") -> str:
    """A reference file."""
    return (f"{HEAD}{sizes}\n\n\n{module('Model', forward, parameters, init)}"
            f"def get_inputs():\n    return {inputs}\n\n\ndef get_init_inputs():\n    return []\n")


TRITON = "import torch\nimport torch.nn as nn\nimport triton\nimport triton.language as tl\n\n\n"
RELU = task_source("ROWS = 6\nCOLS = 100", "return torch.relu(x)", "[torch.randn(ROWS, COLS)]")
# right on numbers and sizes; NaN > 0 is false, so NaN becomes 0, and one row is refused
RELU_KERNEL = TRITON + '''
@triton.jit
def relu(x, y, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + at, mask=at < n, other=0.0)
    tl.store(y + at, tl.where(v > 0, v, 0.0), mask=at < n)


class ModelNew(nn.Module):
    def forward(self, x):
        if x.shape[0] == 1:
            raise ValueError("a single row is not supported")
        x = x.contiguous()
        y = torch.empty_like(x)
        relu[(triton.cdiv(x.numel(), 128),)](x, y, x.numel(), BLOCK=128)
        return y
'''
PRODUCT = task_source("M = 16\nK = 64\nN = 16", "return x @ w", "[torch.randn(M, K), torch.randn(K, N)]",
                      parameters="x, w")
# operands rounded to the 10 bits of TF32, as tensor cores do where it is allowed
PRODUCT_KERNEL = TRITON + '''
@triton.jit
def tf32(v):
    return ((v.to(tl.int32, bitcast=True) + 4096) & -8192).to(tl.float32, bitcast=True)


@triton.jit
def product(x, w, y, m, k, n, M: tl.constexpr, K: tl.constexpr, N: tl.constexpr):
    rows, inner, cols = tl.arange(0, M), tl.arange(0, K), tl.arange(0, N)
    total = tl.zeros((M, N), tl.float32)
    for start in range(0, k, K):
        at = start + inner
        here, there = (rows < m)[:, None] & (at < k)[None, :], (at < k)[:, None] & (cols < n)[None, :]
        a = tl.load(x + rows[:, None] * k + at[None, :], mask=here, other=0.0)
        b = tl.load(w + at[:, None] * n + cols[None, :], mask=there, other=0.0)
        total += tl.dot(tf32(a), tf32(b), input_precision="ieee")
    inside = (rows < m)[:, None] & (cols < n)[None, :]
    tl.store(y + rows[:, None] * n + cols[None, :], total, mask=inside)


class ModelNew(nn.Module):
    def forward(self, x, w):
        x, w = x.contiguous(), w.contiguous()
        m, n = x.shape[0], w.shape[1]
        y = torch.empty(m, n, device=x.device)
        if y.numel():
            side = max(16, triton.next_power_of_2(max(m, n)))
            product[(1,)](x, w, y, m, x.shape[1], n, M=side, K=32, N=side)
        return y
'''
UNIFORM = task_source("ROWS = 4\nCOLS = 50", "return torch.sqrt(x)", "[torch.rand(ROWS, COLS)]")
BELOW_FOUR = HEAD + module("ModelNew", "return torch.sqrt(x.clamp(max=4.0))")
CHECKED = ("values", "shapes", "nonfinite", "residency", "layouts")


def outcomes(report: Any) -> dict[str, str]:
    return {gate.slug: gate.outcome.value for gate in report.gates}


def changed(before: dict[str, str], after: dict[str, str]) -> dict[str, str]:
    return {slug: outcome for slug, outcome in after.items() if before[slug] != outcome}


@pytest.fixture(scope="module")
def kept() -> dict[str, dict[str, str]]:
    return {}


@pytest.fixture
def plain(kept, judged):
    """Outcomes of the relu kernel under the default contract, found once."""
    if not kept:
        kept["relu"] = outcomes(judged(RELU, RELU_KERNEL, CHECKED))
    return kept["relu"]


def test_the_kernel_breaks_two_clauses_and_keeps_the_rest(plain):
    assert plain == {"values": "pass", "shapes": "fail", "nonfinite": "fail", "residency": "pass",
                     "layouts": "pass"}


def test_waiving_nan_changes_nonfinite_alone(plain, judged):
    after = outcomes(judged(RELU, RELU_KERNEL, CHECKED, {"exceptional": {"nan": "ignore"}}))
    assert changed(plain, after) == {"nonfinite": "pass"}


def test_waiving_nan_and_infinities_leaves_nothing_to_judge(plain, judged):
    after = outcomes(judged(RELU, RELU_KERNEL, CHECKED, {"exceptional": {"nan": "ignore", "inf": "ignore"}}))
    assert changed(plain, after) == {"nonfinite": "not_applicable"}


def test_forbidding_size_one_changes_shapes_alone(plain, judged):
    contract = {"domain": {"sizes": {"ROWS": {"minimum": 2}}}}
    report = judged(RELU, RELU_KERNEL, CHECKED, contract)
    assert changed(plain, outcomes(report)) == {"shapes": "pass"}
    assert "ROWS=1," not in str(next(g.note for g in report.gates if g.slug == "shapes"))


def test_fixing_every_size_leaves_shapes_nothing_to_vary(plain, judged):
    contract = {"domain": {"sizes": {"ROWS": {"fixed": True}, "COLS": {"fixed": True}}}}
    after = outcomes(judged(RELU, RELU_KERNEL, CHECKED, contract))
    assert changed(plain, after) == {"shapes": "not_applicable"}


def test_admitting_no_layout_leaves_layouts_nothing_to_judge(plain, judged):
    contract = {"domain": {"inputs": {"0": {"layouts": ["contiguous"]}}}}
    after = outcomes(judged(RELU, RELU_KERNEL, CHECKED, contract))
    assert changed(plain, after) == {"layouts": "not_applicable"}


def test_allowing_tf32_changes_values_alone(judged):
    only = ("values", "residency", "input_mutation")
    before = judged(PRODUCT, PRODUCT_KERNEL, only, tier="quick")
    after = judged(PRODUCT, PRODUCT_KERNEL, only, {"numerics": {"matmul": "tf32"}}, tier="quick")
    assert changed(outcomes(before), outcomes(after)) == {"values": "pass"}
    assert all(found.slug == "values" for found in before.findings)


def test_a_wider_range_reaches_values_that_the_task_never_makes(judged):
    assert outcomes(judged(UNIFORM, BELOW_FOUR, ("values",), tier="quick")) == {"values": "pass"}
    wider = {"domain": {"inputs": {"0": {"low": 0.0, "high": 100.0}}}}
    assert outcomes(judged(UNIFORM, BELOW_FOUR, ("values",), wider, tier="quick")) == {"values": "fail"}


def test_an_advisory_gate_is_reported_and_does_not_reject(judged):
    contract = {"policy": {"advisory": ["shapes", "nonfinite"]}}
    report = judged(RELU, RELU_KERNEL, CHECKED, contract)
    assert report.label.value == "contract"
    assert {found.slug for found in report.findings} == {"shapes", "nonfinite"}


def test_parameters_that_may_not_vary_are_taken_as_constructed(judged):
    norm = "self.norm = nn.LayerNorm(24)"
    task = task_source("B = 4", "return self.norm(x)", "[torch.randn(B, 24)]", init=norm)
    without_weights = HEAD + module("ModelNew", "return F.layer_norm(x, (24,))", init=norm)
    assert outcomes(judged(task, without_weights, ("values",), tier="quick")) == {"values": "fail"}
    contract = {"domain": {"vary_parameters": False}}
    assert outcomes(judged(task, without_weights, ("values",), contract, tier="quick")) == {"values": "pass"}


SORTED = task_source("ROWS = 8\nCOLS = 64", "return (x * 2 + 1).sum(-1)", "[torch.randn(ROWS, COLS)]")
# 8 x 64 floats twice, one after the other and then both at once
TWO_AT_ONCE = HEAD + module("ModelNew", "y = x * 2; return (y + 1).sum(-1)")
IN_PLACE = HEAD + module("ModelNew", "return (x * 2).add_(1).sum(-1)")


@pytest.mark.parametrize(("candidate", "limit", "outcome"), [
    (TWO_AT_ONCE, 4096, "pass"), (TWO_AT_ONCE, 4095, "fail"), (IN_PLACE, 2048, "pass"), (IN_PLACE, 2047, "fail"),
])
def test_scratch_memory_is_limited_to_the_byte(judged, candidate, limit, outcome):
    report = judged(SORTED, candidate, ("resources",), {"memory": {"extra_bytes": limit}}, tier="quick")
    assert outcomes(report) == {"resources": outcome}
    assert {f.reason.value for f in report.findings} == ({"scratch_memory"} if outcome == "fail" else set())


def test_without_a_limit_scratch_memory_is_nobodys_business(judged):
    assert outcomes(judged(SORTED, TWO_AT_ONCE, ("resources",), tier="quick")) == {"resources": "not_applicable"}
