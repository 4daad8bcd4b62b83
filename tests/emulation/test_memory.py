"""Each active lane of each access is checked against the buffers of its launch."""

import inspect

import pytest
import torch
import triton
import triton.language as tl


@triton.jit
def copy_kernel(x_ptr, y_ptr, n, shift, BLOCK: tl.constexpr):
    o = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = o < n
    x = tl.load(x_ptr + o + shift, mask=mask, other=0.0)  # the load
    tl.store(y_ptr + o, x, mask=mask)  # the store


def line_of(text):
    lines, first = inspect.getsourcelines(copy_kernel.fn)
    return first + next(i for i, line in enumerate(lines) if text in line)


def test_a_right_kernel_has_no_faults(emulation):
    x, y = torch.randn(10), torch.zeros(10)
    copy_kernel[(2,)](x, y, 10, 0, BLOCK=8)
    assert torch.equal(x, y)
    assert emulation.access_faults() == []


def test_read_past_the_end(emulation):
    x, y = torch.randn(10), torch.zeros(16)
    copy_kernel[(2,)](x, y, 16, 0, BLOCK=8)
    (fault,) = emulation.access_faults()
    assert (fault.kernel, fault.kind, fault.line) == ("copy_kernel", "read", line_of("# the load"))
    assert fault.file == copy_kernel.fn.__code__.co_filename
    assert (fault.argument, fault.argument_name) == (0, "x_ptr")
    assert fault.distance == 4
    assert fault.lanes == 6
    assert fault.launch == 0
    assert fault.program == (1, 0, 0)
    assert torch.equal(y[:10], x)
    assert y[10:].isnan().all()


def test_read_before_the_start(emulation):
    x, y = torch.randn(8), torch.zeros(8)
    copy_kernel[(1,)](x, y, 8, -3, BLOCK=8)
    (fault,) = emulation.access_faults()
    assert fault.kind == "read"
    assert fault.distance == -12
    assert fault.lanes == 3
    assert torch.equal(y[3:], x[:5])


def test_write_past_the_end_changes_nothing_there(emulation):
    x, whole = torch.ones(16), torch.zeros(24)
    y = whole[:10]
    emulation.memory.declare(y)
    copy_kernel[(2,)](x, y, 16, 0, BLOCK=8)
    (fault,) = emulation.access_faults()
    assert (fault.kind, fault.argument_name, fault.line) == ("write", "y_ptr", line_of("# the store"))
    assert fault.lanes == 6
    assert whole.tolist() == [1.0] * 10 + [0.0] * 14
    emulation.memory.forget(y)
    emulation.reset()
    copy_kernel[(2,)](x, y, 16, 0, BLOCK=8)
    assert emulation.access_faults() == []


def test_views_may_reach_their_whole_storage(emulation):
    x = torch.randn(20)
    y = torch.zeros(10)
    copy_kernel[(2,)](x[5:15], y, 10, -5, BLOCK=8)
    assert torch.equal(y, x[:10])
    assert emulation.access_faults() == []


def test_masked_lanes_may_point_anywhere(emulation):
    x, y = torch.randn(3), torch.zeros(3)
    copy_kernel[(4,)](x, y, 3, 0, BLOCK=64)
    assert torch.equal(x, y)
    assert emulation.access_faults() == []


def test_one_record_per_line_and_direction(emulation):
    x, y = torch.randn(4), torch.zeros(4)
    for _ in range(3):
        copy_kernel[(2,)](x, y, 16, 0, BLOCK=8)
    faults = emulation.access_faults()
    assert [f.kind for f in faults] == ["read", "write"]
    assert [f.lanes for f in faults] == [36, 36]
    assert [f.launch for f in faults] == [0, 0]
    emulation.reset()
    assert emulation.access_faults() == []


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64, torch.int32, torch.uint8])
def test_poison_is_all_bits_set(emulation, dtype):
    x, y = torch.zeros(4, dtype=dtype), torch.zeros(8, dtype=dtype)
    copy_kernel[(1,)](x, y, 8, 0, BLOCK=8)
    poison = y[4:].view(torch.uint8)
    assert poison.eq(255).all()
    emulation.memory.poison = 0
    copy_kernel[(1,)](x, y, 8, 0, BLOCK=8)
    assert y.eq(0).all()


@triton.jit
def undefined_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    o = tl.arange(0, BLOCK)
    tl.store(y_ptr + o, tl.load(x_ptr + o, mask=o < n))


def test_lanes_without_other_can_be_poisoned(emulation):
    x, y = torch.ones(4), torch.zeros(4)
    undefined_kernel[(1,)](x, y, 2, BLOCK=4)
    assert y.tolist() == [1.0, 1.0, 0.0, 0.0]
    emulation.memory.undefined = 0xFF
    undefined_kernel[(1,)](x, y, 2, BLOCK=4)
    assert y[:2].tolist() == [1.0, 1.0]
    assert y[2:].isnan().all()
    assert emulation.access_faults() == []


