"""PRC-02: the declared accumulator precision is really used."""

from __future__ import annotations

import pytest

SUM = """
ROWS = 8
COLS = 256

class Model(nn.Module):
    def forward(self, x):
        return x.sum(dim=1)

def get_inputs():
    return [MAKE]

def get_init_inputs():
    return []
"""
NORMAL = SUM.replace("MAKE", "torch.randn(ROWS, COLS)")
HALF = SUM.replace("MAKE", "torch.rand(ROWS, COLS).half()")

SUM_KERNEL = """
@triton.jit
def row_sum_kernel(x_ptr, y_ptr, cols, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    offs = tl.arange(0, BLOCK)
    START
    for start in range(0, cols, BLOCK):
        x = tl.load(x_ptr + row * cols + start + offs, mask=start + offs < cols, other=0.0)
        STEP
    tl.store(y_ptr + row, END)

class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        y = torch.empty(x.shape[0], dtype=x.dtype, device=x.device)
        row_sum_kernel[(x.shape[0],)](x, y, x.shape[1], BLOCK=BLOCK_SIZE)
        return y
"""


def row_sum(start: str, step: str, end: str, block: int = 64) -> str:
    source = SUM_KERNEL.replace("START", start).replace("STEP", step.replace("\n", "\n        "))
    return source.replace("END", end).replace("BLOCK_SIZE", str(block))


WIDE = row_sum("acc = tl.zeros((BLOCK,), tl.float32)", "acc += x.to(tl.float32)", "tl.sum(acc)")
RIGHT = {
    "lanes then across": WIDE,
    "block sums one after another": row_sum("acc = 0.0", "acc += tl.sum(x)", "acc"),
    "compensated": row_sum(
        "acc = tl.zeros((BLOCK,), tl.float32)\n    lost = tl.zeros((BLOCK,), tl.float32)",
        "y = x - lost\nt = acc + y\nlost = (t - acc) - y\nacc = t",
        "tl.sum(acc)",
    ),
}
HALF_LANES = row_sum(
    "acc = tl.zeros((BLOCK,), tl.float16)", "acc += x.to(tl.float16)", "tl.sum(acc, dtype=tl.float16)", 32
)


@pytest.mark.parametrize("name", RIGHT)
def test_any_order_of_a_float32_sum_passes(judge, name):
    seen = judge("accumulation", NORMAL, RIGHT[name], tier="standard")
    assert (seen.outcome, seen.findings) == ("pass", [])
    assert "effective bits 2" in seen.gate.note


def test_a_float16_accumulator_in_a_float32_task_is_named(judge):
    seen = judge("accumulation", NORMAL, HALF_LANES, tier="standard")
    assert seen.reasons == {"narrow_accumulator"}
    assert seen.findings[0].detail["effective_bits"] < 16


def test_a_float16_task_that_accumulates_in_float32_passes(judge):
    seen = judge("accumulation", HALF, WIDE, tier="standard")
    assert (seen.outcome, seen.findings) == ("pass", [])


def test_a_float16_task_that_accumulates_in_float16_is_found(judge):
    seen = judge("accumulation", HALF, HALF_LANES, tier="standard")
    assert "narrow_accumulator" in seen.reasons


def test_inputs_rounded_to_bfloat16_are_recognised(judge):
    candidate = row_sum("acc = 0.0", "acc += tl.sum(x.to(tl.bfloat16).to(tl.float32))", "acc")
    seen = judge("accumulation", NORMAL, candidate, tier="standard")
    assert seen.reasons == {"precision_bf16"}
    assert seen.findings[0].tier.value == "divergence"
    assert seen.findings[0].detail["recognised"]


def test_the_quick_tier_sees_a_narrow_accumulator(judge):
    assert judge("accumulation", NORMAL, HALF_LANES).gate.outcome == "fail"
    assert judge("accumulation", NORMAL, WIDE).gate.outcome == "pass"


def test_a_wrong_formula_is_not_called_an_accumulator(judge):
    candidate = row_sum("acc = 0.0", "acc += tl.sum(x) * 1.001", "acc")
    seen = judge("accumulation", NORMAL, candidate, tier="standard")
    assert (seen.outcome, seen.findings) == ("inconclusive", [])


def test_a_constant_is_not_called_an_accumulator(judge):
    seen = judge("accumulation", NORMAL, row_sum("acc = 0.0", "acc += 0.0", "acc"), tier="standard")
    assert (seen.outcome, seen.findings) == ("inconclusive", [])


