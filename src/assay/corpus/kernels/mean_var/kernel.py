import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def mean_var_kernel(x_ptr, mean_ptr, var_ptr, n_cols, BLOCK_SIZE: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    cols = tl.arange(0, BLOCK_SIZE)
    mask = cols < n_cols
    x = tl.load(x_ptr + row * n_cols + cols, mask=mask, other=0.0).to(tl.float32)
    mean = tl.sum(x, axis=0) / n_cols
    centred = tl.where(mask, x - mean, 0.0)
    variance = tl.sum(centred * centred, axis=0) / n_cols
    tl.store(mean_ptr + row, mean.to(mean_ptr.dtype.element_ty))
    tl.store(var_ptr + row, variance.to(var_ptr.dtype.element_ty))


class ModelNew(nn.Module):
    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        x = x.contiguous()
        rows, cols = x.shape
        mean = torch.empty(rows, device=x.device, dtype=x.dtype)
        variance = torch.empty(rows, device=x.device, dtype=x.dtype)
        if rows == 0:
            return mean, variance
        block = triton.next_power_of_2(max(1, cols))
        mean_var_kernel[(rows,)](x, mean, variance, cols, BLOCK_SIZE=block)
        return mean, variance
