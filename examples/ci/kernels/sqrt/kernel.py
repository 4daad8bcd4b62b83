import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def sqrt_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    x = tl.load(x_ptr + offsets, mask=mask)
    tl.store(out_ptr + offsets, tl.sqrt_rn(x.to(tl.float32)).to(x.dtype), mask=mask)


class ModelNew(nn.Module):
    """The correctly rounded root; NaN for negative numbers, as the reference."""

    def forward(self, x):
        x = x.contiguous()
        out = torch.empty_like(x)
        n = out.numel()
        if n:
            sqrt_kernel[(triton.cdiv(n, 256),)](x, out, n, BLOCK=256)
        return out
