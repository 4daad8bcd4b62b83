import torch
import torch.nn as nn
import triton
import triton.language as tl

DTYPE = torch.float32


@triton.jit
def matmul(a, b, c, M, N, K, am, ak, bk, bn, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    total = tl.zeros((BM, BN), dtype=tl.float32)
    for start in range(0, K, BK):
        k = start + tl.arange(0, BK)
        left = tl.load(a + m[:, None] * am + k[None, :] * ak, mask=(m[:, None] < M) & (k[None, :] < K), other=0.0)
        right = tl.load(b + k[:, None] * bk + n[None, :] * bn, mask=(k[:, None] < K) & (n[None, :] < N), other=0.0)
        total += tl.dot(left, right, input_precision="ieee")
    where = m[:, None] * N + n[None, :]
    tl.store(c + where, total.to(c.dtype.element_ty), mask=(m[:, None] < M) & (n[None, :] < N))


def product(a, b, strides=None, dtype=None):
    rows, inner, cols = a.shape[0], a.shape[1], b.shape[1]
    out = torch.empty(rows, cols, dtype=dtype or a.dtype, device=a.device)
    am, ak = strides or a.stride()
    grid = (triton.cdiv(rows, 32), triton.cdiv(cols, 32))
    matmul[grid](a, b, out, rows, cols, inner, am, ak, b.stride(0), b.stride(1), BM=32, BN=32, BK=32)
    return out


class Linear(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight, bias):
        ctx.save_for_backward(x, weight)
        return (product(x, weight.t(), dtype=torch.float32) + bias.float()).to(x.dtype)

    @staticmethod
    def backward(ctx, g):
        x, weight = ctx.saved_tensors
        dx = product(g, weight, g.stride())
        dw = product(g.t(), x)
        db = g.float().sum(0).to(g.dtype)
        return dx, dw, db


class ModelNew(nn.Module):
    def __init__(self, inner, cols):
        super().__init__()
        self.linear = nn.Linear(inner, cols).to(DTYPE)

    def forward(self, x):
        return Linear.apply(x, self.linear.weight, self.linear.bias)
