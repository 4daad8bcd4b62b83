import torch
import torch.nn as nn
import triton
import triton.language as tl

DTYPE = torch.float32


@triton.jit
def conv2d_kernel(
    x_ptr, weight_ptr, bias_ptr, out_ptr, channels, filters, height, width, out_height, out_width,
    BLOCK_SIZE: tl.constexpr
):
    pid = tl.program_id(0).to(tl.int64)
    batch = pid // filters
    row = pid % filters
    at = tl.program_id(1) * BLOCK_SIZE + tl.arange(0, BLOCK_SIZE)
    mask = at < out_height * out_width
    top = (at // out_width) * 2
    left = (at % out_width) * 2
    acc = tl.zeros((BLOCK_SIZE,), dtype=tl.float32)
    for channel in range(0, channels):
        plane = x_ptr + (batch * channels + channel) * height * width
        for tap in range(0, 9):
            x = tl.load(plane + (top + tap // 3) * width + left + tap % 3, mask=mask, other=0.0)
            weight = tl.load(weight_ptr + (row * channels + channel) * 9 + tap)
            acc += x.to(tl.float32) * weight.to(tl.float32)
    acc += tl.load(bias_ptr + row).to(tl.float32)
    base = (batch * filters + row) * out_height * out_width
    tl.store(out_ptr + base + at, acc.to(out_ptr.dtype.element_ty), mask=mask)


class ModelNew(nn.Module):
    def __init__(self, channels, filters):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(filters, channels, 3, 3).to(DTYPE) / (9 * channels) ** 0.5)
        self.bias = nn.Parameter(torch.randn(filters).to(DTYPE))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x.contiguous()
        batch, channels, height, width = x.shape
        if height < 3 or width < 3:
            raise ValueError("the image is smaller than the filter")
        filters = self.weight.shape[0]
        out_height, out_width = (height - 3) // 2 + 1, (width - 3) // 2 + 1
        out = torch.empty((batch, filters, out_height, out_width), device=x.device, dtype=x.dtype)
        if out.numel() == 0:
            return out
        grid = (batch * filters, triton.cdiv(out_height * out_width, 32))
        conv2d_kernel[grid](
            x, self.weight, self.bias, out, channels, filters, height, width, out_height, out_width, BLOCK_SIZE=32
        )
        return out
