import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def scan_kernel(x, y, N, REVERSE: tl.constexpr, BLOCK: tl.constexpr):
    row, col = tl.program_id(0), tl.arange(0, BLOCK)
    where = row * N + (N - 1 - col if REVERSE else col)
    value = tl.load(x + where, mask=col < N, other=0.0).to(tl.float32)
    tl.store(y + where, tl.cumsum(value, axis=0).to(y.dtype.element_ty), mask=col < N)


def scan(x, reverse):
    y = torch.empty_like(x)
    scan_kernel[(x.shape[0],)](x, y, x.shape[1], REVERSE=reverse, BLOCK=triton.next_power_of_2(x.shape[1]))
    return y


class Cumsum(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return scan(x.contiguous(), False)

    @staticmethod
    def backward(ctx, g):
        g = g.contiguous()
        dx = scan(g, True)
        return dx


class ModelNew(nn.Module):
    def forward(self, x):
        return Cumsum.apply(x)
