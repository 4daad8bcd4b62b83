"""Kernels in the styles that people and generators write, run as they would on a GPU."""

import math

import pytest
import torch
import torch.nn as nn
import torch.nn.functional as F
import triton
import triton.language as tl
from triton.language.extra import libdevice

from assay.run.emulation import NeedsGpu

DEVICE = triton.runtime.driver.active.get_active_torch_device() if torch.cuda.is_available() else None


def close(actual, expected, **kwargs):
    torch.testing.assert_close(actual, expected, **kwargs)


@triton.jit
def softmax_kernel(
    out_ptr, in_ptr, in_stride, out_stride, n_rows, n_cols, BLOCK: tl.constexpr, STAGES: tl.constexpr
):
    start, step = tl.program_id(0), tl.num_programs(0)
    for row in tl.range(start, n_rows, step, num_stages=STAGES):
        cols = tl.arange(0, BLOCK)
        mask = cols < n_cols
        x = tl.load(in_ptr + row * in_stride + cols, mask=mask, other=-float("inf"))
        numerator = tl.exp(x - tl.max(x, axis=0))
        tl.store(out_ptr + row * out_stride + cols, numerator / tl.sum(numerator, axis=0), mask=mask)


def test_persistent_softmax_with_warm_up_and_occupancy():
    properties = triton.runtime.driver.active.utils.get_device_properties(DEVICE.index)
    x = torch.randn(37, 100, device=DEVICE)
    y = torch.empty_like(x)
    block = triton.next_power_of_2(x.shape[1])
    strides = (x.stride(0), y.stride(0))
    kernel = softmax_kernel.warmup(y, x, *strides, 37, 100, BLOCK=block, STAGES=2, num_warps=8, grid=(1,))
    kernel._init_handles()
    occupancy = properties["max_num_regs"] // (kernel.n_regs * properties["warpSize"] * 8)
    occupancy = min(occupancy, properties["max_shared_mem"] // kernel.metadata.shared)
    programs = min(properties["multiprocessor_count"] * occupancy, 37)
    kernel[(programs, 1, 1)](y, x, *strides, 37, 100, block, 2)
    close(y, torch.softmax(x, 1))
    y.zero_()
    kernel[(programs, 1, 1)](y, x, *strides, 37, 100)
    close(y, torch.softmax(x, 1))


def configs():
    sizes = [(16, 16, 16), (32, 32, 32), (32, 16, 64)]
    return [
        triton.Config({"BM": m, "BN": n, "BK": k, "GROUP": 4}, num_stages=3, num_warps=4) for m, n, k in sizes
    ]


@triton.autotune(configs=configs(), key=["M", "N", "K"])
@triton.jit
def matmul_kernel(
    a_ptr, b_ptr, c_ptr, M, N, K, sam, sak, sbk, sbn, scm, scn,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, GROUP: tl.constexpr, ACT: tl.constexpr = "",
):  # fmt: skip
    pid = tl.program_id(axis=0)
    num_m = tl.cdiv(M, BM)
    num_n = tl.cdiv(N, BN)
    in_group = GROUP * num_n
    group = pid // in_group
    first_m = group * GROUP
    size_m = min(num_m - first_m, GROUP)
    pid_m = first_m + ((pid % in_group) % size_m)
    pid_n = (pid % in_group) // size_m
    tl.assume(pid_m >= 0)
    offs_m = (pid_m * BM + tl.arange(0, BM)) % M
    offs_n = (pid_n * BN + tl.arange(0, BN)) % N
    offs_m = tl.max_contiguous(tl.multiple_of(offs_m, BM), BM)
    offs_k = tl.arange(0, BK)
    a_ptrs = a_ptr + (offs_m[:, None] * sam + offs_k[None, :] * sak)
    b_ptrs = b_ptr + (offs_k[:, None] * sbk + offs_n[None, :] * sbn)
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for k in range(0, tl.cdiv(K, BK)):
        a = tl.load(a_ptrs, mask=offs_k[None, :] < K - k * BK, other=0.0)
        b = tl.load(b_ptrs, mask=offs_k[:, None] < K - k * BK, other=0.0)
        acc = tl.dot(a, b, acc, allow_tf32=False)
        a_ptrs += BK * sak
        b_ptrs += BK * sbk
    if ACT == "leaky_relu":
        acc = leaky_relu(acc)
    c = acc.to(c_ptr.dtype.element_ty)
    cm = pid_m * BM + tl.arange(0, BM)
    cn = pid_n * BN + tl.arange(0, BN)
    tl.store(c_ptr + scm * cm[:, None] + scn * cn[None, :], c, mask=(cm[:, None] < M) & (cn[None, :] < N))


@triton.jit
def leaky_relu(x):
    return tl.where(x >= 0, x, 0.01 * x)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("forced", [None, 0, 1, 2, 5])
def test_autotuned_matmul(emulation, dtype, forced):
    emulation.force_config(forced)
    a, b = torch.randn(50, 70, device="cuda").to(dtype), torch.randn(70, 45, device="cuda").to(dtype)
    assert a.is_cuda, "input must be on the GPU"
    assert a.is_contiguous(), "matrix A must be contiguous"
    c = torch.empty(50, 45, device=a.device, dtype=dtype)
    grid = lambda META: (triton.cdiv(50, META["BM"]) * triton.cdiv(45, META["BN"]),)  # noqa: E731
    matmul_kernel[grid](a, b, c, 50, 45, 70, *a.stride(), *b.stride(), *c.stride(), ACT="leaky_relu")
    expected = F.leaky_relu(a.double() @ b.double(), 0.01)
    tolerance = {torch.float32: 1e-5, torch.float16: 2e-3, torch.bfloat16: 1.6e-2}[dtype]
    close(c.double(), expected, rtol=tolerance, atol=tolerance * 3)
    chosen = (forced or 0) % 3
    assert matmul_kernel.best_config is matmul_kernel.configs[chosen]
    assert emulation.configs()["matmul_kernel"] == 3
    launch = emulation.recorder.launches[-1]
    assert launch.kernel == "matmul_kernel"
    assert launch.constexprs["BM"] == configs()[chosen].kwargs["BM"]
    assert launch.options["num_warps"] == 4
    short = {torch.float32: "fp32", torch.float16: "fp16", torch.bfloat16: "bf16"}[dtype]
    assert launch.signature["a_ptr"] == f"*{short}"
    assert launch.signature["M"] == "i32"
    assert launch.completed
    assert launch.programs == math.prod(launch.grid)
    assert {d[:2] for d in launch.dots} == {(short, "ieee")}


@triton.autotune(
    configs=[triton.Config({"B": 16}), triton.Config({"B": 32})], key=["n"], reset_to_zero=["out_ptr"]
)
@triton.jit
def tuned_sum_reset(x_ptr, out_ptr, n, B: tl.constexpr):
    o = tl.program_id(0) * B + tl.arange(0, B)
    tl.atomic_add(out_ptr, tl.sum(tl.load(x_ptr + o, mask=o < n, other=0.0)))


@triton.autotune(configs=[triton.Config({"B": 16}), triton.Config({"B": 32})], key=["n"])
@triton.jit
def tuned_sum(x_ptr, out_ptr, n, B: tl.constexpr):
    o = tl.program_id(0) * B + tl.arange(0, B)
    tl.atomic_add(out_ptr, tl.sum(tl.load(x_ptr + o, mask=o < n, other=0.0)))


@triton.autotune(
    configs=[triton.Config({"B": 16}), triton.Config({"B": 32})], key=["n"], restore_value=["x_ptr"]
)
@triton.jit
def tuned_double(x_ptr, n, B: tl.constexpr):
    o = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(x_ptr + o, tl.load(x_ptr + o, mask=o < n) * 2, mask=o < n)


def test_tuning_at_the_first_call_shows_accumulation(emulation):
    x = torch.ones(64)
    grid = lambda meta: (triton.cdiv(64, meta["B"]),)  # noqa: E731
    once = torch.zeros(1)
    tuned_sum[grid](x, once, 64)
    assert once.item() == 64
    emulation.tune_on_first_call(True)
    cold, warm, reset = torch.zeros(1), torch.zeros(1), torch.zeros(1)
    tuned_sum[grid](x, cold, 64)
    tuned_sum[grid](x, warm, 64)
    tuned_sum_reset[grid](x, reset, 64)
    assert cold.item() == 64 * 3
    assert warm.item() == 64
    assert reset.item() == 64
    tuned_double[grid](x, 64)
    assert x.tolist() == [2.0] * 64


def prune(configs, named_args, **kwargs):
    return [c for c in configs if c.kwargs["B"] <= named_args["n"]]


seen = []


@triton.autotune(
    configs=[triton.Config({"B": b}, pre_hook=lambda args: seen.append(args["B"])) for b in (64, 16, 8)],
    key=["n"],
    prune_configs_by={"early_config_prune": prune},
)
@triton.heuristics({"EVEN": lambda args: args["n"] % args["B"] == 0})
@triton.jit
def pruned(x_ptr, n, B: tl.constexpr, EVEN: tl.constexpr):
    o = tl.program_id(0) * B + tl.arange(0, B)
    if EVEN:
        tl.store(x_ptr + o, 1.0)
    else:
        tl.store(x_ptr + o, 2.0, mask=o < n)


def test_pruning_hooks_and_heuristics(emulation):
    x = torch.zeros(32)
    grid = lambda meta: (triton.cdiv(32, meta["B"]),)  # noqa: E731
    pruned[grid](x, 32)
    assert seen == [16]
    assert x.tolist() == [1.0] * 32
    emulation.force_config(1)
    pruned[grid](x[:30], 30)
    assert seen == [16, 8]
    assert x[:30].tolist() == [2.0] * 30
    assert emulation.configs()["pruned"] == 3


@triton.jit
def layer_norm_kernel(x_ptr, w_ptr, b_ptr, y_ptr, mean_ptr, n, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    o = tl.arange(0, BLOCK)
    mask = o < n
    x = tl.load(x_ptr + row * n + o, mask=mask, other=0.0).to(tl.float32)
    mean = tl.sum(x, axis=0) / n
    centred = tl.where(mask, x - mean, 0.0)
    rstd = tl.rsqrt(tl.sum(centred * centred, axis=0) / n + eps)
    y = centred * rstd
    if w_ptr is not None:
        y = y * tl.load(w_ptr + o, mask=mask)
    if b_ptr is not None:
        y += tl.load(b_ptr + o, mask=mask)
    tl.store(y_ptr + row * n + o, y.to(y_ptr.dtype.element_ty), mask=mask)
    tl.store(mean_ptr + row, mean)


class FusedLayerNorm(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, w, b, eps):
        assert x.is_cuda
        assert x.device.type == "cuda"
        y = torch.empty_like(x)
        mean = torch.empty(x.shape[0], device="cuda", dtype=torch.float32)
        with torch.cuda.device(x.device):
            layer_norm_kernel[(x.shape[0],)](x, w, b, y, mean, x.shape[1], eps, BLOCK=64, num_warps=4)
        ctx.save_for_backward(x, w)
        return y

    @staticmethod
    def backward(ctx, grad):
        w = ctx.saved_tensors[1]
        scratch = torch.zeros(grad.shape, device="cuda")
        return scratch + grad * w, None, None, None


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_layer_norm_with_optional_pointers(dtype):
    x = torch.randn(5, 50).to(dtype)
    w, b = torch.randn(50).to(dtype), torch.randn(50).to(dtype)
    close(FusedLayerNorm.apply(x, w, b, 1e-5), F.layer_norm(x, (50,), w, b), rtol=2e-2, atol=2e-2)
    close(FusedLayerNorm.apply(x, None, None, 1e-5), F.layer_norm(x, (50,)), rtol=2e-2, atol=2e-2)


def test_backward_allocates_on_the_gpu():
    x = torch.randn(3, 8, requires_grad=True)
    w = torch.ones(8)
    FusedLayerNorm.apply(x, w, None, 1e-5).sum().backward()
    assert x.grad.tolist() == [[1.0] * 8] * 3


@triton.jit
def attention_kernel(
    q_ptr, k_ptr, v_ptr, o_ptr, scale, T, D: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr
):
    start = tl.program_id(0)
    head = tl.program_id(1)
    base = head * T * D
    q_block = tl.make_block_ptr(q_ptr + base, (T, D), (D, 1), (start * BM, 0), (BM, D), (1, 0))
    k_block = tl.make_block_ptr(k_ptr + base, (D, T), (1, D), (0, 0), (D, BN), (0, 1))
    v_block = tl.make_block_ptr(v_ptr + base, (T, D), (D, 1), (0, 0), (BN, D), (1, 0))
    rows = start * BM + tl.arange(0, BM)
    m_i = tl.zeros([BM], dtype=tl.float32) - float("inf")
    l_i = tl.zeros([BM], dtype=tl.float32)
    acc = tl.zeros([BM, D], dtype=tl.float32)
    qk_scale = scale * 1.44269504
    q = tl.load(q_block, boundary_check=(0,), padding_option="zero")
    q = (q * qk_scale).to(q_ptr.dtype.element_ty)
    for n in range(0, (start + 1) * BM, BN):
        n = tl.multiple_of(n, BN)
        k = tl.load(k_block, boundary_check=(1,), padding_option="zero")
        qk = tl.dot(q, k, input_precision="ieee")
        cols = n + tl.arange(0, BN)
        qk = tl.where((rows[:, None] >= cols[None, :]) & (cols[None, :] < T), qk, float("-inf"))
        m_new = tl.maximum(m_i, tl.max(qk, 1))
        alpha = tl.math.exp2(m_i - m_new)
        p = tl.math.exp2(qk - m_new[:, None])
        acc = acc * alpha[:, None]
        v = tl.load(v_block, boundary_check=(0,), padding_option="zero")
        acc += tl.dot(p.to(v.type.element_ty), v, input_precision="ieee")
        l_i = l_i * alpha + tl.sum(p, 1)
        m_i = m_new
        k_block = tl.advance(k_block, (0, BN))
        v_block = tl.advance(v_block, (BN, 0))
    acc = acc / l_i[:, None]
    o_block = tl.make_block_ptr(o_ptr + base, (T, D), (D, 1), (start * BM, 0), (BM, D), (1, 0))
    tl.store(o_block, acc.to(o_ptr.dtype.element_ty), boundary_check=(0,))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_flash_attention_with_block_pointers(emulation, dtype):
    q, k, v = (torch.randn(2, 50, 16).to(dtype) for _ in range(3))
    o = torch.empty_like(q)
    attention_kernel[(triton.cdiv(50, 16), 2)](q, k, v, o, 0.25, 50, D=16, BM=16, BN=16)
    expected = F.scaled_dot_product_attention(q.double(), k.double(), v.double(), is_causal=True)
    close(o.double(), expected, rtol=2e-2, atol=2e-5 if dtype == torch.float32 else 2e-2)
    assert emulation.access_faults() == []


@triton.jit
def descriptor_kernel(x_desc, y_desc, BM: tl.constexpr, BN: tl.constexpr):
    i, j = tl.program_id(0) * BM, tl.program_id(1) * BN
    y_desc.store([i, j], x_desc.load([i, j]) * 2)


@triton.jit
def device_descriptor_kernel(x_ptr, y_ptr, M, N, BM: tl.constexpr, BN: tl.constexpr):
    x = tl.make_tensor_descriptor(x_ptr, shape=[M, N], strides=[N, 1], block_shape=[BM, BN])
    y = tl.make_tensor_descriptor(y_ptr, shape=[M, N], strides=[N, 1], block_shape=[BM, BN])
    i, j = tl.program_id(0) * BM, tl.program_id(1) * BN
    y.store([i, j], x.load([i, j]) + 1)


def test_tensor_descriptors():
    from triton.tools.tensor_descriptor import TensorDescriptor

    x = torch.randn(20, 36)
    y = torch.zeros_like(x)
    descriptors = [TensorDescriptor.from_tensor(t, [16, 16]) for t in (x, y)]
    descriptor_kernel[(2, 3)](*descriptors, BM=16, BN=16)
    close(y, x * 2)
    with pytest.raises(RuntimeError, match="no allocator was set"):
        device_descriptor_kernel[(2, 3)](x, y, 20, 36, BM=16, BN=16)
    triton.set_allocator(lambda size, align, stream: torch.empty(size, dtype=torch.int8, device="cuda"))
    device_descriptor_kernel[(2, 3)](x, y, 20, 36, BM=16, BN=16)
    close(y, x + 1)


@triton.jit
def gelu_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    o = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + o, mask=o < n)
    inner = 0.7978845608028654 * (x + 0.044715 * x * x * x)
    y = 0.5 * x * (1 + libdevice.tanh(inner)) + tl.extra.cuda.libdevice.expm1(x) * 0
    tl.store(y_ptr + o, y, mask=o < n)


def test_libdevice_functions():
    x = torch.randn(100)
    y = torch.empty_like(x)
    gelu_kernel[(1,)](x, y, 100, BLOCK=128)
    close(y, F.gelu(x, approximate="tanh"))


@triton.jit
def missing_function_kernel(x_ptr):
    tl.store(x_ptr, tl.tanh(tl.load(x_ptr)))


def test_functions_that_do_not_exist_are_missing():
    with pytest.raises(AttributeError, match="tanh"):
        missing_function_kernel[(1,)](torch.ones(1))


@triton.jit
def assembly_kernel(x_ptr):
    x = tl.load(x_ptr)
    y = tl.inline_asm_elementwise("tanh.approx.f32 $0, $1;", "=r,r", [x], tl.float32, True, 1)
    tl.store(x_ptr, y)


def test_inline_assembly_needs_a_gpu(emulation):
    with pytest.raises(NeedsGpu, match="inline_asm_elementwise") as caught:
        assembly_kernel[(1,)](torch.ones(1))
    assert caught.value.call == "tl.inline_asm_elementwise"
    launch = emulation.recorder.launches[-1]
    assert not launch.completed
    assert "NeedsGpu" in launch.error


@triton.jit
def grouped_kernel(table_ptr, sizes_ptr, groups, BLOCK: tl.constexpr):
    for g in range(groups):
        n = tl.load(sizes_ptr + g)
        p = tl.load(table_ptr + g).to(tl.pointer_type(tl.float32))
        o = tl.arange(0, BLOCK)
        tl.store(p + o, tl.load(p + o, mask=o < n) + 1, mask=o < n)


def test_table_of_pointers(emulation):
    xs = [torch.zeros(n, device="cuda") for n in (5, 9, 16)]
    table = torch.tensor([x.data_ptr() for x in xs], device="cuda")
    sizes = torch.tensor([5, 9, 16], device="cuda", dtype=torch.int32)
    grouped_kernel[(1,)](table, sizes, 3, BLOCK=16)
    assert all(x.eq(1).all() for x in xs)
    assert emulation.access_faults() == []


@triton.jit
def combine(a, b):
    return tl.maximum(a, b)


@triton.jit
def scan_kernel(x_ptr, y_ptr, BLOCK: tl.constexpr):
    o = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + o)
    tl.store(y_ptr + o, tl.associative_scan(x, 0, combine))
    tl.store(y_ptr + BLOCK + o, tl.cumsum(x, 0))
    tl.store(y_ptr + 2 * BLOCK + o, x.sum(axis=0) + x.max(axis=0))


