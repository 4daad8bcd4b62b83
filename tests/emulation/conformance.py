"""Small kernels whose answers on a GPU are recorded and compared with those of emulation.

Run on a machine with a GPU, this file writes the record:

    python conformance.py recorded.pt

`answers(device)` gives ``{case: {name: tensor}}``; a case that raises gives its error's type.
"""

import sys

import torch
import triton
import triton.language as tl
from triton.language.extra.cuda import libdevice

N = 128

INTS = [torch.int8, torch.uint8, torch.int16, torch.int32, torch.uint32, torch.int64, torch.uint64]
FLOATS = [torch.float16, torch.bfloat16, torch.float32, torch.float64]
FP8 = [torch.float8_e5m2, torch.float8_e4m3fn]


def floats(seed=0):
    """128 float64 values: specials, halves, large, tiny, random."""
    generator = torch.Generator().manual_seed(seed)
    inf, nan = float("inf"), float("nan")
    special = [
        0.0,
        -0.0,
        1.0,
        -1.0,
        inf,
        -inf,
        nan,
        0.5,
        -0.5,
        1.5,
        2.5,
        -2.5,
        3.0,
        65504.0,
        65520.0,
        -65520.0,
    ]
    special += [
        448.0,
        464.0,
        480.0,
        57344.0,
        61440.0,
        1e38,
        -1e38,
        1e-40,
        6e-8,
        3e-8,
        127.5,
        128.0,
        255.5,
        256.0,
    ]
    special += [
        -128.5,
        -129.0,
        32767.6,
        32768.0,
        2147483520.0,
        2147483648.0,
        -2147483648.0,
        -3e9,
        4294967040.0,
        4.3e9,
    ]
    special += [
        9.2e18,
        -9.3e18,
        1.8e19,
        1e300,
        1.00390625,
        1.01171875,
        1.0 + 2**-9,
        1.0 + 3 * 2**-9,
        1 + 2**-25,
    ]
    rest = torch.randn(N - len(special), generator=generator, dtype=torch.float64)
    scale = 10 ** (torch.rand(len(rest), generator=generator, dtype=torch.float64) * 8 - 4)
    return torch.cat([torch.tensor(special, dtype=torch.float64), rest * scale])


def ints(dtype, seed=0):
    """128 integers over the whole range of the dtype, 0 and extremes included."""
    info = torch.iinfo(dtype)
    generator = torch.Generator().manual_seed(seed)
    special = [0, 1, 2, 3, 7, info.max, info.max - 1, info.min, info.min + 1, 5, 100]
    if dtype.is_signed:
        special += [-1, -2, -3, -7, -100]
    low, high = max(info.min, -(2**62)), min(info.max, 2**62)
    rest = torch.randint(low, high, (N - len(special),), generator=generator, dtype=torch.int64)
    small = torch.randint(max(info.min, -50), 50, (N - len(special),), generator=generator)
    rest = torch.where(torch.arange(len(rest)) % 2 == 0, rest, small)
    values = special + rest.tolist()
    wrapped = [v - (1 << 64) if v >= 1 << 63 else v for v in values]
    return torch.tensor(wrapped, dtype=torch.int64).to(dtype)


def values(dtype, seed=0):
    if dtype in FP8:
        # How torch converts what lies beyond the range differs between its releases.
        top = torch.finfo(dtype).max
        return floats(seed).nan_to_num(0.0, top, -top).clamp(-top, top).float().to(dtype)
    return floats(seed).to(dtype) if dtype.is_floating_point else ints(dtype, seed)


def name(dtype):
    return str(dtype).removeprefix("torch.")


@triton.jit
def cast_kernel(x_ptr, y_ptr, N: tl.constexpr):
    o = tl.arange(0, N)
    tl.store(y_ptr + o, tl.load(x_ptr + o).to(y_ptr.dtype.element_ty))


