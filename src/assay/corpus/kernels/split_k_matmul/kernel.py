import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def partial_kernel(
    a_ptr, b_ptr, partial_ptr, M, N, K, chunk, stride_am, stride_ak, stride_bk, stride_bn,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr
):
    rows = tl.program_id(0).to(tl.int64) * BLOCK_M + tl.arange(0, BLOCK_M)
    cols = tl.program_id(1).to(tl.int64) * BLOCK_N + tl.arange(0, BLOCK_N)
    part = tl.program_id(2).to(tl.int64)
    lanes = tl.arange(0, BLOCK_K).to(tl.int64)
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for step in range(0, chunk, BLOCK_K):
        k = part * chunk + step + lanes
        inside = (step + lanes < chunk) & (k < K)
        a = tl.load(a_ptr + rows[:, None] * stride_am + k[None, :] * stride_ak,
                    mask=(rows[:, None] < M) & inside[None, :], other=0.0)
        b = tl.load(b_ptr + k[:, None] * stride_bk + cols[None, :] * stride_bn,
                    mask=inside[:, None] & (cols[None, :] < N), other=0.0)
        acc += tl.dot(a, b, input_precision="ieee")
    at = partial_ptr + (part * M + rows[:, None]) * N + cols[None, :]
    tl.store(at, acc, mask=(rows[:, None] < M) & (cols[None, :] < N))


@triton.jit
def combine_kernel(partial_ptr, out_ptr, n_elements, parts, BLOCK_SIZE: tl.constexpr):
    offsets = tl.program_id(0).to(tl.int64) * BLOCK_SIZE + tl.arange(0, BLOCK_SIZE)
    mask = offsets < n_elements
    total = tl.zeros((BLOCK_SIZE,), dtype=tl.float32)
    for part in range(0, parts):
        total += tl.load(partial_ptr + part * n_elements + offsets, mask=mask, other=0.0)
    tl.store(out_ptr + offsets, total.to(out_ptr.dtype.element_ty), mask=mask)


class ModelNew(nn.Module):
    def forward(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        M, K = a.shape
        N = b.shape[1]
        parts = 3
        out = torch.empty((M, N), device=a.device, dtype=a.dtype)
        if out.numel() == 0:
            return out
        partial = torch.empty((parts, M, N), device=a.device, dtype=torch.float32)
        partial_kernel[(triton.cdiv(M, 16), triton.cdiv(N, 16), parts)](
            a, b, partial, M, N, K, triton.cdiv(K, parts), a.stride(0), a.stride(1), b.stride(0), b.stride(1),
            BLOCK_M=16, BLOCK_N=16, BLOCK_K=32
        )
        combine_kernel[(triton.cdiv(M * N, 128),)](partial, out, M * N, parts, BLOCK_SIZE=128)
        return out