def test_scans_and_method_style():
    x = torch.randn(32)
    y = torch.empty(3, 32)
    scan_kernel[(1,)](x, y, BLOCK=32)
    close(y[0], x.cummax(0).values)
    close(y[1], x.cumsum(0))
    close(y[2], (x.sum() + x.max()).expand(32))


@triton.jit
def options_kernel(x_ptr, n: tl.int64, flag, f, BLOCK: tl.constexpr):
    o = tl.arange(0, BLOCK)
    for i in tl.range(0, 2, warp_specialize=False, num_stages=1, flatten=True):
        tl.store(x_ptr + o, o * n + i, mask=flag & (o < n))
    tl.debug_barrier()


def test_launch_options_and_argument_types(emulation):
    x = torch.zeros(8, dtype=torch.int64)
    options_kernel[(1, 1)](x, 8, True, 0.5, BLOCK=8, num_warps=8, num_stages=2, num_ctas=1, maxnreg=128)
    options_kernel[1, 1, 1](x, 8, False, 0.5, BLOCK=8, launch_cooperative_grid=True)
    assert x.tolist() == [8 * i + 1 for i in range(8)]
    signature = emulation.recorder.launches[0].signature
    assert signature == {"x_ptr": "*i64", "n": "i64", "flag": "u1", "f": "fp32"}
    with pytest.raises(KeyError, match="Keyword argument BLOCKS was specified but unrecognised"):
        options_kernel[(1,)](x, 8, True, 0.5, BLOCK=8, BLOCKS=4)
    with pytest.raises(TypeError, match="missing 1 required positional argument: 'f'"):
        options_kernel[(1,)](x, 8, True, BLOCK=8)


