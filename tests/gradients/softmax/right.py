import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def forward_kernel(x, y, stride, N, BLOCK: tl.constexpr):
    row, col = tl.program_id(0), tl.arange(0, BLOCK)
    value = tl.load(x + row * stride + col, mask=col < N, other=-float("inf")).to(tl.float32)
    powers = tl.exp(value - tl.max(value, axis=0))
    tl.store(y + row * N + col, (powers / tl.sum(powers, axis=0)).to(y.dtype.element_ty), mask=col < N)


@triton.jit
def backward_kernel(y, g, dx, N, BLOCK: tl.constexpr):
    row, col = tl.program_id(0), tl.arange(0, BLOCK)
    p = tl.load(y + row * N + col, mask=col < N, other=0.0).to(tl.float32)
    up = tl.load(g + row * N + col, mask=col < N, other=0.0).to(tl.float32)
    inner = tl.sum(p * up, axis=0)
    tl.store(dx + row * N + col, (p * (up - inner)).to(dx.dtype.element_ty), mask=col < N)


class Softmax(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        x = x.contiguous()
        y = torch.empty_like(x)
        forward_kernel[(x.shape[0],)](x, y, x.stride(0), x.shape[1], BLOCK=triton.next_power_of_2(x.shape[1]))
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx, g):
        (y,) = ctx.saved_tensors
        g = g.contiguous()
        dx = torch.empty_like(y)
        backward_kernel[(y.shape[0],)](y, g, dx, y.shape[1], BLOCK=triton.next_power_of_2(y.shape[1]))
        return dx


class ModelNew(nn.Module):
    def forward(self, x):
        return Softmax.apply(x)
