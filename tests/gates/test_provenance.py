"""INT-02: the work is done by the candidate's own kernel, where the contract asks for one."""

from __future__ import annotations

import pytest

REFERENCE = """
class Model(nn.Module):
    def __init__(self, inputs, outputs):
        super().__init__()
        self.fc = nn.Linear(inputs, outputs)

    def forward(self, x):
        return torch.relu(self.fc(x))

INPUTS = 24
OUTPUTS = 20

def get_inputs():
    return [torch.randn(8, INPUTS)]

def get_init_inputs():
    return [INPUTS, OUTPUTS]
"""

KERNELS = """
@triton.jit
def relu_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offs, mask=offs < n)
    tl.store(y_ptr + offs, tl.where(x < 0, 0.0, x), mask=offs < n)


@triton.jit
def copy_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y_ptr + offs, tl.load(x_ptr + offs, mask=offs < n), mask=offs < n)


@triton.jit
def clamp_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offs, mask=offs < n)
    tl.store(y_ptr + offs, tl.clamp(x, -1e4, 1e4), mask=offs < n)


@triton.jit
def half_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y_ptr + offs, tl.load(x_ptr + offs, mask=offs < n) * 0.5, mask=offs < n)


@triton.jit
def linear_relu_kernel(
    x_ptr, w_ptr, b_ptr, y_ptr, inner, cols, N: tl.constexpr, K: tl.constexpr, RELU: tl.constexpr
):
    row, n, k = tl.program_id(0), tl.arange(0, N), tl.arange(0, K)
    x = tl.load(x_ptr + row * inner + k, mask=k < inner, other=0.0)
    inside = (n[:, None] < cols) & (k[None, :] < inner)
    w = tl.load(w_ptr + n[:, None] * inner + k[None, :], mask=inside, other=0.0)
    y = tl.sum(w * x[None, :], axis=1) + tl.load(b_ptr + n, mask=n < cols)
    if RELU:
        y = tl.where(y < 0, 0.0, y)
    tl.store(y_ptr + row * cols + n, y, mask=n < cols)


@triton.jit
def broken_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y_ptr + offs, tl.relu(tl.load(x_ptr + offs, mask=offs < n)), mask=offs < n)


def flat(kernel, x):
    x = x.contiguous()
    y = torch.empty_like(x)
    kernel[(triton.cdiv(x.numel(), 128),)](x, y, x.numel(), BLOCK=128)
    return y


def linear(x, fc):
    return linear_relu(x, fc, relu=False)


def linear_relu(x, fc, relu=True):
    rows, inner = x.shape
    cols = fc.weight.shape[0]
    y = torch.empty(rows, cols, dtype=x.dtype, device=x.device)
    w = fc.weight.contiguous()
    linear_relu_kernel[(rows,)](x.contiguous(), w, fc.bias, y, inner, cols, N=32, K=32, RELU=relu)
    return y


class ModelNew(nn.Module):
    def __init__(self, inputs, outputs):
        super().__init__()
        self.fc = nn.Linear(inputs, outputs)
        self.calls = 0

    def forward(self, x):
        FORWARD
"""
TORCH = "torch.relu(self.fc(x))"


def candidate(*lines: str) -> str:
    return KERNELS.replace("FORWARD", "\n        ".join(lines))


def test_a_kernel_that_does_everything_passes_with_its_share(judge):
    seen = judge("provenance", REFERENCE, candidate("return linear_relu(x, self.fc)"), beside=("values",))
    assert (seen.outcome, seen.findings) == ("pass", [])
    assert "own kernels do 100%" in str(seen.gate.note)


def test_an_epilogue_after_a_product_of_torch_is_work_of_its_own(judge):
    seen = judge(
        "provenance", REFERENCE, candidate("return flat(relu_kernel, self.fc(x))"), beside=("values",)
    )
    assert seen.outcome == "pass"
    assert "addmm" in str(seen.gate.note)


