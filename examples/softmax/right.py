import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def softmax_kernel(
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
    x_row = x_ptr + row * stride_x_row
    y_row = y_ptr + row * stride_y_row

    # First sweep: running maximum, and the sum rescaled whenever the maximum grows.
    row_max = tl.full((), float("-inf"), ACC)
    row_sum = tl.full((), 0.0, ACC)
    for start in range(0, n_cols, BLOCK_SIZE):
        cols = start + lanes
        x = tl.load(x_row + cols * stride_x_col, mask=cols < n_cols, other=float("-inf")).to(ACC)
        new_max = tl.maximum(row_max, tl.max(x, axis=0))
        # While only -inf has been seen, shift by zero: -inf - (-inf) would be NaN.
        shift = tl.where(new_max == float("-inf"), 0.0, new_max)
        row_sum = row_sum * tl.exp(row_max - shift) + tl.sum(tl.exp(x - shift), axis=0)
        row_max = new_max

    # Second sweep: normalise.
    for start in range(0, n_cols, BLOCK_SIZE):
        cols = start + lanes
        x = tl.load(x_row + cols * stride_x_col, mask=cols < n_cols, other=float("-inf")).to(ACC)
        y = tl.exp(x - row_max) / row_sum
        tl.store(y_row + cols, y.to(y_ptr.dtype.element_ty), mask=cols < n_cols)


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        n_rows, n_cols = x.shape
        y = torch.empty((n_rows, n_cols), device=x.device, dtype=x.dtype)
        if y.numel() == 0:
            return y
        acc = tl.float64 if x.dtype == torch.float64 else tl.float32
        softmax_kernel[(n_rows,)](
            x, y, n_cols, x.stride(0), x.stride(1), y.stride(0), BLOCK_SIZE=512, ACC=acc
        )
        return y
