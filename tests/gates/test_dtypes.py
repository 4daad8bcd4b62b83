"""PRC-01: right in every declared dtype; nothing is owed in others."""

from __future__ import annotations

REFERENCE = """
ROWS = 6
COLS = 256

class Model(nn.Module):
    def forward(self, x):
        return x.sum(dim=1)

def get_inputs():
    return [torch.randn(ROWS, COLS)]

def get_init_inputs():
    return []
"""
KERNEL = """
@triton.jit
def row_sum_kernel(x_ptr, y_ptr, cols, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    offs = tl.arange(0, BLOCK)
    acc = tl.zeros((BLOCK,), ACCUMULATOR)
    for start in range(0, cols, BLOCK):
        acc += tl.load(x_ptr + row * cols + start + offs, mask=start + offs < cols, other=0.0).to(ACCUMULATOR)
    tl.store(y_ptr + row, tl.sum(acc, dtype=ACCUMULATOR))

class ModelNew(nn.Module):
    def forward(self, x):
        CHECK
        x = x.contiguous()
        y = torch.empty(x.shape[0], dtype=OUTPUT, device=x.device)
        row_sum_kernel[(x.shape[0],)](x, y, x.shape[1], BLOCK=16)
        return y
"""


def candidate(accumulator: str = "tl.float32", output: str = "x.dtype", check: str = "pass") -> str:
    return KERNEL.replace("ACCUMULATOR", accumulator).replace("OUTPUT", output).replace("CHECK", check)


HALVES = {"domain": {"dtypes": ["fp16", "bf16"]}}
ONLY_FLOAT32 = "assert x.dtype == torch.float32, 'float32 only'"


def test_the_own_dtype_is_judged_where_nothing_is_declared(judge):
    seen = judge("dtypes", REFERENCE, candidate())
    assert (seen.outcome, seen.gate.note) == ("pass", "float32")
    assert seen.gate.probes_run > 0


def test_a_kernel_that_promises_no_half_precision_owes_none(judge):
    seen = judge("dtypes", REFERENCE, candidate(check=ONLY_FLOAT32))
    assert (seen.outcome, seen.findings) == ("pass", [])


def test_a_generic_kernel_passes_in_every_declared_dtype(judge):
    seen = judge("dtypes", REFERENCE, candidate(), contract=HALVES)
    assert (seen.outcome, seen.gate.note) == ("pass", "float32, float16, bfloat16")


def test_a_declared_dtype_that_is_refused_is_found(judge):
    seen = judge("dtypes", REFERENCE, candidate(check=ONLY_FLOAT32), contract=HALVES)
    assert seen.reasons == {"raised"}
    assert "float32 only" in seen.findings[0].actual


def test_an_output_of_another_dtype_is_found_without_a_tolerance(judge):
    seen = judge("dtypes", REFERENCE, candidate(output="torch.float32"), contract=HALVES)
    found = seen.findings[0]
    assert (found.reason.value, found.expected, found.actual) == ("dtype", "float16", "float32")
    assert found.tolerance_free


def test_any_output_dtype_passes_where_the_contract_says_so(judge):
    contract = HALVES | {"numerics": {"output_dtype": "any"}}
    assert judge("dtypes", REFERENCE, candidate(output="torch.float32"), contract=contract).outcome == "pass"


def test_a_declared_dtype_with_wrong_sums_is_found(judge):
    narrow = candidate(accumulator="x_ptr.dtype.element_ty")
    seen = judge("dtypes", REFERENCE, narrow, contract={"domain": {"dtypes": ["bf16"]}})
    assert seen.reasons == {"value"}
    assert "bfloat16" in seen.findings[0].probe


def test_a_fault_of_the_own_dtype_is_counted_once(judge):
    wrong = candidate().replace("tl.sum(acc, dtype=tl.float32)", "1.01 * tl.sum(acc)")
    seen = judge("dtypes", REFERENCE, wrong, contract=HALVES)
    assert len(seen.findings) == 1
    assert "own" in seen.findings[0].probe


def test_a_task_of_integers_owes_nothing(judge):
    reference = REFERENCE.replace("torch.randn(ROWS, COLS)", "torch.randint(0, 9, (ROWS, COLS))")
    plain = "class ModelNew(nn.Module):\n    def forward(self, x):\n        return x.sum(dim=1)\n"
    assert judge("dtypes", reference, plain).outcome == "not_applicable"
