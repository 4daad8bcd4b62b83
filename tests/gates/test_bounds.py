"""MEM-01: no read or write outside the buffers given."""

from __future__ import annotations

import pytest

REFERENCE = """
class Model(nn.Module):
    def forward(self, x):
        return x * 2.0

ROWS = 4
COLS = 64

def get_inputs():
    return [torch.randn(ROWS, COLS)]

def get_init_inputs():
    return []
"""

KERNEL = """
@triton.jit
def double_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    BODY

class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        y = torch.empty_like(x)
        double_kernel[(triton.cdiv(x.numel(), 64),)](x, y, x.numel(), BLOCK=64)
        return y
"""


def candidate(*lines: str) -> str:
    return KERNEL.replace("BODY", "\n    ".join(lines))


def test_a_store_past_the_tail_names_kernel_line_and_distance(judge):
    seen = judge(
        "bounds",
        REFERENCE,
        candidate("x = tl.load(x_ptr + offs, mask=offs < n)", "tl.store(y_ptr + offs, x * 2.0)"),
    )
    assert seen.reasons == {"out_of_bounds_write"}
    found = seen.findings[0]
    assert "double_kernel, candidate.py:" in found.actual
    assert "past the end of y_ptr" in found.actual
    assert found.attested_by == "worker"


def test_a_load_past_the_tail_is_found_although_the_result_is_right(judge):
    seen = judge(
        "bounds",
        REFERENCE,
        candidate("x = tl.load(x_ptr + offs)", "tl.store(y_ptr + offs, x * 2.0, mask=offs < n)"),
    )
    assert seen.reasons == {"out_of_bounds_read"}


def test_a_load_before_the_start_is_found(judge):
    seen = judge(
        "bounds",
        REFERENCE,
        candidate(
            "before = tl.load(x_ptr + offs - 1, mask=offs < n)",
            "x = tl.load(x_ptr + offs, mask=offs < n)",
            "tl.store(y_ptr + offs, tl.where(before == 77.0, 0.0, x * 2.0), mask=offs < n)",
        ),
    )
    assert seen.reasons == {"out_of_bounds_read"}
    assert "before the start of x_ptr" in seen.findings[0].actual


def test_masked_tails_pass(judge):
    seen = judge(
        "bounds",
        REFERENCE,
        candidate(
            "x = tl.load(x_ptr + offs, mask=offs < n)", "tl.store(y_ptr + offs, x * 2.0, mask=offs < n)"
        ),
    )
    assert (seen.outcome, seen.findings) == ("pass", [])


def test_block_pointers_with_boundary_checks_pass(judge):
    seen = judge(
        "bounds",
        REFERENCE,
        candidate(
            "start = tl.program_id(0) * BLOCK",
            "source = tl.make_block_ptr(x_ptr, (n,), (1,), (start,), (BLOCK,), (0,))",
            "target = tl.make_block_ptr(y_ptr, (n,), (1,), (start,), (BLOCK,), (0,))",
            "tl.store(target, tl.load(source, boundary_check=(0,)) * 2.0, boundary_check=(0,))",
        ),
    )
    assert seen.outcome == "pass"


def test_views_into_a_larger_allocation_and_flips_pass(judge):
    source = """
    @triton.jit
    def double_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
        offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + offs, mask=offs < n)
        tl.store(y_ptr + offs, x * 2.0, mask=offs < n)

    class ModelNew(nn.Module):
        def forward(self, x):
            wide = torch.empty(2 * x.numel() + 3, dtype=x.dtype, device=x.device)
            scratch = wide[3:3 + x.numel()].view(x.shape)
            scratch.copy_(x.flip(0))
            y = wide[3 + x.numel():].view(x.shape)
            double_kernel[(triton.cdiv(x.numel(), 64),)](scratch, y, x.numel(), BLOCK=64)
            return y.flip(0)
    """
    assert judge("bounds", REFERENCE, source).outcome == "pass"


@pytest.mark.parametrize(("target", "offset"), [("y", "y.numel() * 4"), ("y", "-3"), ("scratch", "64")])
def test_a_write_through_an_address_into_the_fence_of_an_allocation_is_found(judge, target, offset):
    source = f"""
    import ctypes

    class ModelNew(nn.Module):
        def forward(self, x):
            scratch = torch.zeros(16, dtype=x.dtype, device=x.device)
            y = torch.empty(x.shape, dtype=x.dtype, device=x.device)
            ctypes.memset({target}.data_ptr() + {offset}, 17, 2)
            return y.copy_(x) * 2.0
    """
    seen = judge("bounds", REFERENCE, source)
    assert seen.reasons == {"out_of_bounds_write"}
    assert "of an allocation float32" in seen.findings[0].actual


def test_a_write_through_an_address_past_an_input_is_attested_by_the_judge(judge):
    source = """
    import ctypes

    class ModelNew(nn.Module):
        def forward(self, x):
            ctypes.memset(x.data_ptr() + x.numel() * 4, 17, 4)
            return x * 2.0
    """
    seen = judge("bounds", REFERENCE, source)
    assert {f.attested_by for f in seen.findings} == {"judge"}
    assert seen.reasons == {"out_of_bounds_write"}


def test_a_read_through_an_address_shows_in_the_two_paddings(judge):
    source = """
    import ctypes

    class ModelNew(nn.Module):
        def forward(self, x):
            past = ctypes.c_uint8.from_address(x.data_ptr() + x.numel() * 4).value
            return x * 2.0 + (0.0 if past == 255 else 1e-3)
    """
    seen = judge("bounds", REFERENCE, source)
    assert seen.reasons == {"out_of_bounds_read"}
    assert "by the padding" in seen.findings[0].actual


def test_unwritten_elements_are_no_read_outside(judge):
    source = """
    class ModelNew(nn.Module):
        def forward(self, x):
            return torch.empty_like(x)
    """
    assert judge("bounds", REFERENCE, source).findings == []
