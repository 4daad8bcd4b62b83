import torch
import torch.nn as nn
import triton
import triton.language as tl

DTYPE = torch.float32


@triton.jit
def forward_kernel(x, w, b, y, mean, rstd, N, eps, BLOCK: tl.constexpr):
    row, col = tl.program_id(0), tl.arange(0, BLOCK)
    inside = col < N
    value = tl.load(x + row * N + col, mask=inside, other=0.0).to(tl.float32)
    middle = tl.sum(value, axis=0) / N
    centred = tl.where(inside, value - middle, 0.0)
    scale = 1.0 / tl.sqrt(tl.sum(centred * centred, axis=0) / N + eps)
    weight = tl.load(w + col, mask=inside, other=0.0).to(tl.float32)
    bias = tl.load(b + col, mask=inside, other=0.0).to(tl.float32)
    tl.store(y + row * N + col, (centred * scale * weight + bias).to(y.dtype.element_ty), mask=inside)
    tl.store(mean + row, middle)
    tl.store(rstd + row, scale)


@triton.jit
def dx_kernel(x, w, g, mean, rstd, dx, N, BLOCK: tl.constexpr):
    row, col = tl.program_id(0), tl.arange(0, BLOCK)
    inside = col < N
    scale = tl.load(rstd + row)
    hat = (tl.load(x + row * N + col, mask=inside, other=0.0).to(tl.float32) - tl.load(mean + row)) * scale
    hat = tl.where(inside, hat, 0.0)
    up = tl.load(g + row * N + col, mask=inside, other=0.0).to(tl.float32)
    up = up * tl.load(w + col, mask=inside, other=0.0).to(tl.float32)
    along = tl.sum(up * hat, axis=0) / N
    level = tl.sum(up, axis=0) / N
    tl.store(dx + row * N + col, (scale * (up - level - hat * along)).to(dx.dtype.element_ty), mask=inside)


@triton.jit
def dw_kernel(x, g, mean, rstd, dw, db, M, N, BLOCK: tl.constexpr):
    col = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = col < N
    weight = tl.zeros((BLOCK,), dtype=tl.float32)
    bias = tl.zeros((BLOCK,), dtype=tl.float32)
    for row in range(M):
        up = tl.load(g + row * N + col, mask=inside, other=0.0).to(tl.float32)
        value = tl.load(x + row * N + col, mask=inside, other=0.0).to(tl.float32)
        weight += up * (value - tl.load(mean + row)) * tl.load(rstd + row)
        bias += up
    tl.store(dw + col, weight.to(dw.dtype.element_ty), mask=inside)
    tl.store(db + col, bias.to(db.dtype.element_ty), mask=inside)


class Norm(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight, bias):
        x = x.contiguous()
        rows, cols = x.shape
        y = torch.empty_like(x)
        mean, rstd = (torch.empty(rows, dtype=torch.float32, device=x.device) for _ in range(2))
        forward_kernel[(rows,)](x, weight, bias, y, mean, rstd, cols, 1e-5, BLOCK=triton.next_power_of_2(cols))
        ctx.save_for_backward(x, weight, mean, rstd)
        return y

    @staticmethod
    def backward(ctx, g):
        x, weight, mean, rstd = ctx.saved_tensors
        g = g.contiguous()
        rows, cols = x.shape
        dx, dw, db = torch.empty_like(x), torch.empty_like(weight), torch.empty_like(weight)
        dx_kernel[(rows,)](x, weight, g, mean, rstd, dx, cols, BLOCK=triton.next_power_of_2(cols))
        dw_kernel[(triton.cdiv(cols, 32),)](x, g, mean, rstd, dw, db, rows, cols, BLOCK=32)
        return dx, dw, db


class ModelNew(nn.Module):
    def __init__(self, cols):
        super().__init__()
        self.norm = nn.LayerNorm(cols).to(DTYPE)

    def forward(self, x):
        return Norm.apply(x, self.norm.weight, self.norm.bias)