@triton.jit
def atomic_kernel(x_ptr, n, BLOCK: tl.constexpr):
    o = tl.arange(0, BLOCK)
    tl.atomic_add(x_ptr + o, 1.0, mask=o < n)
    tl.atomic_max(x_ptr + o, 0.5, mask=o < n)


def test_atomics_are_checked(emulation):
    whole = torch.zeros(8)
    emulation.memory.declare(whole[:4])
    atomic_kernel[(1,)](whole[:4], 6, BLOCK=8)
    faults = emulation.access_faults()
    assert {f.kind for f in faults} == {"atomic"}
    assert faults[0].lanes == 2
    assert whole.tolist() == [1.0] * 4 + [0.0] * 4


@triton.jit
def unchecked_block_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    p = tl.make_block_ptr(x_ptr, (n,), (1,), (0,), (BLOCK,), (0,))
    q = tl.make_block_ptr(y_ptr, (n,), (1,), (0,), (BLOCK,), (0,))
    tl.store(q, tl.load(p), boundary_check=(0,))


def test_block_pointers_without_boundary_check(emulation):
    x, y = torch.ones(5), torch.zeros(5)
    unchecked_block_kernel[(1,)](x, y, 5, BLOCK=8)
    (fault,) = emulation.access_faults()
    assert fault.kind == "read"
    assert fault.lanes == 3
    assert y.tolist() == [1.0] * 5


@triton.jit
def helper(p, o):
    return tl.load(p + o)  # inside the helper


@triton.jit
def calling_kernel(x_ptr, y_ptr, BLOCK: tl.constexpr):
    o = tl.arange(0, BLOCK)
    tl.store(y_ptr + o, helper(x_ptr, o))


def test_the_line_is_that_of_the_device_function(emulation):
    calling_kernel[(1,)](torch.ones(4), torch.zeros(8), BLOCK=8)
    (fault,) = emulation.access_faults()
    first = inspect.getsourcelines(helper.fn)[1]
    assert fault.line == first + 2
    assert fault.kernel == "calling_kernel"


@triton.jit
def table_kernel(table_ptr, n, BLOCK: tl.constexpr):
    p = tl.load(table_ptr).to(tl.pointer_type(tl.float32))
    o = tl.arange(0, BLOCK)
    tl.store(p + o, 1.0, mask=o < n)


def test_addresses_the_candidate_took_are_legal_while_they_live(emulation):
    x = torch.zeros(6)
    table = torch.tensor([x.data_ptr()])
    table_kernel[(1,)](table, 6, BLOCK=8)
    assert x.tolist() == [1.0] * 6
    assert emulation.access_faults() == []
    table_kernel[(1,)](table, 8, BLOCK=8)
    (fault,) = emulation.access_faults()
    assert fault.argument is None
    assert fault.lanes == 2
    emulation.reset()
    del x
    table_kernel[(1,)](table, 6, BLOCK=8)
    (fault,) = emulation.access_faults()
    assert fault.lanes == 6


def test_null_and_foreign_addresses(emulation):
    table_kernel[(1,)](torch.zeros(1, dtype=torch.int64), 4, BLOCK=8)
    (fault,) = emulation.access_faults()
    assert (fault.kind, fault.lanes) == ("write", 4)


@triton.jit
def misaligned_kernel(x_ptr, y_ptr, BLOCK: tl.constexpr, SHIFT: tl.constexpr):
    p = (x_ptr.to(tl.pointer_type(tl.int8)) + SHIFT).to(tl.pointer_type(tl.int32))
    o = tl.arange(0, BLOCK)
    tl.store(y_ptr + o, tl.load(p + o))


@pytest.mark.parametrize("shift", [2, 4])
def test_reinterpreted_pointers_read_the_right_bytes(emulation, shift):
    x = torch.arange(20, dtype=torch.int16)
    y = torch.zeros(4, dtype=torch.int32)
    misaligned_kernel[(1,)](x, y, BLOCK=4, SHIFT=shift)
    assert torch.equal(y, x[shift // 2 : shift // 2 + 8].clone().view(torch.int32))
    kinds = [f.kind for f in emulation.access_faults()]
    assert kinds == (["misaligned"] if shift == 2 else [])


def test_empty_tensors(emulation):
    x, y = torch.ones(0), torch.zeros(0)
    copy_kernel[(1,)](x, y, 0, 0, BLOCK=8)
    assert emulation.access_faults() == []
    copy_kernel[(1,)](x, y, 1, 0, BLOCK=8)
    assert [f.kind for f in emulation.access_faults()] == ["read", "write"]
