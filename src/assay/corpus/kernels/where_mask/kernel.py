import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def where_kernel(mask_ptr, x_ptr, y_ptr, out_ptr, n_elements, BLOCK_SIZE: tl.constexpr):
    offsets = tl.program_id(0).to(tl.int64) * BLOCK_SIZE + tl.arange(0, BLOCK_SIZE)
    inside = offsets < n_elements
    chosen = tl.load(mask_ptr + offsets, mask=inside, other=0)
    x = tl.load(x_ptr + offsets, mask=inside, other=0.0)
    y = tl.load(y_ptr + offsets, mask=inside, other=0.0)
    tl.store(out_ptr + offsets, tl.where(chosen != 0, x, y), mask=inside)


class ModelNew(nn.Module):
    def forward(self, mask: torch.Tensor, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        mask, x, y = mask.contiguous(), x.contiguous(), y.contiguous()
        out = torch.empty_like(x)
        n_elements = out.numel()
        if n_elements == 0:
            return out
        where_kernel[(triton.cdiv(n_elements, 128),)](mask, x, y, out, n_elements, BLOCK_SIZE=128)
        return out
