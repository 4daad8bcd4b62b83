import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def row_norm_kernel(x_ptr, out_ptr, n_cols, stride_row, stride_col, BLOCK_SIZE: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    lanes = tl.arange(0, BLOCK_SIZE).to(tl.int64)
    # Scaled by the largest element, so that squares neither overflow nor vanish.
    largest = tl.zeros((BLOCK_SIZE,), dtype=tl.float32)
    for start in range(0, n_cols, BLOCK_SIZE):
        cols = start + lanes
        mask = cols < n_cols
        x = tl.load(x_ptr + row * stride_row + cols * stride_col, mask=mask, other=0.0).to(tl.float32)
        largest = tl.where(tl.abs(x) > largest, tl.abs(x), largest)
    scale = tl.max(largest, axis=0)
    scale = tl.where((scale == 0.0) | (scale == float("inf")), 1.0, scale)
    squares = tl.zeros((BLOCK_SIZE,), dtype=tl.float32)
    for start in range(0, n_cols, BLOCK_SIZE):
        cols = start + lanes
        mask = cols < n_cols
        x = tl.load(x_ptr + row * stride_row + cols * stride_col, mask=mask, other=0.0).to(tl.float32)
        squares += (x / scale) * (x / scale)
    norm = tl.sqrt(tl.sum(squares, axis=0)) * scale
    tl.store(out_ptr + row, norm.to(out_ptr.dtype.element_ty))


class ModelNew(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        rows, cols = x.shape
        out = torch.empty(rows, device=x.device, dtype=x.dtype)
        if rows == 0:
            return out
        row_norm_kernel[(rows,)](x, out, cols, x.stride(0), x.stride(1), BLOCK_SIZE=128)
        return out