def test_a_product_of_torch_is_too_much_where_own_work_is_required(judge):
    seen = judge(
        "provenance",
        REFERENCE,
        candidate("return flat(relu_kernel, self.fc(x))"),
        beside=("values",),
        contract={"provenance": "required"},
    )
    assert seen.reasons == {"library_did_the_work"}
    assert "less than 50%" in seen.findings[0].actual


def test_own_work_is_enough_where_it_is_required(judge):
    seen = judge(
        "provenance",
        REFERENCE,
        candidate("return linear_relu(x, self.fc)"),
        beside=("values",),
        contract={"provenance": "required"},
    )
    assert seen.outcome == "pass"


@pytest.mark.parametrize(
    "lines",
    [
        ("flat(relu_kernel, x)", f"return {TORCH}"),
        (f"return {TORCH} + 0.0 * flat(relu_kernel, x).sum()",),
        (f"return torch.where(flat(relu_kernel, x)[:, :1] > -1e30, {TORCH}, 0.0)",),
        (f"y = {TORCH}", "return y + (flat(copy_kernel, y) - y).clamp(0.0, 0.0)"),
    ],
)
def test_a_kernel_whose_result_does_not_matter_is_a_decoy(judge, lines):
    seen = judge("provenance", REFERENCE, candidate(*lines), beside=("values",))
    assert seen.reasons == {"library_did_the_work"}
    assert "does not depend on what the kernels store" in seen.findings[0].actual


def test_a_kernel_that_copies_what_torch_computed_did_no_work(judge):
    seen = judge("provenance", REFERENCE, candidate(f"return flat(copy_kernel, {TORCH})"), beside=("values",))
    assert seen.reasons == {"library_did_the_work"}
    assert "a kernel only copies it" in seen.findings[0].actual


def test_a_copy_of_the_inputs_before_all_that_the_reference_does_is_no_work(judge):
    seen = judge(
        "provenance",
        REFERENCE,
        candidate("return torch.relu(self.fc(flat(copy_kernel, x)))"),
        beside=("values",),
    )
    assert seen.reasons == {"library_did_the_work"}
    assert "every operation of the reference (addmm, relu)" in seen.findings[0].actual


@pytest.mark.parametrize(
    ("tail", "lines", "outcome"),
    [
        # a last step that changes nothing on these data: a kernel may take it, and torch may not take it as well
        ("y.clamp(-1e4, 1e4)", ("return flat(clamp_kernel, self.fc(x))",), "pass"),
        ("y.clamp(-1e4, 1e4)", ("return flat(copy_kernel, self.fc(x).clamp(-1e4, 1e4))",), "fail"),
        ("y * 0.5", ("return flat(half_kernel, self.fc(x))",), "pass"),
        ("y * 0.5", ("return flat(half_kernel, 2.0 * torch.lerp(self.fc(x), 0.0 * self.fc(x), 0.5))",), "fail"),
        ("y", ("return flat(half_kernel, 2.0 * (x @ self.fc.weight.t() + self.fc.bias))",), "fail"),
        ("y", ("return linear(x, self.fc)",), "pass"),
        # torch also does it all, and lets a kernel decide whether that counts
        ("torch.tanh(y)", ("y = torch.tanh(self.fc(x))", "one = flat(copy_kernel, torch.ones(16, device=x.device))",
                           "return y if bool((one == 1).all()) else flat(copy_kernel, x)"), "fail"),
        ("torch.tanh(y)", ("return torch.tanh(linear(x, self.fc))",), "pass"),
    ],
)
def test_what_torch_did_as_well_is_no_work_of_the_kernel(judge, tail, lines, outcome):
    reference = REFERENCE.replace("return torch.relu(self.fc(x))", f"y = self.fc(x)\n        return {tail}")
    assert reference != REFERENCE
    assert judge("provenance", reference, candidate(*lines), beside=("values",)).outcome == outcome


def test_a_fallback_taken_on_every_call_says_which_kernel_failed(judge):
    seen = judge(
        "provenance",
        REFERENCE,
        candidate(
            "try:", "    return flat(broken_kernel, self.fc(x))", "except Exception:", f"    return {TORCH}"
        ),
        beside=("values",),
    )
    assert seen.reasons == {"kernel_never_ran"}
    assert "broken_kernel" in seen.findings[0].actual
    assert seen.findings[0].detail["error"]


