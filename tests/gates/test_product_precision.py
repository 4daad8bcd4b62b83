"""PRC-02 on matrix products: which mode of arithmetic a kernel really multiplies in."""

from __future__ import annotations

import pytest

REFERENCE = """
M = 32
K = 64
N = 32

class Model(nn.Module):
    def forward(self, a, b):
        return a @ b

def get_inputs():
    return [torch.randn(M, K), torch.randn(K, N)]

def get_init_inputs():
    return []
"""
KERNEL = """
@triton.jit
def rounded(x):
    return ROUNDED

@triton.jit
def matmul_kernel(a_ptr, b_ptr, c_ptr, m, n, k, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    cols = tl.program_id(1) * BN + tl.arange(0, BN)
    acc = tl.zeros((BM, BN), tl.float32)
    for start in range(0, k, BK):
        ks = start + tl.arange(0, BK)
        left = (rows[:, None] < m) & (ks[None, :] < k)
        right = (ks[:, None] < k) & (cols[None, :] < n)
        a = tl.load(a_ptr + rows[:, None] * k + ks[None, :], mask=left, other=0.0)
        b = tl.load(b_ptr + ks[:, None] * n + cols[None, :], mask=right, other=0.0)
        acc = STEP
    tl.store(c_ptr + rows[:, None] * n + cols[None, :], acc, mask=(rows[:, None] < m) & (cols[None, :] < n))

class ModelNew(nn.Module):
    def forward(self, a, b):
        a, b = a.contiguous(), b.contiguous()
        c = torch.empty(a.shape[0], b.shape[1], dtype=a.dtype, device=a.device)
        grid = (triton.cdiv(a.shape[0], 32), triton.cdiv(b.shape[1], 32))
        matmul_kernel[grid](a, b, c, a.shape[0], b.shape[1], a.shape[1], BM=32, BN=32, BK=64)
        return c
"""
TRUNCATED = "(x.to(tl.int32, bitcast=True) & -8192).to(tl.float32, bitcast=True)"
NEAREST = "((x.to(tl.int32, bitcast=True) + 4096) & -8192).to(tl.float32, bitcast=True)"
IEEE = 'tl.dot(rounded(a), rounded(b), acc, input_precision="ieee")'


def matmul(rounded: str = "x", step: str = IEEE) -> str:
    return KERNEL.replace("ROUNDED", rounded).replace("STEP", step)


def test_full_float32_products_pass(judge):
    seen = judge("accumulation", REFERENCE, matmul(), tier="standard")
    assert (seen.outcome, seen.findings, seen.gate.probes_undecided) == ("pass", [], 0)


@pytest.mark.parametrize(
    ("rounded", "reasons"),
    [
        (TRUNCATED, {"precision_tf32"}),
        (NEAREST, {"precision_tf32"}),
        ("x.to(tl.bfloat16)", {"precision_bf16"}),
        # eleven significand bits each: only the range tells float16 from TF32
        ("x.to(tl.float16)", {"precision_tf32"}),
    ],
)
def test_rounded_operands_are_a_divergence_with_a_name(judge, rounded, reasons):
    seen = judge("accumulation", REFERENCE, matmul(rounded), tier="standard")
    assert seen.reasons == reasons
    found = seen.findings[0]
    assert found.tier.value == "divergence"
    assert found.detail["recognised"]
    assert 6 < found.detail["effective_bits"] < 14
    assert {"tolerance_parts", "ratio", "arithmetic_bits"} <= set(found.detail)


def test_tf32_operands_pass_where_the_contract_says_tf32(judge):
    seen = judge(
        "accumulation", REFERENCE, matmul(NEAREST), tier="standard", contract={"numerics": {"matmul": "tf32"}}
    )
    assert (seen.outcome, seen.findings) == ("pass", [])


def test_bfloat16_operands_fail_where_the_contract_says_tf32(judge):
    seen = judge(
        "accumulation",
        REFERENCE,
        matmul("x.to(tl.bfloat16)"),
        tier="standard",
        contract={"numerics": {"matmul": "tf32"}},
    )
    assert seen.reasons == {"precision_bf16"}


def test_a_float16_accumulator_of_a_product_is_found(judge):
    product = "tl.dot(a.to(tl.float16), b.to(tl.float16), out_dtype=tl.float16)"
    step = f"(acc + {product}).to(tl.float16).to(tl.float32)"
    seen = judge("accumulation", REFERENCE, matmul(step=step), tier="standard")
    assert seen.outcome == "fail"
    assert seen.reasons & {"narrow_accumulator", "precision_fp16", "precision_tf32"}


def test_half_precision_products_with_float32_accumulation_pass_in_a_half_task(judge):
    reference = REFERENCE.replace("(M, K)", "(M, K).half()").replace("(K, N)", "(K, N).half()")
    seen = judge("accumulation", reference, matmul(), tier="standard")
    assert (seen.outcome, seen.findings) == ("pass", [])


def test_a_request_for_tf32_stays_undecided_under_emulation(judge):
    seen = judge("accumulation", REFERENCE, matmul(step="tl.dot(a, b, acc)"), tier="standard")
    assert (seen.outcome, seen.findings) == ("pass", [])
    assert seen.gate.undecided == {"emulation": 1}
    assert "asks for tf32" in seen.gate.note
