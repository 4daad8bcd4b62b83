import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def cumsum_kernel(
    x_ptr,
    y_ptr,
    n_cols,
    stride_x_row,
    stride_x_col,
    stride_y_row,
    BLOCK_SIZE: tl.constexpr,
    ACC: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64)
    lanes = tl.arange(0, BLOCK_SIZE).to(tl.int64)
    carry = tl.full((), 0.0, ACC)
    for start in range(0, n_cols, BLOCK_SIZE):
        cols = start + lanes
        mask = cols < n_cols
        x = tl.load(x_ptr + row * stride_x_row + cols * stride_x_col, mask=mask, other=0.0).to(ACC)
        y = tl.cumsum(x, axis=0) + carry
        tl.store(y_ptr + row * stride_y_row + cols, y.to(y_ptr.dtype.element_ty), mask=mask)
        carry += tl.sum(x, axis=0)


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        n_rows, n_cols = x.shape
        y = torch.empty((n_rows, n_cols), device=x.device, dtype=x.dtype)
        if y.numel() == 0:
            return y
        acc = tl.float64 if x.dtype == torch.float64 else tl.float32
        cumsum_kernel[(n_rows,)](
            x, y, n_cols, x.stride(0), x.stride(1), y.stride(0), BLOCK_SIZE=256, ACC=acc
        )
        return y
