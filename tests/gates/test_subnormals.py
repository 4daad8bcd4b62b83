"""EXC-02: numbers below the smallest normal one are handled as declared."""

from __future__ import annotations

REFERENCE = """
ROWS = 6
COLS = 96

class Model(nn.Module):
    def forward(self, x):
        return OPERATION

def get_inputs():
    return [MAKE]

def get_init_inputs():
    return []
"""


def task(operation: str, make: str = "torch.randn(ROWS, COLS)") -> str:
    return REFERENCE.replace("OPERATION", operation).replace("MAKE", make)


KERNEL = """
@triton.jit
def pointwise_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offs, mask=offs < n, other=1.0)
    tl.store(y_ptr + offs, RESULT, mask=offs < n)

class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        y = torch.empty_like(x)
        pointwise_kernel[(triton.cdiv(x.numel(), 256),)](x, y, x.numel(), BLOCK=256)
        return y
"""


def pointwise(result: str) -> str:
    return KERNEL.replace("RESULT", result)


DOUBLE = task("x * 2")
FLUSHED = "tl.where(tl.abs(x) < 1.1754944e-38, 0.0, x) * 2"
SINC = task("torch.where(x == 0, 1.0, torch.sin(x) / x)")
KEPT = {"exceptional": {"subnormals": "preserve"}}
ZEROED = {"exceptional": {"subnormals": "flush"}}


def test_keeping_subnormals_passes(judge):
    seen = judge("subnormals", DOUBLE, pointwise("x * 2"), tier="standard")
    assert (seen.outcome, seen.findings) == ("pass", [])


def test_flushing_subnormals_passes_where_either_will_do(judge):
    assert judge("subnormals", DOUBLE, pointwise(FLUSHED), tier="standard").outcome == "pass"


def test_a_root_of_a_flushed_subnormal_passes_where_either_will_do(judge):
    seen = judge(
        "subnormals",
        task("torch.sqrt(torch.relu(x))"),
        pointwise("tl.sqrt(tl.maximum(x, 0.0))"),
        tier="standard",
    )
    assert (seen.outcome, seen.findings) == ("pass", [])


def test_flushing_subnormals_is_found_where_they_are_to_be_kept(judge):
    seen = judge("subnormals", DOUBLE, pointwise(FLUSHED), tier="standard", contract=KEPT)
    found = seen.findings[0]
    assert (seen.outcome, found.actual) == ("fail", "0.0")
    assert found.tolerance_free
    assert abs(float(found.expected)) == 2 * 2.0**-128


def test_what_a_gpu_does_stays_open_where_they_are_to_be_kept(judge):
    seen = judge("subnormals", DOUBLE, pointwise("x * 2"), tier="standard", contract=KEPT)
    assert (seen.outcome, seen.findings) == ("pass", [])
    assert seen.gate.undecided == {"emulation": 1}


def test_a_kernel_that_flushes_itself_passes_where_they_are_to_be_flushed(judge):
    seen = judge(
        "subnormals",
        DOUBLE,
        pointwise("tl.where(tl.abs(x * 2) < 1.1754944e-38, 0.0, x * 2)"),
        tier="standard",
        contract=ZEROED,
    )
    assert (seen.outcome, seen.gate.undecided) == ("pass", {})


def test_small_normal_numbers_must_not_be_lost(judge):
    seen = judge("subnormals", DOUBLE, pointwise("tl.where(tl.abs(x) < 1e-30, 0.0, x) * 2"), tier="standard")
    assert seen.reasons == {"value"}
    assert "tiny" in seen.findings[0].probe


def test_small_normal_numbers_must_not_be_lost_among_their_like(judge):
    summed = """
@triton.jit
def sum_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    offs = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + tl.program_id(0) * n + offs, mask=offs < n, other=0.0)
    tl.store(y_ptr + tl.program_id(0), tl.sum(RESULT, axis=0))

class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        y = torch.empty(x.shape[0], dtype=x.dtype, device=x.device)
        sum_kernel[(x.shape[0],)](x, y, x.shape[1], BLOCK=triton.next_power_of_2(x.shape[1]))
        return y
"""
    right, lost = (summed.replace("RESULT", r) for r in ("x", "tl.where(tl.abs(x) < 1e-30, 0.0, x)"))
    seen = judge("subnormals", task("x.sum(dim=1)"), right, tier="standard")
    assert (seen.outcome, seen.findings) == ("pass", [])
    seen = judge("subnormals", task("x.sum(dim=1)"), lost, tier="standard")
    assert "minute" in seen.findings[0].probe


def test_a_tangent_by_way_of_an_exponential_has_no_bits_there_and_needs_none(judge):
    by_exponential = pointwise("1.0 - 2.0 / (tl.exp(2.0 * x) + 1.0)")
    seen = judge("subnormals", task("torch.tanh(x)"), by_exponential, tier="standard")
    assert (seen.outcome, seen.findings) == ("pass", [])


def test_an_infinity_made_of_a_subnormal_is_found(judge):
    seen = judge(
        "subnormals", SINC, pointwise("tl.where(x == 0, 1.0, tl.sin(x) * (1.0 / x))"), tier="standard"
    )
    assert seen.reasons <= {"inf_minted", "nan_minted"}
    assert seen.findings[0].tier.value == "violation"


def test_the_same_quotient_taken_directly_passes(judge):
    seen = judge("subnormals", SINC, pointwise("tl.where(x == 0, 1.0, tl.sin(x) / x)"), tier="standard")
    assert (seen.outcome, seen.findings) == ("pass", [])


def test_a_domain_that_avoids_zero_owes_nothing(judge):
    seen = judge("subnormals", task("x * 2", "torch.rand(ROWS, COLS) + 0.5"), pointwise("x * 2"))
    assert (seen.outcome, seen.gate.reason.value) == ("not_applicable", "no_such_input")


def test_nothing_is_said_where_ordinary_values_are_wrong(judge):
    seen = judge("subnormals", DOUBLE, pointwise("x * 2.01"), tier="standard")
    assert (seen.outcome, seen.findings) == ("inconclusive", [])