@triton.jit
def float_binary_kernel(x_ptr, y_ptr, r_ptr, c_ptr, N: tl.constexpr):
    o = tl.arange(0, N)
    x = tl.load(x_ptr + o)
    y = tl.load(y_ptr + o)
    tl.store(r_ptr + o, (x + y).to(tl.float64))
    tl.store(r_ptr + N + o, (x - y).to(tl.float64))
    tl.store(r_ptr + 2 * N + o, (x * y).to(tl.float64))
    tl.store(r_ptr + 3 * N + o, tl.minimum(x, y).to(tl.float64))
    tl.store(r_ptr + 4 * N + o, tl.maximum(x, y).to(tl.float64))
    tl.store(r_ptr + 5 * N + o, tl.minimum(x, y, propagate_nan=tl.PropagateNan.ALL).to(tl.float64))
    tl.store(r_ptr + 6 * N + o, tl.maximum(x, y, propagate_nan=tl.PropagateNan.ALL).to(tl.float64))
    tl.store(r_ptr + 7 * N + o, (-x).to(tl.float64))
    tl.store(r_ptr + 8 * N + o, tl.abs(x).to(tl.float64))
    tl.store(r_ptr + 9 * N + o, (x * 0.3).to(tl.float64))
    tl.store(r_ptr + 10 * N + o, tl.where(x > y, x, 0.0).to(tl.float64))
    tl.store(c_ptr + o, x < y)
    tl.store(c_ptr + N + o, x <= y)
    tl.store(c_ptr + 2 * N + o, x > y)
    tl.store(c_ptr + 3 * N + o, x >= y)
    tl.store(c_ptr + 4 * N + o, x == y)
    tl.store(c_ptr + 5 * N + o, x != y)
    tl.store(c_ptr + 6 * N + o, x > 0.1)


@triton.jit
def float_inexact_kernel(x_ptr, y_ptr, r_ptr, N: tl.constexpr):
    o = tl.arange(0, N)
    x = tl.load(x_ptr + o)
    y = tl.load(y_ptr + o)
    tl.store(r_ptr + o, (x / y).to(tl.float64))
    if x.dtype != tl.float64:
        tl.store(r_ptr + N + o, (x % y).to(tl.float64))
    tl.store(r_ptr + 2 * N + o, tl.fma(x, y, x).to(tl.float64))
    tl.store(r_ptr + 3 * N + o, tl.clamp(x, -1.0, 1.0).to(tl.float64))
    tl.store(r_ptr + 4 * N + o, tl.clamp(x, -1.0, 1.0, propagate_nan=tl.PropagateNan.ALL).to(tl.float64))


@triton.jit
def unary_kernel(x_ptr, r_ptr, N: tl.constexpr):
    o = tl.arange(0, N)
    x = tl.load(x_ptr + o)
    tl.store(r_ptr + o, tl.exp(x))
    tl.store(r_ptr + N + o, tl.exp2(x))
    tl.store(r_ptr + 2 * N + o, tl.log(x))
    tl.store(r_ptr + 3 * N + o, tl.log2(x))
    tl.store(r_ptr + 4 * N + o, tl.sqrt(x))
    tl.store(r_ptr + 5 * N + o, tl.rsqrt(x))
    tl.store(r_ptr + 6 * N + o, tl.erf(x))
    tl.store(r_ptr + 7 * N + o, tl.floor(x))
    tl.store(r_ptr + 8 * N + o, tl.ceil(x))
    tl.store(r_ptr + 9 * N + o, tl.sigmoid(x))
    tl.store(r_ptr + 10 * N + o, tl.sin(x))
    tl.store(r_ptr + 11 * N + o, tl.cos(x))


