"""MEM-02: what a candidate returns does not depend on memory that nobody wrote."""

from __future__ import annotations

import pytest
import torch

from assay.gates.initialization import Initialization
from assay.run import ways
from assay.run.instruments import SETTLED, fill_of
from assay.run.poison import FreshMemory

REFERENCE = """
class Model(nn.Module):
    def forward(self, x):
        return torch.relu(x).sum(dim=1)

ROWS = 12
COLS = 40

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
    x = tl.load(x_ptr + row * cols + offs, mask=offs < cols, other=0.0)
    total = tl.sum(tl.where(x < 0, 0.0, x), axis=0)
    STORE

class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        y = ALLOCATE
        row_sum_kernel[(x.shape[0],)](x, y, x.shape[1], BLOCK=triton.next_power_of_2(x.shape[1]))
        return y
"""
FRESH = "torch.empty(x.shape[0], dtype=x.dtype, device=x.device)"


def candidate(store: str, allocate: str = FRESH) -> str:
    return KERNEL.replace("STORE", store).replace("ALLOCATE", allocate)


def test_a_store_that_is_skipped_for_some_rows_is_found(judge):
    seen = judge("initialization", REFERENCE, candidate("tl.store(y_ptr + row, total, mask=total > 0)"))
    assert seen.reasons == {"uninitialised"}
    assert seen.findings[0].tolerance_free
    assert "0xff" in seen.findings[0].actual


def test_a_store_for_every_row_passes(judge):
    seen = judge("initialization", REFERENCE, candidate("tl.store(y_ptr + row, total)"))
    assert (seen.outcome, seen.findings) == ("pass", [])


def test_a_skipped_store_into_zeros_passes(judge):
    seen = judge(
        "initialization",
        REFERENCE,
        candidate("tl.store(y_ptr + row, total, mask=total > 0)", FRESH.replace("empty", "zeros")),
    )
    assert seen.outcome == "pass"


@pytest.mark.parametrize(
    "allocate",
    [
        "torch.empty_like(x[:, 0], memory_format=torch.contiguous_format)",
        "x.new_empty(x.shape[0])",
        "torch.empty_strided((x.shape[0],), (1,), dtype=x.dtype, device=x.device)",
        "torch.empty(0, dtype=x.dtype, device=x.device).resize_(x.shape[0])",
        "torch.Tensor(x.shape[0])",
        "x.new_empty_strided((x.shape[0],), (1,))",
    ],
)
def test_atomics_into_fresh_memory_are_found_however_it_was_allocated(judge, allocate):
    seen = judge("initialization", REFERENCE, candidate("tl.atomic_add(y_ptr + row, total)", allocate))
    assert seen.reasons == {"uninitialised"}


def test_a_buffer_of_the_constructor_counts_as_fresh_memory(judge):
    source = """
    class ModelNew(nn.Module):
        def __init__(self):
            super().__init__()
            self.offset = torch.empty(1)

        def forward(self, x):
            return torch.relu(x).sum(dim=1) + 0.0 * self.offset
    """
    assert judge("initialization", REFERENCE, source).reasons == {"uninitialised"}


def test_scratch_that_is_written_before_it_is_read_passes(judge):
    source = """
    class ModelNew(nn.Module):
        def forward(self, x):
            scratch = torch.empty_like(x)
            torch.clamp(x, min=0.0, out=scratch)
            result = torch.empty(0, dtype=x.dtype, device=x.device)
            return torch.sum(scratch, dim=1, out=result)
    """
    assert judge("initialization", REFERENCE, source).outcome == "pass"


def test_an_index_from_fresh_memory_that_crashes_is_a_finding(judge):
    source = """
    class ModelNew(nn.Module):
        def forward(self, x):
            order = torch.empty(x.shape[0], dtype=torch.int64, device=x.device)
            if int(order[0]) > 1 << 40:
                raise IndexError("no such row")
            return torch.relu(x).sum(dim=1)
    """
    assert judge("initialization", REFERENCE, source).reasons == {"uninitialised"}


def test_a_candidate_that_does_not_repeat_itself_is_undecided(judge):
    source = """
    import time

    class ModelNew(nn.Module):
        def forward(self, x):
            return torch.relu(x).sum(dim=1) + 1e-6 * (time.perf_counter_ns() % 1000)
    """
    seen = judge("initialization", REFERENCE, source)
    assert (seen.outcome, seen.findings) == ("inconclusive", [])
    assert "not_repeatable" in seen.gate.undecided


def test_a_candidate_that_repeats_itself_only_now_and_then_is_undecided(judge):
    # two calls in three agree: one repetition would often say that it is steady
    source = """
    import os

    class ModelNew(nn.Module):
        def forward(self, x):
            return torch.relu(x).sum(dim=1) + float(os.urandom(1)[0] % 3 == 0)
    """
    for _ in range(3):
        seen = judge("initialization", REFERENCE, source, beside=("repeatability",), tier="standard")
        assert (seen.outcome, seen.findings) == ("inconclusive", [])


def test_without_a_control_a_difference_decides_nothing(judge, monkeypatch):
    """Whoever never saw the candidate repeat itself cannot say that a difference came from memory."""
    source = candidate("tl.store(y_ptr + row, total, mask=total > 0)")
    assert judge("initialization", REFERENCE, source).outcome == "fail"
    planned = Initialization.plan
    monkeypatch.setattr(
        Initialization, "plan", lambda gate, ctx: [p for p in planned(gate, ctx) if p.kind != "control"]
    )
    seen = judge("initialization", REFERENCE, source)
    assert (seen.outcome, seen.findings, set(seen.gate.undecided)) == ("inconclusive", [], {"budget"})


def test_what_is_read_from_fresh_memory_is_the_same_every_time(judge):
    skips = candidate("tl.store(y_ptr + row, total, mask=row % 2 == 0)")
    seen = [judge("values", REFERENCE, skips).findings[0] for _ in range(2)]
    assert seen[0].actual == seen[1].actual == "0.7470588088035583"


def test_fresh_memory_is_left_alone_on_a_gpu_and_where_a_probe_says_so():
    assert fill_of({}, emulated=True) == SETTLED
    assert fill_of({"fresh": "ff"}, emulated=False) == 0xFF
    assert fill_of({"fresh": "none"}, emulated=True) is None
    assert fill_of({}, emulated=False) is None


def test_another_thread_finds_fresh_memory_filled_too():
    with FreshMemory(SETTLED):
        out = ways.take("thread", None, lambda: torch.empty(8), [])
    assert out.untyped_storage().tolist() == [SETTLED] * 32