def test_grid_limits_are_the_drivers():
    x = torch.zeros(8, dtype=torch.int64)
    options_kernel[(0,)](x, 8, True, 0.5, BLOCK=8)
    with pytest.raises(RuntimeError, match="invalid argument"):
        options_kernel[(1, 65536)](x, 8, True, 0.5, BLOCK=8)
    assert x.sum() == 0


def make_scaled_kernel(factor):
    scale = tl.constexpr(factor)

    @triton.jit
    def scaled(x_ptr):
        tl.store(x_ptr, tl.load(x_ptr) * scale)

    return scaled


def test_kernels_in_closures():
    x = torch.ones(1)
    make_scaled_kernel(3)[(1,)](x)
    make_scaled_kernel(5)[(1,)](x)
    assert x.item() == 15


def test_host_side_attributes():
    assert softmax_kernel.fn.__name__ == "softmax_kernel"
    assert softmax_kernel.arg_names[0] == "out_ptr"
    assert "tl.program_id" in softmax_kernel.src
    assert softmax_kernel.__name__ == "softmax_kernel"
    assert triton.cdiv(7, 2) == 4
    x = torch.zeros(8, dtype=torch.int64)
    launched = options_kernel[(1,)](x, 8, True, 0.5, BLOCK=8)
    assert launched.n_spills == 0
    options_kernel.run(x, 8, True, 0.5, BLOCK=8, grid=(1,), warmup=False)
    module_names = set(globals())
    assert not any(name.startswith("__assay") for name in module_names)
    assert "interpreter_semantic" not in module_names


