import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def max_pool_kernel(x_ptr, out_ptr, height, width, out_height, out_width, BLOCK_SIZE: tl.constexpr):
    plane = tl.program_id(0).to(tl.int64)
    at = tl.program_id(1) * BLOCK_SIZE + tl.arange(0, BLOCK_SIZE)
    mask = at < out_height * out_width
    top = (at // out_width) * 2
    left = (at % out_width) * 2
    best = tl.full((BLOCK_SIZE,), float("-inf"), dtype=tl.float32)
    for tap in range(0, 4):
        place = (top + tap // 2) * width + left + tap % 2
        x = tl.load(x_ptr + plane * height * width + place, mask=mask, other=float("-inf")).to(tl.float32)
        # A NaN replaces what was best, and nothing replaces it.
        best = tl.where((x > best) | (x != x), x, best)
    tl.store(out_ptr + plane * out_height * out_width + at, best.to(out_ptr.dtype.element_ty), mask=mask)


class ModelNew(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x.contiguous()
        batch, channels, height, width = x.shape
        if height < 2 or width < 2:
            raise ValueError("the image is smaller than the window")
        out_height, out_width = height // 2, width // 2
        out = torch.empty((batch, channels, out_height, out_width), device=x.device, dtype=x.dtype)
        if out.numel() == 0:
            return out
        grid = (batch * channels, triton.cdiv(out_height * out_width, 32))
        max_pool_kernel[grid](x, out, height, width, out_height, out_width, BLOCK_SIZE=32)
        return out
