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


PLAIN = "tl.dot(a, b, acc)"
ASKING = [PLAIN, 'tl.dot(a, b, acc, input_precision="tf32")', "tl.dot(a, b, acc, allow_tf32=True)"]
FULL = ['tl.dot(a, b, acc, input_precision="tf32x3")', "tl.dot(a, b, acc, allow_tf32=False)"]


@pytest.mark.parametrize("step", ASKING)
def test_a_product_in_tf32_is_a_divergence_as_on_a_gpu(judge, step):
    seen = judge("accumulation", REFERENCE, matmul(step=step), beside=("values", "shapes"), tier="standard")
    assert seen.reasons == {"precision_tf32"}
    assert "TF32" in seen.gate.note
    assert "ieee" in seen.gate.note
    # nowhere is it called wrong: a TF32 that was not asked for is right, in less precision
    assert {f.tier.value for f in seen.report.findings} == {"divergence"}


@pytest.mark.parametrize("step", FULL)
def test_a_product_in_full_precision_passes(judge, step):
    seen = judge("accumulation", REFERENCE, matmul(step=step), beside=("values",), tier="standard")
    assert (seen.outcome, seen.report.findings) == ("pass", ())


def test_a_product_in_tf32_passes_where_the_contract_says_so(judge):
    seen = judge(
        "accumulation",
        REFERENCE,
        matmul(step=PLAIN),
        beside=("values", "shapes", "order_sensitive"),
        tier="standard",
        contract={"numerics": {"matmul": "tf32"}},
    )
    assert (seen.outcome, seen.report.findings) == ("pass", ())


def test_what_a_half_task_multiplies_has_nothing_to_do_with_tf32(judge):
    reference = REFERENCE.replace("(M, K)", "(M, K).half()").replace("(K, N)", "(K, N).half()")
    seen = judge("accumulation", reference, matmul(step=PLAIN), beside=("values",), tier="standard")
    assert (seen.outcome, seen.report.findings) == ("pass", ())


ATTENTION = """
class Model(nn.Module):
    def forward(self, q, k, v):
        scores = torch.matmul(q, k.transpose(-2, -1)) * q.shape[-1] ** -0.5
        return torch.matmul(torch.softmax(scores, dim=-1), v)

HEADS = 2
LENGTH = 80
WIDTH = 32

def get_inputs():
    return [torch.randn(HEADS, LENGTH, WIDTH) for _ in range(3)]

def get_init_inputs():
    return []
"""
FLASH = """
@triton.jit
def attention_kernel(q_ptr, k_ptr, v_ptr, o_ptr, length, width, scale,
                     BM: tl.constexpr, BN: tl.constexpr, BD: tl.constexpr):
    head = tl.program_id(1).to(tl.int64) * length * width
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    lanes = tl.arange(0, BN)
    dims = tl.arange(0, BD)
    places = rows[:, None] * width + dims[None, :]
    inside = (rows[:, None] < length) & (dims[None, :] < width)
    q = tl.load(q_ptr + head + places, mask=inside, other=0.0)
    peak = tl.full((BM,), float("-inf"), tl.float32)
    total = tl.zeros((BM,), tl.float32)
    acc = tl.zeros((BM, BD), tl.float32)
    for start in range(0, length, BN):
        keys = start + lanes
        at = keys[:, None] * width + dims[None, :]
        known = (keys[:, None] < length) & (dims[None, :] < width)
        k = tl.load(k_ptr + head + at, mask=known, other=0.0)
        v = tl.load(v_ptr + head + at, mask=known, other=0.0)
        scores = tl.where(keys[None, :] < length, tl.dot(q, tl.trans(k)) * scale, float("-inf"))
        higher = tl.maximum(peak, tl.max(scores, 1))
        p = tl.exp(scores - higher[:, None])
        before = tl.exp(peak - higher)
        total = total * before + tl.sum(p, 1)
        acc = acc * before[:, None] + tl.dot(p, v)
        peak = higher
    tl.store(o_ptr + head + places, FACTOR * acc / total[:, None], mask=inside)

class ModelNew(nn.Module):
    def forward(self, q, k, v):
        q, k, v = q.contiguous(), k.contiguous(), v.contiguous()
        heads, length, width = q.shape
        out = torch.empty_like(q)
        if out.numel():
            attention_kernel[(triton.cdiv(length, 32), heads)](
                q, k, v, out, length, width, width ** -0.5, BM=32, BN=32,
                BD=max(16, triton.next_power_of_2(width)))
        return out
"""


def flash(factor="1.0"):
    return FLASH.replace("FACTOR", factor)


def test_an_attention_in_tf32_is_nowhere_called_wrong(judge):
    seen = judge("accumulation", ATTENTION, flash(), beside=("values", "dtypes"), tier="standard")
    assert {(f.reason.value, f.tier.value) for f in seen.report.findings} == {("precision_tf32", "divergence")}
    assert {f.slug for f in seen.report.findings} == {"accumulation", "values", "dtypes"}


def test_an_attention_in_tf32_passes_where_the_contract_says_so(judge):
    seen = judge(
        "values",
        ATTENTION,
        flash(),
        beside=("accumulation", "dtypes"),
        tier="standard",
        contract={"numerics": {"matmul": "tf32"}},
    )
    assert (seen.outcome, seen.report.findings) == ("pass", ())


def test_a_fault_of_the_size_of_tf32_in_an_attention_in_tf32_is_wrong(judge):
    # near the error that TF32 makes, but the same factor everywhere
    seen = judge("values", ATTENTION, flash("1.001"), beside=("dtypes",), tier="standard")
    assert "value" in seen.reasons
    assert {f.tier.value for f in seen.findings if f.reason.value == "value"} == {"wrong"}