def test_programs_by_multiprocessor_count():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.programs = torch.cuda.get_device_properties("cuda").multi_processor_count
            self.events = [torch.cuda.Event(enable_timing=True) for _ in range(2)]

        def forward(self, x):
            x = x.contiguous()
            y = torch.empty_like(x)
            self.events[0].record()
            grid = (min(self.programs, x.shape[0]),)
            softmax_kernel[grid](y, x, x.stride(0), y.stride(0), *x.shape, BLOCK=32, STAGES=1)
            self.events[1].record()
            torch.cuda.synchronize()
            assert self.events[0].elapsed_time(self.events[1]) > 0
            return y

    x = torch.randn(200, 20)
    close(Net().cuda()(x.cuda()), torch.softmax(x, 1))


@torch.library.custom_op("assay_test::doubled", mutates_args=(), device_types="cuda")
def doubled(x: torch.Tensor) -> torch.Tensor:
    y = torch.empty_like(x)
    torch.library.wrap_triton(double_kernel)[(1,)](x, y, x.numel(), BLOCK=16)
    return y


@triton.jit
def double_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    o = tl.arange(0, BLOCK)
    tl.store(y_ptr + o, tl.load(x_ptr + o, mask=o < n) * 2, mask=o < n)


def test_custom_operators_for_cuda():
    assert torch.ops.assay_test.doubled(torch.ones(3)).tolist() == [2.0] * 3


