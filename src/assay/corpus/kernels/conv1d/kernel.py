import torch
import torch.nn as nn
import triton
import triton.language as tl

DTYPE = torch.float32


@triton.jit
def conv1d_kernel(
    x_ptr, weight_ptr, bias_ptr, out_ptr, channels, filters, length, BLOCK_SIZE: tl.constexpr, TAPS: tl.constexpr
):
    pid = tl.program_id(0).to(tl.int64)
    batch = pid // filters
    row = pid % filters
    at = tl.program_id(1) * BLOCK_SIZE + tl.arange(0, BLOCK_SIZE)
    acc = tl.zeros((BLOCK_SIZE,), dtype=tl.float32)
    for channel in range(0, channels):
        for tap in range(0, TAPS):
            source = at + tap - TAPS // 2
            inside = (source >= 0) & (source < length)
            x = tl.load(x_ptr + (batch * channels + channel) * length + source, mask=inside, other=0.0)
            weight = tl.load(weight_ptr + (row * channels + channel) * TAPS + tap)
            acc += x.to(tl.float32) * weight.to(tl.float32)
    acc += tl.load(bias_ptr + row).to(tl.float32)
    tl.store(out_ptr + (batch * filters + row) * length + at, acc.to(out_ptr.dtype.element_ty), mask=at < length)


class ModelNew(nn.Module):
    def __init__(self, channels, filters):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(filters, channels, 3).to(DTYPE) / (3 * channels) ** 0.5)
        self.bias = nn.Parameter(torch.randn(filters).to(DTYPE))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x.contiguous()
        batch, channels, length = x.shape
        filters = self.weight.shape[0]
        out = torch.empty((batch, filters, length), device=x.device, dtype=x.dtype)
        if out.numel() == 0:
            return out
        grid = (batch * filters, triton.cdiv(length, 32))
        conv1d_kernel[grid](x, self.weight, self.bias, out, channels, filters, length, BLOCK_SIZE=32, TAPS=3)
        return out
