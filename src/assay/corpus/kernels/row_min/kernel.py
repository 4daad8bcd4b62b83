import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def row_min_kernel(x_ptr, out_ptr, n_cols, stride_row, stride_col, BLOCK_SIZE: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    lanes = tl.arange(0, BLOCK_SIZE).to(tl.int64)
    best = tl.full((BLOCK_SIZE,), float("inf"), dtype=tl.float32)
    seen_nan = tl.zeros((BLOCK_SIZE,), dtype=tl.int32)
    for start in range(0, n_cols, BLOCK_SIZE):
        cols = start + lanes
        mask = cols < n_cols
        x = tl.load(x_ptr + row * stride_row + cols * stride_col, mask=mask, other=float("inf")).to(tl.float32)
        seen_nan = tl.where(x != x, 1, seen_nan)
        best = tl.where(x < best, x, best)
    smallest = tl.min(best, axis=0)
    smallest = tl.where(tl.max(seen_nan, axis=0) > 0, float("nan"), smallest)
    tl.store(out_ptr + row, smallest.to(out_ptr.dtype.element_ty))


class ModelNew(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        rows, cols = x.shape
        if cols == 0:
            raise IndexError("minimum over a dimension of size zero")
        out = torch.empty(rows, device=x.device, dtype=x.dtype)
        if rows == 0:
            return out
        row_min_kernel[(rows,)](x, out, cols, x.stride(0), x.stride(1), BLOCK_SIZE=128)
        return out