def _twice(x: torch.Tensor) -> torch.Tensor:
    return 2 * x


def _refused(x: torch.Tensor) -> torch.Tensor:
    raise AssertionError("the implementation for the CPU was called")


def _by_library(name, keys):
    library = torch.library.Library("assay_both", "FRAGMENT")
    library.define(f"{name}(Tensor x) -> Tensor")
    for key in keys:
        library.impl(name, _twice if key == "CUDA" else _refused, key)
    return library


def _by_libraries(name, keys):
    defined = torch.library.Library("assay_both", "FRAGMENT")
    defined.define(f"{name}(Tensor x) -> Tensor")
    made = [defined]
    for key in keys:
        made.append(torch.library.Library("assay_both", "IMPL", key))
        made[-1].impl(getattr(torch.ops.assay_both, name).default, _twice if key == "CUDA" else _refused)
    return made


def _by_decorator(name, keys):
    first, second = (key.lower() for key in keys)
    kernels = {"cuda": _twice, "cpu": _refused}
    operator = torch.library.custom_op(f"assay_both::{name}", kernels[first], mutates_args=(), device_types=first)
    operator.register_kernel(second)(kernels[second])
    return operator


def _by_name(name, keys):
    torch.library.define(f"assay_both::{name}", "(Tensor x) -> Tensor")
    for key in keys:
        torch.library.register_kernel(f"assay_both::{name}", key.lower(), _twice if key == "CUDA" else _refused)


