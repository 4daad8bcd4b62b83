"""ORD-01: the error of a long reduction stays within the bound of its own rounding."""

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
SUM = REFERENCE.replace("OPERATION", "x.sum(dim=1)")
RELU_SUM = REFERENCE.replace("OPERATION", "torch.relu(x).sum(dim=1)")
CUMSUM = REFERENCE.replace("OPERATION", "x.cumsum(dim=1)")

SUM_KERNEL = """
@triton.jit
def row_sum_kernel(x_ptr, y_ptr, cols, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    offs = tl.arange(0, BLOCK)
    acc = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, cols, BLOCK):
        at = AT
        acc += tl.load(x_ptr + row * cols + at, mask=(at >= 0) & (at < cols), other=0.0)
    tl.store(y_ptr + row, RESULT)

class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        y = torch.zeros(x.shape[0], dtype=x.dtype, device=x.device)
        row_sum_kernel[(x.shape[0],)](x, y, x.shape[1], BLOCK=64)
        return y
"""


def row_sum(at: str = "start + offs", result: str = "tl.sum(acc)") -> str:
    return SUM_KERNEL.replace("AT", at, 1).replace("RESULT", result)


SCAN = """
@triton.jit
def scan_kernel(x_ptr, y_ptr, cols, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    offs = tl.arange(0, BLOCK)
    carry = 0.0
    for start in range(0, cols, BLOCK):
        at = start + offs
        x = tl.load(x_ptr + row * cols + at, mask=at < cols, other=0.0)
        tl.store(y_ptr + row * cols + at, SCANNED, mask=at < cols)
        carry += tl.sum(x)

class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        y = torch.empty_like(x)
        scan_kernel[(x.shape[0],)](x, y, x.shape[1], BLOCK=64)
        return y
"""


@pytest.mark.parametrize(
    "at", ["start + offs", "cols - 1 - start - offs", "offs * tl.cdiv(cols, BLOCK) + start // BLOCK"]
)
def test_forward_backward_and_strided_sums_pass(judge, at):
    seen = judge("reduction_order", SUM, row_sum(at), tier="standard")
    assert (seen.outcome, seen.findings) == ("pass", [])
    assert "COLS=" in seen.gate.note


def test_a_scan_by_blocks_passes(judge):
    candidate = SCAN.replace("SCANNED", "carry + tl.cumsum(x, axis=0)")
    assert judge("reduction_order", CUMSUM, candidate, tier="standard").outcome == "pass"


def test_a_sum_that_counts_on_mixed_signs_is_found(judge):
    """Right on ordinary rows, wrong where a whole block lies below zero."""
    candidate = row_sum(result="tl.sum(acc)").replace(
        "acc += tl.load(x_ptr + row * cols + at, mask=(at >= 0) & (at < cols), other=0.0)",
        "x = tl.load(x_ptr + row * cols + at, mask=(at >= 0) & (at < cols), other=0.0)\n"
        "        acc += tl.where(tl.max(x) > 0, tl.maximum(x, 0.0), x)",
    )
    seen = judge("reduction_order", RELU_SUM, candidate, tier="standard")
    assert seen.reasons == {"value"}
    assert "all_negative" in seen.findings[0].probe
    assert "effective_bits" in seen.findings[0].detail


def test_nothing_is_said_of_order_where_plain_sums_are_wrong(judge):
    seen = judge("reduction_order", SUM, row_sum(result="1.01 * tl.sum(acc)"), tier="standard")
    assert (seen.outcome, seen.findings) == ("inconclusive", [])
    assert "task's own data" in seen.gate.note


def test_a_pointwise_task_owes_nothing(judge):
    candidate = "class ModelNew(nn.Module):\n    def forward(self, x):\n        return torch.tanh(x)\n"
    seen = judge("reduction_order", REFERENCE.replace("OPERATION", "torch.tanh(x)"), candidate)
    assert (seen.outcome, seen.gate.note) == ("not_applicable", "the reference adds up nothing")
