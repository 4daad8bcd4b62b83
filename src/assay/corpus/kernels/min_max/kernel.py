import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def min_max_kernel(x_ptr, low_ptr, high_ptr, n_cols, stride_row, stride_col, BLOCK_SIZE: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    lanes = tl.arange(0, BLOCK_SIZE).to(tl.int64)
    low = tl.full((BLOCK_SIZE,), float("inf"), dtype=tl.float32)
    high = tl.full((BLOCK_SIZE,), float("-inf"), dtype=tl.float32)
    seen_nan = tl.zeros((BLOCK_SIZE,), dtype=tl.int32)
    for start in range(0, n_cols, BLOCK_SIZE):
        cols = start + lanes
        mask = cols < n_cols
        x = tl.load(x_ptr + row * stride_row + cols * stride_col, mask=mask, other=0.0).to(tl.float32)
        seen_nan = tl.where(x != x, 1, seen_nan)
        low = tl.where(mask & (x < low), x, low)
        high = tl.where(mask & (x > high), x, high)
    poisoned = tl.max(seen_nan, axis=0) > 0
    smallest = tl.where(poisoned, float("nan"), tl.min(low, axis=0))
    largest = tl.where(poisoned, float("nan"), tl.max(high, axis=0))
    tl.store(low_ptr + row, smallest.to(low_ptr.dtype.element_ty))
    tl.store(high_ptr + row, largest.to(high_ptr.dtype.element_ty))


class ModelNew(nn.Module):
    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        rows, cols = x.shape
        if cols == 0:
            raise IndexError("extremes of a dimension of size zero")
        low = torch.empty(rows, device=x.device, dtype=x.dtype)
        high = torch.empty(rows, device=x.device, dtype=x.dtype)
        if rows == 0:
            return low, high
        min_max_kernel[(rows,)](x, low, high, cols, x.stride(0), x.stride(1), BLOCK_SIZE=128)
        return low, high
