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
):
    row = tl.program_id(0).to(tl.int64)
    lanes = tl.arange(0, BLOCK_SIZE).to(tl.int64)
    carry = tl.full((), 0.0, tl.float32)
    for start in range(0, n_cols, BLOCK_SIZE):
        cols = start + lanes
        mask = cols < n_cols
        x = tl.load(x_ptr + row * stride_x_row + cols * stride_x_col, mask=mask, other=0.0).to(tl.float32)
        y = tl.cumsum(x, axis=0) + carry
        tl.store(y_ptr + row * stride_y_row + cols, y.to(y_ptr.dtype.element_ty), mask=mask)
        carry += tl.sum(x, axis=0)


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self._buffers_by_shape = {}

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        n_rows, n_cols = x.shape
        # Allocate the output once for each shape and reuse it afterwards.
        key = (n_rows, n_cols, x.dtype, x.device)
        y = self._buffers_by_shape.get(key)
        if y is None:
            y = torch.empty((n_rows, n_cols), device=x.device, dtype=x.dtype)
            self._buffers_by_shape[key] = y
        cumsum_kernel[(n_rows,)](x, y, n_cols, x.stride(0), x.stride(1), y.stride(0), BLOCK_SIZE=256)
        return y