@triton.jit
def int_binary_kernel(x_ptr, y_ptr, d_ptr, r_ptr, N: tl.constexpr):
    o = tl.arange(0, N)
    x = tl.load(x_ptr + o)
    y = tl.load(y_ptr + o)
    d = tl.load(d_ptr + o)
    tl.store(r_ptr + o, x + y)
    tl.store(r_ptr + N + o, x - y)
    tl.store(r_ptr + 2 * N + o, x * y)
    tl.store(r_ptr + 3 * N + o, x // d)
    tl.store(r_ptr + 4 * N + o, x % d)
    tl.store(r_ptr + 5 * N + o, x & y)
    tl.store(r_ptr + 6 * N + o, x | y)
    tl.store(r_ptr + 7 * N + o, x ^ y)
    tl.store(r_ptr + 8 * N + o, x >> 3)
    tl.store(r_ptr + 9 * N + o, x << 3)
    tl.store(r_ptr + 10 * N + o, tl.minimum(x, y))
    tl.store(r_ptr + 11 * N + o, tl.maximum(x, y))
    tl.store(r_ptr + 12 * N + o, ~x)
    tl.store(r_ptr + 13 * N + o, -x)
    tl.store(r_ptr + 14 * N + o, tl.abs(x))
    tl.store(r_ptr + 15 * N + o, (x < y).to(x.dtype))
    tl.store(r_ptr + 16 * N + o, (x >= y).to(x.dtype))
    tl.store(r_ptr + 17 * N + o, (x == y).to(x.dtype))
    tl.store(r_ptr + 18 * N + o, (x / d).to(tl.float32).to(r_ptr.dtype.element_ty))
    tl.store(r_ptr + 19 * N + o, x >> (d & 7))
    tl.store(r_ptr + 20 * N + o, x << (d & 7))


@triton.jit
def reduce_kernel(x_ptr, r_ptr, i_ptr, M: tl.constexpr, N: tl.constexpr):
    r = tl.arange(0, M)
    o = tl.arange(0, N)
    x = tl.load(x_ptr + r[:, None] * N + o[None, :])
    tl.store(r_ptr + r, tl.max(x, axis=1).to(tl.float64))
    tl.store(r_ptr + M + r, tl.min(x, axis=1).to(tl.float64))
    tl.store(i_ptr + r, tl.argmax(x, axis=1))
    tl.store(i_ptr + M + r, tl.argmin(x, axis=1))


@triton.jit
def sum_kernel(x_ptr, r_ptr, M: tl.constexpr, N: tl.constexpr):
    r = tl.arange(0, M)
    o = tl.arange(0, N)
    x = tl.load(x_ptr + r[:, None] * N + o[None, :])
    tl.store(r_ptr + r, tl.sum(x, axis=1).to(tl.float64))
    tl.store(r_ptr + M + o, tl.sum(x, axis=0).to(tl.float64))
    tl.store(r_ptr + M + N + r, tl.sum(x, axis=1, dtype=tl.float32).to(tl.float64))


@triton.jit
def scan_kernel(x_ptr, r_ptr, N: tl.constexpr):
    o = tl.arange(0, N)
    x = tl.load(x_ptr + o)
    tl.store(r_ptr + o, tl.cumsum(x, axis=0).to(tl.float64))
    tl.store(r_ptr + N + o, tl.cumsum(x, axis=0, reverse=True).to(tl.float64))
    tl.store(r_ptr + 2 * N + o, tl.cumprod((x % 3) + 1, axis=0).to(tl.float64))


@triton.jit
def affine(a1, b1, a2, b2):
    return a1 * a2, b1 * a2 + b2


@triton.jit
def last_and_count(v1, c1, v2, c2):
    return tl.where(c2 > 0, v2, v1), c1 + c2


@triton.jit
def generic_kernel(x_ptr, r_ptr, N: tl.constexpr):
    o = tl.arange(0, N)
    x = tl.load(x_ptr + o)
    a, b = tl.associative_scan((x, x + 1), 0, affine)
    tl.store(r_ptr + o, a)
    tl.store(r_ptr + N + o, b)
    a, b = tl.associative_scan((x, x + 1), 0, affine, reverse=True)
    tl.store(r_ptr + 2 * N + o, a)
    tl.store(r_ptr + 3 * N + o, b)
    v, c = tl.reduce((x, x & 1), 0, last_and_count)
    tl.store(r_ptr + 4 * N, v)
    tl.store(r_ptr + 4 * N + 1, c)
    tl.store(r_ptr + 5 * N + o, tl.sort(x))
    tl.store(r_ptr + 6 * N + o, tl.sort(x, descending=True))
    tl.store(r_ptr + 7 * N + o, tl.flip(x, 0))
    tl.store(r_ptr + 8 * N, tl.xor_sum(x, axis=0))
    j = tl.join(x, x * 2)
    p, q = tl.split(j)
    tl.store(r_ptr + 9 * N + o, p - q)
    two = tl.reshape(x, (N // 8, 8))
    tl.store(r_ptr + 10 * N + tl.arange(0, N // 8), tl.sum(two, axis=1))
    tl.store(r_ptr + 11 * N + o, tl.reshape(tl.trans(two), (N,)))
    tl.store(r_ptr + 12 * N + tl.arange(0, 64), tl.histogram(x & 63, 64))
    tl.store(r_ptr + 13 * N + o, tl.gather(x, (o * 5) % N, 0))


@triton.jit
def control_kernel(r_ptr, n, one, big, f, flag, n64: tl.int64, N: tl.constexpr):
    o = tl.arange(0, N)
    both = (o > 3) & (o < 9)
    tl.store(r_ptr + o, both.to(tl.float64))
    # 32-bit scalars wrap
    tl.store(r_ptr + N, (big * 4).to(tl.float64))
    wide = big.to(tl.int64) * 4
    tl.store(r_ptr + N + 1, wide.to(tl.float64))
    tl.store(r_ptr + N + 2, (n64 * 1000000 * 1000000).to(tl.float64))
    total = 0
    for i in range(0, n):
        total += i * big
    tl.store(r_ptr + N + 3, total.to(tl.float64))
    k = 0
    while k < n and k * k < 50:
        k += 1
    tl.store(r_ptr + N + 4, k.to(tl.float64))
    a, b = 1, 2.5
    a, b = b, a
    tl.store(r_ptr + N + 5, a * 10 + b)
    if flag and n > 2:
        v = 1.0
    elif not flag:
        v = 2.0
    else:
        v = 3.0
    tl.store(r_ptr + N + 6, v)
    tl.store(r_ptr + N + 7, min(n, 4) + max(n, 4) * 100)
    w = 1.0 if n > 100 else 2.0
    tl.store(r_ptr + N + 8, w)
    s = 0
    for j in tl.static_range(4):
        s += j * j
    tl.store(r_ptr + N + 9, s)
    tl.store(r_ptr + N + 10, -7 // n)
    tl.store(r_ptr + N + 11, (0 - n) // 2)
    tl.store(r_ptr + N + 12, (0 - n) % 3)
    tl.store(r_ptr + N + 13, n / 2)
    h = tl.full((N,), 0.1, tl.float16)
    tl.store(r_ptr + 2 * N + o, (h * f).to(tl.float64))
    tl.store(r_ptr + 3 * N + o, (h * 0.1).to(tl.float64))
    local = 0.1
    tl.store(r_ptr + 4 * N + o, (h * local).to(tl.float64))
    u = tl.full((N,), 200, tl.uint8)
    tl.store(r_ptr + 5 * N + o, (u + u).to(tl.float64))
    tl.store(r_ptr + 6 * N + o, (o * n).to(tl.float64) + (o % 7).to(tl.float64))
    for q in range(n, 0, -1):
        tl.store(r_ptr + 7 * N + q, q * q)
    tl.store(r_ptr + 8 * N + o, tl.cdiv(o, n).to(tl.float64))


@triton.jit
def dot_kernel(
    a_ptr, b_ptr, r_ptr, M: tl.constexpr, K: tl.constexpr, PRECISION: tl.constexpr, ACC: tl.constexpr
):
    i = tl.arange(0, M)
    k = tl.arange(0, K)
    a = tl.load(a_ptr + i[:, None] * K + k[None, :])
    b = tl.load(b_ptr + k[:, None] * M + i[None, :])
    c = tl.dot(a, b, input_precision=PRECISION, out_dtype=ACC)
    tl.store(r_ptr + i[:, None] * M + i[None, :], c.to(tl.float64))


@triton.jit
def random_kernel(r_ptr, i_ptr, seed, N: tl.constexpr):
    o = tl.arange(0, N)
    tl.store(r_ptr + o, tl.rand(seed, o))
    tl.store(i_ptr + o, tl.randint(seed, o))
    tl.store(r_ptr + N + o, tl.randn(seed, o))


@triton.jit
def atomic_kernel(x_ptr, f_ptr, i_ptr, h_ptr, b_ptr, N: tl.constexpr):
    o = tl.arange(0, N)
    x = tl.load(x_ptr + o)
    tl.atomic_add(f_ptr + o % 4, x)
    tl.atomic_max(f_ptr + 4 + o % 4, x)
    tl.atomic_min(f_ptr + 8 + o % 4, x)
    tl.atomic_add(i_ptr + o % 4, o)
    tl.atomic_max(i_ptr + 4 + o % 4, o - 60)
    tl.atomic_xor(i_ptr + 8 + o % 4, o)
    tl.atomic_and(i_ptr + 12 + o % 4, o | 8)
    tl.atomic_or(i_ptr + 16 + o % 4, o)
    old = tl.atomic_cas(i_ptr + 20, 0, 7)
    tl.store(i_ptr + 21, old)
    tl.store(i_ptr + 22, tl.atomic_xchg(i_ptr + 23, 9))
    tl.atomic_add(h_ptr + o, x.to(tl.float16))
    tl.atomic_add(b_ptr + o, x.to(tl.bfloat16), mask=o < 100)


@triton.jit
def block_pointer_kernel(x_ptr, r_ptr, M, K, BM: tl.constexpr, BK: tl.constexpr):
    p = tl.make_block_ptr(x_ptr, (M, K), (K, 1), (1, 0), (BM, BK), (1, 0))
    total = tl.zeros((BM, BK), dtype=tl.float32)
    for _ in range(0, tl.cdiv(K, BK)):
        total += tl.load(p, boundary_check=(0, 1), padding_option="zero")
        p = tl.advance(p, (0, BK))
    q = tl.make_block_ptr(r_ptr, (M, BK), (BK, 1), (0, 0), (BM, BK), (1, 0))
    tl.store(q, total, boundary_check=(0, 1))


@triton.jit
def descriptor_kernel(x_ptr, r_ptr, M, K, BM: tl.constexpr, BK: tl.constexpr):
    desc = tl.make_tensor_descriptor(x_ptr, [M, K], [K, 1], [BM, BK])
    d = desc.load([2, 4])
    out = tl.make_tensor_descriptor(r_ptr + 64 * BK, [M, BK], [BK, 1], [BM, BK])
    out.store([0, 0], d)


OUTSIDE = 7


@triton.jit
def integer_mask_kernel(r_ptr, n, N: tl.constexpr):
    o = tl.arange(0, N)
    tl.store(r_ptr + o, tl.load(r_ptr + o, mask=o & 1))


@triton.jit
def one_is_converted_kernel(r_ptr, n, N: tl.constexpr):
    tl.store(r_ptr, n.to(tl.float32))


@triton.jit
def block_condition_kernel(r_ptr, n, N: tl.constexpr):
    o = tl.arange(0, N)
    if o > 3:
        tl.store(r_ptr, 1.0)


@triton.jit
def integer_and_kernel(r_ptr, n, N: tl.constexpr):
    m = n + 1
    k = n + 2
    if m and k:
        tl.store(r_ptr, 1.0)


@triton.jit
def assigned_size_kernel(r_ptr, n, N: tl.constexpr):
    half = N // 2
    tl.store(r_ptr + tl.arange(0, half), 1.0)


@triton.jit
def annotated_size_kernel(r_ptr, n, N: tl.constexpr):
    half: tl.constexpr = N // 2
    tl.store(r_ptr + tl.arange(0, half), 1.0)


@triton.jit
def short_dot_kernel(r_ptr, n, N: tl.constexpr):
    a = tl.zeros((16, 8), dtype=tl.float16)
    b = tl.zeros((8, 16), dtype=tl.float16)
    tl.store(r_ptr, tl.sum(tl.dot(a, b)))


@triton.jit
def small_dot_kernel(r_ptr, n, N: tl.constexpr):
    a = tl.zeros((4, 16), dtype=tl.float32)
    b = tl.zeros((16, 8), dtype=tl.float32)
    tl.store(r_ptr, tl.sum(tl.dot(a, b)))


@triton.jit
def global_number_kernel(r_ptr, n, N: tl.constexpr):
    tl.store(r_ptr, OUTSIDE + n)


@triton.jit
def carried_type_kernel(r_ptr, n, N: tl.constexpr):
    total = 0
    for _ in range(n):
        total += 0.5
    tl.store(r_ptr, total)


@triton.jit
def block_not_kernel(r_ptr, n, N: tl.constexpr):
    o = tl.arange(0, N)
    tl.store(r_ptr + o, 1.0, mask=not (o > 3))


@triton.jit
def block_and_kernel(r_ptr, n, N: tl.constexpr):
    o = tl.arange(0, N)
    tl.store(r_ptr + o, 1.0, mask=(o > 3) and (o < 9))


@triton.jit
def wider_mask_kernel(r_ptr, n, N: tl.constexpr):
    o = tl.arange(0, N)
    tl.store(r_ptr + o, tl.load(r_ptr + n, mask=o < n, other=0.0))


@triton.jit
def mixed_sign_division_kernel(r_ptr, n, N: tl.constexpr):
    o = tl.arange(0, N)
    tl.store(r_ptr + o, (o.to(tl.uint32) // n).to(tl.float32))


@triton.jit
def float_floor_division_kernel(r_ptr, n, N: tl.constexpr):
    tl.store(r_ptr, (n * 0.5) // 2)


@triton.jit
def unsigned_and_negative_kernel(r_ptr, n, N: tl.constexpr):
    o = tl.arange(0, N).to(tl.uint32)
    tl.store(r_ptr + o, (o + -1).to(tl.float32))


@triton.jit
def half_exp_kernel(r_ptr, n, N: tl.constexpr):
    tl.store(r_ptr, tl.exp(tl.load(r_ptr).to(tl.float16)))


@triton.jit
def python_power_kernel(r_ptr, n, N: tl.constexpr):
    tl.store(r_ptr, tl.load(r_ptr) ** 2)


@triton.jit
def shape_arithmetic_kernel(r_ptr, n, N: tl.constexpr):
    o = tl.arange(0, N)
    tl.store(r_ptr + tl.arange(0, o.shape[0] // 2), 1.0)


@triton.jit
def mismatched_dot_kernel(r_ptr, n, N: tl.constexpr):
    a = tl.zeros((16, 16), dtype=tl.float16)
    b = tl.zeros((16, 16), dtype=tl.float32)
    tl.store(r_ptr, tl.sum(tl.dot(a, b)))


@triton.jit
def chained_assignment_kernel(r_ptr, n, N: tl.constexpr):
    a = b = 1.0
    tl.store(r_ptr, a + b)


@triton.jit
def absolute_value_kernel(r_ptr, n, N: tl.constexpr):
    tl.store(r_ptr, abs(tl.load(r_ptr)))


@triton.jit
def builtin_sum_kernel(r_ptr, n, N: tl.constexpr):
    o = tl.arange(0, N)
    tl.store(r_ptr, sum(o))


ACCEPTED_OR_NOT = [
    integer_mask_kernel, one_is_converted_kernel, block_condition_kernel, integer_and_kernel,
    assigned_size_kernel, annotated_size_kernel, short_dot_kernel, small_dot_kernel, global_number_kernel,
    carried_type_kernel, block_not_kernel, block_and_kernel, wider_mask_kernel, mixed_sign_division_kernel,
    float_floor_division_kernel, unsigned_and_negative_kernel, half_exp_kernel, python_power_kernel,
    shape_arithmetic_kernel, mismatched_dot_kernel, chained_assignment_kernel, absolute_value_kernel,
    builtin_sum_kernel,
]  # fmt: skip


UNARY_LIBDEVICE = [
    "acos", "acosh", "asin", "asinh", "atan", "atanh", "cbrt", "ceil", "cos", "cosh", "cospi",
    "cyl_bessel_i0", "cyl_bessel_i1", "erf", "erfc", "erfcinv", "erfcx", "erfinv", "exp", "exp10", "exp2",
    "expm1", "floor", "j0", "j1", "lgamma", "log", "log10", "log1p", "log2", "logb", "nearbyint", "normcdf",
    "normcdfinv", "rcbrt", "rint", "round", "rsqrt", "saturatef", "sin", "sinh", "sinpi", "sqrt", "tan",
    "tanh", "tgamma", "trunc", "y0", "y1", "abs", "fast_expf", "fast_tanf", "fast_logf",
]  # fmt: skip
BINARY_LIBDEVICE = [
    "atan2", "copysign", "fdim", "fmod", "hypot", "nextafter", "pow", "remainder", "rhypot", "add_rd",
    "mul_ru", "div_rz", "sub_rn",
]  # fmt: skip


@triton.jit
def libdevice_kernel(x_ptr, y_ptr, r_ptr, F: tl.constexpr, BINARY: tl.constexpr, N: tl.constexpr):
    o = tl.arange(0, N)
    x = tl.load(x_ptr + o)
    if BINARY:
        tl.store(r_ptr + o, F(x, tl.load(y_ptr + o)))
    else:
        tl.store(r_ptr + o, F(x))


@triton.jit
def libdevice_int_kernel(x_ptr, f_ptr, r_ptr, N: tl.constexpr):
    o = tl.arange(0, N)
    x = tl.load(x_ptr + o)
    f = tl.load(f_ptr + o)
    tl.store(r_ptr + o, libdevice.clz(x))
    tl.store(r_ptr + N + o, libdevice.popc(x))
    tl.store(r_ptr + 2 * N + o, libdevice.brev(x))
    tl.store(r_ptr + 3 * N + o, libdevice.ffs(x))
    tl.store(r_ptr + 4 * N + o, libdevice.mulhi(x, x + 7))
    tl.store(r_ptr + 5 * N + o, libdevice.float2int_rn(f))
    tl.store(r_ptr + 6 * N + o, libdevice.float2int_rd(f))
    tl.store(r_ptr + 7 * N + o, libdevice.float_as_int(f))
    tl.store(r_ptr + 8 * N + o, libdevice.isnan(f).to(tl.int32))
    tl.store(r_ptr + 9 * N + o, libdevice.isinf(f).to(tl.int32))
    tl.store(r_ptr + 10 * N + o, libdevice.signbit(f).to(tl.int32))
    tl.store(r_ptr + 11 * N + o, libdevice.finitef(f).to(tl.int32))
    tl.store(r_ptr + 12 * N + o, libdevice.llrint(f).to(tl.int32))
    tl.store(r_ptr + 13 * N + o, libdevice.byte_perm(x, x + 3, 0x5140))
    tl.store(r_ptr + 14 * N + o, libdevice.ilogb(f))
    tl.store(r_ptr + 15 * N + o, tl.umulhi(x, x + 7))
    tl.store(r_ptr + 16 * N + o, libdevice.mul24(x, x + 5))
    tl.store(r_ptr + 17 * N + o, libdevice.hadd(x, x + 5))
    tl.store(r_ptr + 18 * N + o, libdevice.rhadd(x, x + 5))


def cases(device):
    """Yield (case, function giving a dictionary of tensors)."""

    def put(tensor):
        return tensor.to(device)

    def empty(*sizes, dtype=torch.float64):
        return torch.zeros(*sizes, dtype=dtype, device=device)

    for src in [*INTS, *FLOATS, *FP8]:
        for dst in [*INTS, *FLOATS, *FP8]:
            if src == dst or (src in FP8 and dst in INTS) or (src in INTS and dst in FP8):
                continue

            def cast(src=src, dst=dst):
                y = empty(N, dtype=torch.uint8).to(torch.uint8)
                y = torch.zeros(N, device=device, dtype=torch.float32).to(dst)
                cast_kernel[(1,)](put(values(src)), y, N=N)
                return {"y": y}

            yield f"cast-{name(src)}-{name(dst)}", cast

    for dtype in FLOATS:

        def binary(dtype=dtype):
            r, c = empty(11, N), empty(7, N, dtype=torch.int8)
            x, y = put(values(dtype)), put(values(dtype, 0).flip(0))
            float_binary_kernel[(1,)](x, y, r, c, N=N)
            return {"r": r, "c": c}

        yield f"float-binary-{name(dtype)}", binary

        def inexact(dtype=dtype):
            r = empty(5, N)
            float_inexact_kernel[(1,)](put(values(dtype)), put(values(dtype, 1).flip(0)), r, N=N)
            return {"r": r}

        yield f"approximate-float-{name(dtype)}", inexact

    for dtype in INTS:

        def integers(dtype=dtype):
            r = empty(21, N, dtype=dtype)
            x, y = put(ints(dtype)), put(ints(dtype, 1).flip(0))
            d = put(torch.where(ints(dtype, 2) == 0, torch.ones((), dtype=dtype), ints(dtype, 2)))
            if dtype.is_signed:
                d = torch.where(d == -1, torch.full_like(d, 3), d)
            int_binary_kernel[(1,)](x, y, d, r, N=N)
            return {"r": r}

        if dtype not in (torch.uint32, torch.uint64):
            yield f"int-{name(dtype)}", integers

    def unary():
        r = empty(12, N, dtype=torch.float32)
        unary_kernel[(1,)](put(floats().clamp(-90, 90).float()), r, N=N)
        return {"r": r}

    yield "approximate-unary", unary

    for dtype in (torch.float16, torch.bfloat16, torch.float32, torch.int8, torch.int32):

        def rows(dtype=dtype):
            x = torch.arange(8 * 64).reshape(8, 64) * 37 % 101
            if dtype.is_floating_point:
                x = x / 8 - 5
            x = x.to(dtype)
            x[1] = x[1, 0]
            return x

        def reductions(dtype=dtype, rows=rows):
            r, i = empty(2, 8), empty(2, 8, dtype=torch.int32)
            reduce_kernel[(1,)](put(rows()), r, i, M=8, N=64)
            out = {"r": r, "i": i}
            if dtype.is_floating_point:
                with_nan = rows()
                with_nan[2, 5] = float("nan")
                with_nan[3, :] = float("nan")
                with_nan[4, 7] = float("-inf")
                r, i = empty(2, 8), empty(2, 8, dtype=torch.int32)
                reduce_kernel[(1,)](put(with_nan), r, i, M=8, N=64)
                out["nan"] = r
            return out

        yield f"reduce-{name(dtype)}", reductions

        def sums(dtype=dtype, rows=rows):
            r = empty(8 + 64 + 8)
            sum_kernel[(1,)](put(rows()), r, M=8, N=64)
            return {"r": r}

        yield f"sum-{name(dtype)}", sums

        def rounded_sums(dtype=dtype):
            generator = torch.Generator().manual_seed(3)
            x = (torch.randn(8, 64, generator=generator) * 3).to(dtype)
            r = empty(8 + 64 + 8)
            sum_kernel[(1,)](put(x), r, M=8, N=64)
            return {"r": r}

        yield f"approximate-sum-{name(dtype)}", rounded_sums

    for dtype in (torch.int8, torch.int32, torch.int64):

        def scans(dtype=dtype):
            r = empty(3, N)
            scan_kernel[(1,)](put(ints(torch.int8).to(dtype)), r, N=N)
            return {"r": r}

        yield f"scan-{name(dtype)}", scans

    def generic():
        r = empty(14, N, dtype=torch.int32)
        generic_kernel[(1,)](put(ints(torch.int32)), r, N=N)
        return {"r": r}

    yield "generic", generic

    def control(flag):
        r = empty(9, N)
        control_kernel[(1,)](r, 5, 1, 2**30, 0.1, flag, 3, N=N)
        return {"r": r}

    yield "control-true", lambda: control(True)
    yield "control-false", lambda: control(False)

    products = [
        (torch.float16, "ieee", tl.float32),
        (torch.bfloat16, "ieee", tl.float32),
        (torch.float32, "ieee", tl.float32),
        (torch.float32, "tf32", tl.float32),
        (torch.float16, "ieee", tl.float16),
        (torch.int8, "ieee", tl.int32),
        (torch.float8_e5m2, "ieee", tl.float32),
        (torch.float8_e4m3fn, "ieee", tl.float32),
    ]
    for dtype, precision, acc in products:
        for exact in (True, False):

            def product(dtype=dtype, precision=precision, acc=acc, exact=exact):
                generator = torch.Generator().manual_seed(5)
                if exact or dtype == torch.int8:
                    a, b = (
                        torch.randint(-4, 5, s, generator=generator).float() for s in ((32, 64), (64, 32))
                    )
                else:
                    a, b = (torch.randn(s, generator=generator) for s in ((32, 64), (64, 32)))
                r = empty(32, 32)
                dot_kernel[(1,)](
                    put(a.to(dtype)), put(b.to(dtype)), r, M=32, K=64, PRECISION=precision, ACC=acc
                )
                return {"r": r}

            kind = "" if exact else "approximate-"
            yield f"{kind}dot-{name(dtype)}-{precision}-{acc}", product

    def random():
        r, i = empty(2, N, dtype=torch.float32), empty(N, dtype=torch.int32)
        random_kernel[(1,)](r, i, 1234, N=N)
        return {"i": i, "r": r[0]}

    yield "random", random

    def atomics():
        f, i = empty(12, dtype=torch.float32), empty(24, dtype=torch.int32)
        i[12:16] = 255
        h, b = empty(N, dtype=torch.float16), empty(N, dtype=torch.bfloat16)
        x = (torch.arange(N) % 13 - 6).float()
        atomic_kernel[(1,)](put(x), f, i, h, b, N=N)
        return {"f": f, "i": i, "h": h, "b": b}

    yield "atomics", atomics

    def block_pointers():
        x = torch.arange(14 * 36, dtype=torch.float32).reshape(14, 36)
        r = empty(128, 16, dtype=torch.float32)
        block_pointer_kernel[(1,)](put(x), r, 14, 36, BM=16, BK=16)
        triton.set_allocator(lambda size, align, stream: torch.empty(size, dtype=torch.int8, device="cuda"))
        descriptor_kernel[(1,)](put(x), r, 14, 36, BM=16, BK=16)
        return {"r": r}

    yield "block-pointers", block_pointers

    for function in UNARY_LIBDEVICE:

        def call(function=function):
            r = empty(N, dtype=torch.float32)
            x = put(floats().clamp(-60, 60).float())
            libdevice_kernel[(1,)](x, x, r, F=getattr(libdevice, function), BINARY=False, N=N)
            return {"r": r}

        yield f"approximate-libdevice-{function}", call

    for function in BINARY_LIBDEVICE:

        def call_two(function=function):
            r = empty(N, dtype=torch.float32)
            x, y = put(floats().clamp(-60, 60).float()), put(floats().clamp(-60, 60).float().flip(0))
            libdevice_kernel[(1,)](x, y, r, F=getattr(libdevice, function), BINARY=True, N=N)
            return {"r": r}

        yield f"approximate-libdevice2-{function}", call_two

    for kernel in ACCEPTED_OR_NOT:
        for argument in (1, 3):

            def accepted(kernel=kernel, argument=argument):
                r = torch.ones(64, device=device)
                kernel[(1,)](r, argument, N=16)
                return {"r": r}

            yield f"accepts-{argument}-{kernel.fn.__name__}", accepted

    def integer_functions():
        r = empty(19, N, dtype=torch.int32)
        f = floats().clamp(-2e9, 2e9).float()
        libdevice_int_kernel[(1,)](put(ints(torch.int32)), put(f), r, N=N)
        return {"r": r}

    yield "libdevice-int", integer_functions


def answers(device, part=0, parts=1):
    """What every case, or every `parts`-th from the `part`-th on, gives on `device`."""
    found = {}
    for index, (case, function) in enumerate(cases(device)):
        if index % parts == part:
            try:
                found[case] = {k: v.cpu() for k, v in function().items()}
            except Exception as error:
                found[case] = {"error": type(error).__name__, "text": str(error)[-600:]}
    return found


if __name__ == "__main__":
    torch.save(answers("cuda", *map(int, sys.argv[2:])), sys.argv[1])
