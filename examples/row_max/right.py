import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def row_max_kernel(
    x_ptr,
    y_ptr,
    n_rows,
    n_cols,
    stride_row,
    stride_col,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    ACC: tl.constexpr,
):
    rows = tl.program_id(0).to(tl.int64) * BLOCK_M + tl.arange(0, BLOCK_M)
    lanes = tl.arange(0, BLOCK_N).to(tl.int64)
    best = tl.full((BLOCK_M, BLOCK_N), float("-inf"), dtype=ACC)
    seen_nan = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.int32)
    for start in range(0, n_cols, BLOCK_N):
        cols = start + lanes
        mask = (rows[:, None] < n_rows) & (cols[None, :] < n_cols)
        x = tl.load(
            x_ptr + rows[:, None] * stride_row + cols[None, :] * stride_col, mask=mask, other=float("-inf")
        ).to(ACC)
        # tl.maximum and tl.max may drop a NaN, so its presence is carried beside them.
        seen_nan = tl.where(x != x, 1, seen_nan)
        best = tl.where(x > best, x, best)
    y = tl.max(best, axis=1)
    y = tl.where(tl.max(seen_nan, axis=1) > 0, float("nan"), y)
    tl.store(y_ptr + rows, y.to(y_ptr.dtype.element_ty), mask=rows < n_rows)


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        assert x.is_cuda, "input must be on a CUDA device"
        n_rows, n_cols = x.shape
        if n_cols == 0:
            raise IndexError("maximum over a dimension of size zero")
        y = torch.empty((n_rows,), device=x.device, dtype=x.dtype)
        if n_rows == 0:
            return y
        acc = tl.float64 if x.dtype == torch.float64 else tl.float32
        row_max_kernel[(triton.cdiv(n_rows, 4),)](
            x, y, n_rows, n_cols, x.stride(0), x.stride(1), BLOCK_M=4, BLOCK_N=128, ACC=acc
        )
        return y
