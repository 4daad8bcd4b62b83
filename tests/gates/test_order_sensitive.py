"""ORD-03: data on which one algorithm keeps its digits and another loses them."""

from __future__ import annotations

import pytest

REFERENCE = """
ROWS = 6
COLS = 192

class Model(nn.Module):
    def forward(self, x):
        return OPERATION

def get_inputs():
    return [torch.randn(ROWS, COLS)]

def get_init_inputs():
    return []
"""
SOFTMAX = REFERENCE.replace("OPERATION", "torch.softmax(x, dim=1)")
VARIANCE = REFERENCE.replace("OPERATION", "torch.var(x, dim=1, unbiased=False)")
MAXIMUM = REFERENCE.replace("OPERATION", "x.amax(dim=1)")

KERNEL = """
@triton.jit
def row_kernel(x_ptr, y_ptr, cols, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    offs = tl.arange(0, BLOCK)
    x_ptr += row * cols
    BODY

class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        y = torch.empty(SHAPE, dtype=x.dtype, device=x.device)
        row_kernel[(x.shape[0],)](x, y, x.shape[1], BLOCK=128)
        return y
"""


def by_row(body: str, shape: str = "x.shape[0]") -> str:
    return KERNEL.replace("BODY", body.strip().replace("\n", "\n    ")).replace("SHAPE", shape)


LOAD = "tl.load(x_ptr + start + offs, mask=start + offs < cols, other=OTHER)"
WRITE = """
for start in range(0, cols, BLOCK):
    x = tl.load(x_ptr + start + offs, mask=start + offs < cols, other=0.0)
    tl.store(y_ptr + row * cols + start + offs, EXPONENTIAL / total, mask=start + offs < cols)
"""
ONLINE = """
top = -float("inf")
total = 0.0
for start in range(0, cols, BLOCK):
    x = tl.load(x_ptr + start + offs, mask=start + offs < cols, other=-float("inf"))
    new = tl.maximum(top, tl.max(x))
    total = total * tl.exp(top - new) + tl.sum(tl.exp(x - new))
    top = new
""" + WRITE.replace("EXPONENTIAL", "tl.exp(x - top)")
BASE_TWO = (
    ONLINE.replace("tl.exp(", "tl.exp2(1.4426950408889634 * (")
    .replace("top - new)", "top - new))")
    .replace("x - new))", "x - new)))")
    .replace("(x - top)", "(x - top))")
)
NAIVE = """
total = 0.0
for start in range(0, cols, BLOCK):
    x = tl.load(x_ptr + start + offs, mask=start + offs < cols, other=-float("inf"))
    total += tl.sum(tl.exp(x))
""" + WRITE.replace("EXPONENTIAL", "tl.exp(x)")

TWO_PASS = """
total = 0.0
for start in range(0, cols, BLOCK):
    total += tl.sum(tl.load(x_ptr + start + offs, mask=start + offs < cols, other=0.0))
mean = total / cols
square = 0.0
for start in range(0, cols, BLOCK):
    x = tl.load(x_ptr + start + offs, mask=start + offs < cols, other=0.0)
    d = tl.where(start + offs < cols, x - mean, 0.0)
    square += tl.sum(d * d)
tl.store(y_ptr + row, square / cols)
"""
WELFORD = """
count = 0.0
mean = 0.0
square = 0.0
for start in range(0, cols, BLOCK):
    inside = start + offs < cols
    x = tl.load(x_ptr + start + offs, mask=inside, other=0.0)
    n = tl.sum(tl.where(inside, 1.0, 0.0))
    m = tl.sum(x) / n
    d = tl.where(inside, x - m, 0.0)
    delta = m - mean
    square += tl.sum(d * d) + delta * delta * count * n / (count + n)
    mean += delta * n / (count + n)
    count += n
tl.store(y_ptr + row, square / cols)
"""
ONE_PASS = """
total = 0.0
square = 0.0
for start in range(0, cols, BLOCK):
    x = tl.load(x_ptr + start + offs, mask=start + offs < cols, other=0.0)
    total += tl.sum(x)
    square += tl.sum(x * x)
tl.store(y_ptr + row, square / cols - (total / cols) * (total / cols))
"""
LARGEST = """
top = -float("inf")
for start in range(0, cols, BLOCK):
    x = tl.load(x_ptr + start + offs, mask=start + offs < cols, other=-float("inf"))
    top = tl.maximum(top, tl.max(x))
tl.store(y_ptr + row, top)
"""


@pytest.mark.parametrize("body", [ONLINE, BASE_TWO], ids=["online", "base two"])
def test_softmax_by_tiles_passes(judge, body):
    seen = judge("order_sensitive", SOFTMAX, by_row(body, "x.shape"), tier="standard")
    assert (seen.outcome, seen.findings) == ("pass", [])


def test_softmax_without_the_maximum_is_found_on_large_offsets(judge):
    seen = judge("order_sensitive", SOFTMAX, by_row(NAIVE, "x.shape"), tier="standard")
    assert seen.outcome == "fail"
    assert "offset1000" in seen.findings[0].probe


@pytest.mark.parametrize("body", [TWO_PASS, WELFORD], ids=["two passes", "Welford"])
def test_stable_variances_pass(judge, body):
    seen = judge("order_sensitive", VARIANCE, by_row(body), tier="standard")
    assert (seen.outcome, seen.findings) == ("pass", [])


def test_one_pass_variance_is_found_on_offset_rows(judge):
    seen = judge("order_sensitive", VARIANCE, by_row(ONE_PASS), tier="standard")
    assert seen.reasons == {"value"}
    found = seen.findings[0]
    assert found.tier.value == "wrong"
    assert found.error > found.tolerance > 0
    assert found.detail["effective_bits"] < 12


def test_a_running_maximum_passes(judge):
    assert judge("order_sensitive", MAXIMUM, by_row(LARGEST), tier="standard").outcome == "pass"


def test_a_pointwise_task_owes_nothing(judge):
    candidate = "class ModelNew(nn.Module):\n    def forward(self, x):\n        return torch.tanh(x)\n"
    seen = judge("order_sensitive", REFERENCE.replace("OPERATION", "torch.tanh(x)"), candidate)
    assert seen.outcome == "not_applicable"
