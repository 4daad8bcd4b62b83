import torch
import torch.nn as nn
import triton
import triton.language as tl

DTYPE = torch.float32


@triton.jit
def depthwise_kernel(x_ptr, weight_ptr, out_ptr, channels, length, BLOCK_SIZE: tl.constexpr):
    pid = tl.program_id(0).to(tl.int64)
    channel = pid % channels
    at = tl.program_id(1) * BLOCK_SIZE + tl.arange(0, BLOCK_SIZE)
    acc = tl.zeros((BLOCK_SIZE,), dtype=tl.float32)
    for tap in range(0, 4):
        source = at + tap - 3
        inside = (source >= 0) & (source < length)
        x = tl.load(x_ptr + pid * length + source, mask=inside, other=0.0).to(tl.float32)
        weight = tl.load(weight_ptr + channel * 4 + tap).to(tl.float32)
        acc += x * weight
    tl.store(out_ptr + pid * length + at, acc.to(out_ptr.dtype.element_ty), mask=at < length)


class ModelNew(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(channels, 1, 4).to(DTYPE) / 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x.contiguous()
        batch, channels, length = x.shape
        out = torch.empty_like(x)
        if out.numel() == 0:
            return out
        depthwise_kernel[(batch * channels, triton.cdiv(length, 32))](x, self.weight, out, channels, length, BLOCK_SIZE=32)
        return out
