import torch
import torch.nn as nn
import triton
import triton.language as tl

DTYPE = torch.float32


@triton.jit
def group_norm_kernel(
    x_ptr, weight_ptr, bias_ptr, out_ptr, groups, per_group, length, eps, BLOCK_SIZE: tl.constexpr
):
    pid = tl.program_id(0).to(tl.int64)
    size = per_group * length
    base = pid * size
    lanes = tl.arange(0, BLOCK_SIZE)
    total = tl.zeros((BLOCK_SIZE,), dtype=tl.float32)
    for start in range(0, size, BLOCK_SIZE):
        at = start + lanes
        total += tl.load(x_ptr + base + at, mask=at < size, other=0.0).to(tl.float32)
    mean = tl.sum(total, axis=0) / size
    squares = tl.zeros((BLOCK_SIZE,), dtype=tl.float32)
    for start in range(0, size, BLOCK_SIZE):
        at = start + lanes
        x = tl.load(x_ptr + base + at, mask=at < size, other=0.0).to(tl.float32)
        centred = tl.where(at < size, x - mean, 0.0)
        squares += centred * centred
    inverse = 1.0 / tl.sqrt(tl.sum(squares, axis=0) / size + eps)
    for start in range(0, size, BLOCK_SIZE):
        at = start + lanes
        mask = at < size
        x = tl.load(x_ptr + base + at, mask=mask, other=0.0).to(tl.float32)
        channel = (pid % groups) * per_group + at // length
        weight = tl.load(weight_ptr + channel, mask=mask, other=0.0).to(tl.float32)
        bias = tl.load(bias_ptr + channel, mask=mask, other=0.0).to(tl.float32)
        out = (x - mean) * inverse * weight + bias
        tl.store(out_ptr + base + at, out.to(out_ptr.dtype.element_ty), mask=mask)


class ModelNew(nn.Module):
    def __init__(self, groups, channels):
        super().__init__()
        self.groups = groups
        self.weight = nn.Parameter(torch.rand(channels).to(DTYPE) + 0.5)
        self.bias = nn.Parameter(torch.randn(channels).to(DTYPE))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x.contiguous()
        batch, channels, length = x.shape
        out = torch.empty_like(x)
        if out.numel() == 0:
            return out
        group_norm_kernel[(batch * self.groups,)](
            x, self.weight, self.bias, out, self.groups, channels // self.groups, length, 1e-5, BLOCK_SIZE=32
        )
        return out
