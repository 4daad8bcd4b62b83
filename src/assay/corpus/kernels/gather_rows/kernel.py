import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def gather_kernel(x_ptr, index_ptr, out_ptr, n_cols, n_picked, BLOCK_SIZE: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    lanes = tl.program_id(1) * BLOCK_SIZE + tl.arange(0, BLOCK_SIZE)
    mask = lanes < n_picked
    index = tl.load(index_ptr + row * n_picked + lanes, mask=mask, other=0)
    values = tl.load(x_ptr + row * n_cols + index, mask=mask, other=0.0)
    tl.store(out_ptr + row * n_picked + lanes, values, mask=mask)


class ModelNew(nn.Module):
    def forward(self, x: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
        x, index = x.contiguous(), index.contiguous()
        rows, picked = index.shape
        out = torch.empty((rows, picked), device=x.device, dtype=x.dtype)
        if out.numel() == 0:
            return out
        gather_kernel[(rows, triton.cdiv(picked, 16))](x, index, out, x.shape[1], picked, BLOCK_SIZE=16)
        return out
