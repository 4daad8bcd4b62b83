import torch
import torch.nn as nn
import triton
import triton.language as tl

DTYPE = torch.float32


@triton.jit
def bias_silu_kernel(x_ptr, bias_ptr, out_ptr, n_elements, width, BLOCK_SIZE: tl.constexpr):
    offsets = tl.program_id(0).to(tl.int64) * BLOCK_SIZE + tl.arange(0, BLOCK_SIZE)
    mask = offsets < n_elements
    x = tl.load(x_ptr + offsets, mask=mask, other=0.0).to(tl.float32)
    bias = tl.load(bias_ptr + offsets % width, mask=mask, other=0.0).to(tl.float32)
    x = x + bias
    out = x / (1.0 + tl.exp(-x))
    tl.store(out_ptr + offsets, out.to(out_ptr.dtype.element_ty), mask=mask)


class ModelNew(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.bias = nn.Parameter(torch.randn(width).to(DTYPE))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x.contiguous()
        out = torch.empty_like(x)
        n_elements = out.numel()
        if n_elements == 0:
            return out
        bias_silu_kernel[(triton.cdiv(n_elements, 128),)](x, self.bias, out, n_elements, x.shape[1], BLOCK_SIZE=128)
        return out