@pytest.mark.parametrize("keys", [("CPU", "CUDA"), ("CUDA", "CPU")], ids="-".join)
@pytest.mark.parametrize("way", [_by_library, _by_libraries, _by_decorator, _by_name])
def test_operators_for_both_devices_are_called_as_on_a_gpu(way, keys):
    name = f"op{way.__name__}_{keys[0].lower()}_first"
    kept = way(name, keys)
    assert getattr(torch.ops.assay_both, name)(torch.ones(3)).tolist() == [2.0] * 3
    del kept


def test_an_operator_for_every_device_is_called_too():
    operator = torch.library.custom_op("assay_both::any", _twice, mutates_args=())
    assert operator(torch.ones(3)).tolist() == [2.0] * 3


def test_cuda_extensions_need_a_gpu():
    from torch.utils.cpp_extension import load_inline

    with pytest.raises(NeedsGpu, match="load_inline"):
        load_inline(name="ext", cpp_sources="", cuda_sources="__global__ void f() {}", functions=["f"])


class Strided:
    def __init__(self, tensor):
        self.dtype = tensor.dtype
        self.address = tensor.data_ptr()

    def data_ptr(self):
        return self.address


def test_anything_with_an_address_is_a_pointer(emulation):
    x, y = torch.ones(4), torch.zeros(4)
    double_kernel[(1,)](Strided(x), Strided(y), 4, BLOCK=16)
    assert y.tolist() == [2.0] * 4
    assert emulation.access_faults() == []


@triton.jit
def matmul_of_ones(x_ptr, y_ptr, N: tl.constexpr):
    o = tl.arange(0, N)
    x = tl.load(x_ptr + o[:, None] * N + o[None, :])
    tl.store(y_ptr + o[:, None] * N + o[None, :], tl.dot(x, x, input_precision="ieee"))


def test_what_a_kernel_computes_is_hidden_from_modes_and_autocast():
    from torch.utils._python_dispatch import TorchDispatchMode

    class Watch(TorchDispatchMode):
        seen: list = []  # noqa: RUF012

        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            self.seen.append(str(func))
            return func(*args, **(kwargs or {}))

    x = torch.full((16, 16), 1 + 2**-12)
    y = torch.zeros(16, 16)
    with Watch(), torch.autocast("cuda", dtype=torch.bfloat16):
        matmul_of_ones[(1,)](x, y, N=16)
    assert Watch.seen == []
    assert y[0, 0] == x[0].double().square().sum().float()
    with torch.autocast("cuda", dtype=torch.bfloat16):
        assert (x @ x).dtype == torch.bfloat16