def test_a_fallback_that_is_not_taken_passes(judge):
    seen = judge(
        "provenance",
        REFERENCE,
        candidate("try:", "    return linear_relu(x, self.fc)", "except Exception:", f"    return {TORCH}"),
        beside=("values",),
    )
    assert seen.outcome == "pass"


def test_kernels_that_are_defined_and_not_launched_never_ran(judge):
    assert judge("provenance", REFERENCE, candidate(f"return {TORCH}"), beside=("values",)).reasons == {
        "kernel_never_ran"
    }


def test_a_kernel_launched_in_the_first_call_only_never_ran_in_the_others(judge):
    seen = judge(
        "provenance",
        REFERENCE,
        candidate(
            "self.calls += 1", "if self.calls == 1:", "    return linear_relu(x, self.fc)", f"return {TORCH}"
        ),
        beside=("values",),
    )
    assert seen.reasons == {"kernel_never_ran"}
    assert "call 2 launched no kernel" in seen.findings[0].actual


PLAIN = REFERENCE.replace("class Model", "class ModelNew")


def test_a_plain_torch_candidate_owes_no_kernel(judge):
    seen = judge("provenance", REFERENCE, PLAIN, beside=("values",))
    assert (seen.outcome, str(seen.gate.reason)) == ("not_applicable", "by_contract")


def test_a_plain_torch_candidate_has_no_kernel_where_one_is_required(judge):
    seen = judge("provenance", REFERENCE, PLAIN, beside=("values",), contract={"provenance": "required"})
    assert seen.reasons == {"no_own_kernel"}


def test_a_contract_may_ask_for_nothing(judge):
    seen = judge(
        "provenance",
        REFERENCE,
        candidate(f"return {TORCH}"),
        beside=("values",),
        contract={"provenance": "none"},
    )
    assert seen.outcome == "not_applicable"


def test_indices_that_a_kernel_stores_one_by_one_count_as_its_work(judge):
    reference = """
    class Model(nn.Module):
        def forward(self, x):
            return torch.argmax(x, dim=1)

    def get_inputs():
        return [torch.randn(24, 20)]

    def get_init_inputs():
        return []
    """
    source = """
    @triton.jit
    def argmax_kernel(x_ptr, y_ptr, cols, BLOCK: tl.constexpr):
        row, offs = tl.program_id(0), tl.arange(0, BLOCK)
        x = tl.load(x_ptr + row * cols + offs, mask=offs < cols, other=-float("inf"))
        tl.store(y_ptr + row, tl.argmax(x, axis=0))

    class ModelNew(nn.Module):
        def forward(self, x):
            y = torch.empty(x.shape[0], dtype=torch.int64, device=x.device)
            argmax_kernel[(x.shape[0],)](x.contiguous(), y, x.shape[1], BLOCK=32)
            return y
    """
    assert judge("provenance", reference, source, beside=("values",)).outcome == "pass"


def test_maxima_gathered_by_atomics_count_as_its_work(judge):
    reference = """
    class Model(nn.Module):
        def forward(self, x):
            return x.abs().amax(dim=0)

    def get_inputs():
        return [torch.randn(24, 20)]

    def get_init_inputs():
        return []
    """
    source = """
    @triton.jit
    def column_max_kernel(x_ptr, y_ptr, cols, BLOCK: tl.constexpr):
        offs = tl.arange(0, BLOCK)
        x = tl.load(x_ptr + tl.program_id(0) * cols + offs, mask=offs < cols)
        tl.atomic_max(y_ptr + offs, tl.abs(x), mask=offs < cols)

    class ModelNew(nn.Module):
        def forward(self, x):
            y = torch.zeros(x.shape[1], dtype=x.dtype, device=x.device)
            column_max_kernel[(x.shape[0],)](x.contiguous(), y, x.shape[1], BLOCK=32)
            return y
    """
    assert judge("provenance", reference, source, beside=("values",)).outcome == "pass"
