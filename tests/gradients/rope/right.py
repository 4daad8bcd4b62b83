import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def rotate_kernel(x, cos, sin, y, T, H, sign, BLOCK: tl.constexpr):
    row, col = tl.program_id(0), tl.arange(0, BLOCK)
    inside = col < H
    c = tl.load(cos + (row % T) * H + col, mask=inside, other=0.0).to(tl.float32)
    s = tl.load(sin + (row % T) * H + col, mask=inside, other=0.0).to(tl.float32) * sign
    a = tl.load(x + row * 2 * H + col, mask=inside, other=0.0).to(tl.float32)
    b = tl.load(x + row * 2 * H + H + col, mask=inside, other=0.0).to(tl.float32)
    tl.store(y + row * 2 * H + col, (a * c - b * s).to(y.dtype.element_ty), mask=inside)
    tl.store(y + row * 2 * H + H + col, (b * c + a * s).to(y.dtype.element_ty), mask=inside)


def rotate(x, cos, sin, sign):
    y = torch.empty_like(x)
    batch, length, dim = x.shape
    rotate_kernel[(batch * length,)](x, cos, sin, y, length, dim // 2, sign, BLOCK=triton.next_power_of_2(dim // 2))
    return y


class Rope(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, cos, sin):
        ctx.save_for_backward(cos, sin)
        return rotate(x.contiguous(), cos, sin, 1.0)

    @staticmethod
    def backward(ctx, g):
        cos, sin = ctx.saved_tensors
        g = g.contiguous()
        dx = rotate(g, cos, sin, -1.0)
        return dx, None, None


class ModelNew(nn.Module):
    def forward(self, x):
        half = x.shape[-1] // 2
        rate = 10000.0 ** (-torch.arange(half, dtype=torch.float32) / half)
        angle = torch.arange(x.shape[1], dtype=torch.float32)[:, None] * rate
        return Rope.apply(x, angle.cos().to(x.dtype), angle.sin().to(x.dtype))
