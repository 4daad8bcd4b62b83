import torch
import torch.nn as nn
import triton
import triton.language as tl

DTYPE = torch.float32


@triton.jit
def forward_kernel(x, w, y, rstd, N, eps, BLOCK: tl.constexpr):
    row, col = tl.program_id(0), tl.arange(0, BLOCK)
    value = tl.load(x + row * N + col, mask=col < N, other=0.0).to(tl.float32)
    scale = 1.0 / tl.sqrt(tl.sum(value * value, axis=0) / N + eps)
    weight = tl.load(w + col, mask=col < N, other=0.0).to(tl.float32)
    tl.store(y + row * N + col, (value * scale * weight).to(y.dtype.element_ty), mask=col < N)
    tl.store(rstd + row, scale)


@triton.jit
def backward_kernel(x, w, g, rstd, dx, part, N, BLOCK: tl.constexpr):
    row, col = tl.program_id(0), tl.arange(0, BLOCK)
    scale = tl.load(rstd + row)
    hat = tl.load(x + row * N + col, mask=col < N, other=0.0).to(tl.float32) * scale
    up = tl.load(g + row * N + col, mask=col < N, other=0.0).to(tl.float32)
    tl.store(part + row * N + col, up * hat, mask=col < N)
    up = up * tl.load(w + col, mask=col < N, other=0.0).to(tl.float32)
    along = tl.sum(up * hat, axis=0) / N
    tl.store(dx + row * N + col, (scale * (up - hat * along)).to(dx.dtype.element_ty), mask=col < N)


class Norm(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight):
        x = x.contiguous()
        rows, cols = x.shape
        y = torch.empty_like(x)
        rstd = torch.empty(rows, dtype=torch.float32, device=x.device)
        forward_kernel[(rows,)](x, weight, y, rstd, cols, 1e-6, BLOCK=triton.next_power_of_2(cols))
        ctx.save_for_backward(x, weight, rstd)
        return y

    @staticmethod
    def backward(ctx, g):
        x, weight, rstd = ctx.saved_tensors
        g = g.contiguous()
        rows, cols = x.shape
        dx = torch.empty_like(x)
        part = torch.empty(rows, cols, dtype=torch.float32, device=x.device)
        backward_kernel[(rows,)](x, weight, g, rstd, dx, part, cols, BLOCK=triton.next_power_of_2(cols))
        dw = part.sum(0).to(weight.dtype)
        return dx, dw


class ModelNew(nn.Module):
    def __init__(self, cols):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(cols, dtype=DTYPE))

    def forward(self, x):
        return Norm.apply(x, self.weight)
