import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def softmax_row_kernel(x_ptr, out_ptr, n_cols, stride_row, stride_col, BLOCK_SIZE: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    cols = tl.arange(0, BLOCK_SIZE).to(tl.int64)
    mask = cols < n_cols
    x = tl.load(x_ptr + row * stride_row + cols * stride_col, mask=mask, other=float("-inf")).to(tl.float32)
    largest = tl.max(x, axis=0)
    weights = tl.exp(x - largest)
    out = weights / tl.sum(weights, axis=0)
    tl.store(out_ptr + row * n_cols + cols, out.to(out_ptr.dtype.element_ty), mask=mask)


class ModelNew(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        rows, cols = x.shape
        out = torch.empty((rows, cols), device=x.device, dtype=x.dtype)
        if out.numel() == 0:
            return out
        block = triton.next_power_of_2(cols)
        softmax_row_kernel[(rows,)](x, out, cols, x.stride(0), x.stride(1), BLOCK_SIZE=block)
        return out
