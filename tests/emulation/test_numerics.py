"""Conversions and arithmetic against torch, over many values."""

import itertools

import pytest
import torch
import triton
import triton.language as tl


@triton.jit
def cast_kernel(x_ptr, y_ptr, N: tl.constexpr):
    o = tl.arange(0, N)
    tl.store(y_ptr + o, tl.load(x_ptr + o).to(y_ptr.dtype.element_ty))


@triton.jit
def rtz_kernel(x_ptr, y_ptr, N: tl.constexpr):
    o = tl.arange(0, N)
    tl.store(y_ptr + o, tl.load(x_ptr + o).to(y_ptr.dtype.element_ty, fp_downcast_rounding="rtz"))


@triton.jit
def arithmetic_kernel(x_ptr, y_ptr, r_ptr, N: tl.constexpr):
    o = tl.arange(0, N)
    x = tl.load(x_ptr + o)
    y = tl.load(y_ptr + o)
    tl.store(r_ptr + o, x + y)
    tl.store(r_ptr + N + o, x - y)
    tl.store(r_ptr + 2 * N + o, x * y)
    tl.store(r_ptr + 3 * N + o, tl.where(x < y, x, y))


def cast(x, dtype):
    y = torch.empty(x.shape, dtype=dtype)
    cast_kernel[(1,)](x, y, N=x.numel())
    return y


def same(a, b):
    return torch.equal(a.nan_to_num(nan=7.0), b.nan_to_num(nan=7.0)) and torch.equal(a.isnan(), b.isnan())


FLOATS = [torch.float16, torch.bfloat16, torch.float32, torch.float64]


@pytest.mark.parametrize(("src", "dst"), list(itertools.permutations(FLOATS, 2)))
def test_float_conversions_round_to_nearest_even(src, dst):
    x = torch.cat([torch.randn(4080), torch.tensor([float("nan"), float("inf"), -float("inf"), 0.0, -0.0])])
    x = torch.cat(
        [x, torch.tensor([1e-8, 6e-5, 1e-40, 65504.0, 65519.0, 65520.0, 1e38, 3.4e38, 1.0, -1.0, 2.0])]
    )
    x = x.to(src)
    if (src, dst) == (torch.float64, torch.bfloat16):
        # torch goes through float32 and rounds twice, which can differ only at ties
        assert (cast(x, dst).float() - x.to(dst).float()).abs().nan_to_num(0).max() <= 2**-7
        return
    assert same(cast(x, dst), x.to(dst))


def test_double_to_bfloat16_rounds_once():
    # Just above a tie of bfloat16, by less than float32 resolves: two roundings would give 1.0.
    x = torch.full((2,), 1 + 2**-8 + 2**-40, dtype=torch.float64)
    assert cast(x, torch.bfloat16).tolist() == [1.0078125, 1.0078125]


def test_all_bfloat16_values_survive_float32():
    bits = torch.arange(65536, dtype=torch.int32).to(torch.uint16)
    x = bits.view(torch.bfloat16)
    y = cast(cast(x, torch.float32), torch.bfloat16)
    assert same(y, x)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_rounding_toward_zero(dtype):
    x = torch.randn(1024) * 10
    y = torch.empty(1024, dtype=dtype)
    rtz_kernel[(1,)](x, y, N=1024)
    assert (y.float().abs() <= x.abs()).all()
    assert ((y.float() - x).abs() <= x.abs() * torch.finfo(dtype).eps).all()


@pytest.mark.parametrize("dtype", [torch.float8_e5m2, torch.float8_e4m3fn])
def test_float8_values_and_saturation(dtype):
    bits = torch.arange(256, dtype=torch.int32).to(torch.uint8)
    x = bits.view(dtype)
    assert same(cast(x, torch.float32), x.to(torch.float32))
    finite = x.float().isfinite()
    assert torch.equal(cast(x.float(), dtype).view(torch.uint8)[finite], bits[finite])
    top = torch.finfo(dtype).max
    assert cast(torch.tensor([1e9, -1e9]), dtype).float().tolist() == [top, -top]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_float_arithmetic_is_that_of_torch(dtype):
    x, y = torch.randn(512).to(dtype), torch.randn(512).to(dtype)
    x[:3] = torch.tensor([float("nan"), float("inf"), -0.0])
    r = torch.empty(4, 512, dtype=dtype)
    arithmetic_kernel[(1,)](x, y, r, N=512)
    expected = torch.stack([x + y, x - y, x * y, torch.where(x < y, x, y)])
    assert same(r, expected)


@pytest.mark.parametrize("dtype", [torch.int8, torch.int16, torch.int32, torch.int64, torch.uint8])
def test_integer_arithmetic_wraps(dtype):
    info = torch.iinfo(dtype)
    x = torch.randint(info.min, info.max, (512,), dtype=dtype)
    y = torch.randint(info.min, info.max, (512,), dtype=dtype)
    r = torch.empty(4, 512, dtype=dtype)
    arithmetic_kernel[(1,)](x, y, r, N=512)
    assert torch.equal(r, torch.stack([x + y, x - y, x * y, torch.where(x < y, x, y)]))


@triton.jit
def offset_kernel(out_ptr, row, n):
    tl.store(out_ptr, row * n)
    tl.store(out_ptr + 1, row.to(tl.int64) * n)
    tl.store(out_ptr + 2, (tl.program_id(0) + row) * n)


def test_scalar_products_wrap_at_32_bits():
    out = torch.zeros(3, dtype=torch.int64)
    offset_kernel[(1,)](out, 70_000, 65_536)
    wrapped = (70_000 * 65_536 + 2**31) % 2**32 - 2**31
    assert out.tolist() == [wrapped, 70_000 * 65_536, wrapped]


@triton.jit
def half_sum_kernel(x_ptr, r_ptr, N: tl.constexpr):
    x = tl.load(x_ptr + tl.arange(0, N))
    tl.store(r_ptr, tl.sum(x, axis=0).to(tl.float32))
    tl.store(r_ptr + 1, tl.sum(x.to(tl.float32), axis=0))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_sums_are_made_in_the_type_of_the_input(dtype):
    x = torch.full((2048,), 1.0 + torch.finfo(dtype).eps, dtype=dtype)
    r = torch.zeros(2)
    half_sum_kernel[(1,)](x, r, N=2048)
    assert r[1] == 2048 * (1.0 + torch.finfo(dtype).eps)
    assert r[0] in (2048.0, r[1].to(dtype).float())
    x = torch.full((1024,), 100.0, dtype=torch.float16)
    half_sum_kernel[(1,)](x, r, N=1024)
    assert r[0] == float("inf")
    assert r[1] == 102_400


@triton.jit
def float_argument_kernel(x_ptr, r_ptr, scale, N: tl.constexpr):
    o = tl.arange(0, N)
    x = tl.load(x_ptr + o)
    tl.store(r_ptr + o, (x * scale).to(tl.float32))
    tl.store(r_ptr + N + o, (x * 0.1).to(tl.float32))


def test_float_arguments_are_float32_and_literals_are_weak():
    x = torch.full((4,), 3.0, dtype=torch.float16)
    r = torch.zeros(2, 4)
    float_argument_kernel[(1,)](x, r, 0.1, N=4)
    assert r[0, 0] == torch.tensor(3.0) * torch.tensor(0.1)
    assert r[1, 0] == torch.tensor(3.0, dtype=torch.float16) * torch.tensor(0.1, dtype=torch.float16)
