import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def rope_kernel(x_ptr, cos_ptr, sin_ptr, out_ptr, length, half, BLOCK_SIZE: tl.constexpr):
    pid = tl.program_id(0).to(tl.int64)
    position = pid % length
    lanes = tl.arange(0, BLOCK_SIZE)
    mask = lanes < half
    first = tl.load(x_ptr + pid * 2 * half + lanes, mask=mask, other=0.0).to(tl.float32)
    second = tl.load(x_ptr + pid * 2 * half + half + lanes, mask=mask, other=0.0).to(tl.float32)
    cos = tl.load(cos_ptr + position * half + lanes, mask=mask, other=0.0).to(tl.float32)
    sin = tl.load(sin_ptr + position * half + lanes, mask=mask, other=0.0).to(tl.float32)
    rotated = first * cos - second * sin
    crossed = second * cos + first * sin
    tl.store(out_ptr + pid * 2 * half + lanes, rotated.to(out_ptr.dtype.element_ty), mask=mask)
    tl.store(out_ptr + pid * 2 * half + half + lanes, crossed.to(out_ptr.dtype.element_ty), mask=mask)


class ModelNew(nn.Module):
    def forward(self, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
        x, cos, sin = x.contiguous(), cos.contiguous(), sin.contiguous()
        batch, heads, length, width = x.shape
        out = torch.empty_like(x)
        if out.numel() == 0:
            return out
        block = triton.next_power_of_2(width // 2)
        rope_kernel[(batch * heads * length,)](x, cos, sin, out, length, width // 2, BLOCK_SIZE=block)
        return out