def test_a_task_that_adds_up_nothing_owes_nothing(judge):
    reference = NORMAL.replace("x.sum(dim=1)", "torch.relu(x)")
    candidate = "class ModelNew(nn.Module):\n    def forward(self, x):\n        return torch.relu(x)\n"
    seen = judge("accumulation", reference, candidate, tier="standard")
    assert (seen.outcome, seen.gate.note) == ("not_applicable", "the reference adds up nothing")


def test_padding_that_shows_at_odd_widths_only_is_another_gates_matter(judge):
    reference = NORMAL.replace("x.sum(dim=1)", "torch.softmax(x, dim=1)")
    candidate = """
@triton.jit
def softmax_kernel(x_ptr, y_ptr, cols, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    offs = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * cols + offs, mask=offs < cols, other=0.0)
    e = tl.exp(x - tl.max(x))
    tl.store(y_ptr + row * cols + offs, e / tl.sum(e), mask=offs < cols)

class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        y = torch.empty_like(x)
        softmax_kernel[(x.shape[0],)](x, y, x.shape[1], BLOCK=triton.next_power_of_2(x.shape[1]))
        return y
"""
    assert judge("accumulation", reference, candidate, tier="standard").outcome == "pass"


POOL = """
DTYPE = torch.bfloat16
BATCH = 2
LENGTH = 50

class Model(nn.Module):
    def forward(self, x):
        return nn.functional.avg_pool1d(x, 3)

def get_inputs():
    return [torch.randn(BATCH, 4, LENGTH).to(DTYPE)]

def get_init_inputs():
    return []
"""
POOL_KERNEL = """
@triton.jit
def pool_kernel(x_ptr, y_ptr, length, out_length, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    at = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    mask = at < out_length
    total = tl.zeros((BLOCK,), tl.float32)
    for tap in range(0, 3):
        x = tl.load(x_ptr + row * length + at * 3 + tap, mask=mask, other=0.0)
        total = (total + x.to(tl.float32))WITH
    tl.store(y_ptr + row * out_length + at, (total / 3).to(y_ptr.dtype.element_ty), mask=mask)

class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        batch, channels, length = x.shape
        y = torch.empty((batch, channels, length // 3), dtype=x.dtype, device=x.device)
        pool_kernel[(batch * channels, triton.cdiv(length // 3, 16))](x, y, length, length // 3, BLOCK=16)
        return y
"""


def test_a_float16_accumulator_lacks_the_range_that_a_bfloat16_task_has(judge):
    seen = judge("accumulation", POOL, POOL_KERNEL.replace("WITH", ".to(tl.float16).to(tl.float32)"), tier="standard")
    assert seen.reasons == {"narrow_accumulator"}
    assert seen.findings[0].probe.startswith("accumulation/faint")


def test_a_float32_accumulator_has_that_range(judge):
    seen = judge("accumulation", POOL, POOL_KERNEL.replace("WITH", ""), tier="standard")
    assert (seen.outcome, seen.findings) == ("pass", [])


def test_what_is_not_linear_owes_nothing_at_the_end_of_that_range(judge):
    reference = POOL.replace("nn.functional.avg_pool1d(x, 3)", "torch.tanh(x.float().sum(dim=-1)).to(x.dtype)")
    candidate = """
        @triton.jit
        def kernel(x_ptr, y_ptr, length, BLOCK: tl.constexpr):
            row, at = tl.program_id(0), tl.arange(0, BLOCK)
            x = tl.load(x_ptr + row * length + at, mask=at < length, other=0.0).to(tl.float32)
            total = tl.sum(x)
            powered = tl.exp(-2.0 * tl.abs(total))
            size = (1.0 - powered) / (1.0 + powered)
            tl.store(y_ptr + row, tl.where(total < 0, -size, size).to(y_ptr.dtype.element_ty))

        class ModelNew(nn.Module):
            def forward(self, x):
                x = x.contiguous()
                batch, channels, length = x.shape
                y = torch.empty((batch, channels), dtype=x.dtype, device=x.device)
                kernel[(batch * channels,)](x, y, length, BLOCK=triton.next_power_of_2(length))
                return y
    """
    seen = judge("accumulation", reference, candidate, tier="standard")
    assert seen.findings == []
