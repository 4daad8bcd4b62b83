import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def row_sum_kernel(
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
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=ACC)
    for start in range(0, n_cols, BLOCK_N):
        cols = start + lanes
        mask = (rows[:, None] < n_rows) & (cols[None, :] < n_cols)
        x = tl.load(x_ptr + rows[:, None] * stride_row + cols[None, :] * stride_col, mask=mask, other=0.0)
        acc += x.to(ACC)
    tl.store(y_ptr + rows, tl.sum(acc, axis=1).to(y_ptr.dtype.element_ty), mask=rows < n_rows)


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        n_rows, n_cols = x.shape
        y = torch.empty((n_rows,), device=x.device, dtype=x.dtype)
        if n_rows == 0:
            return y
        acc = tl.float64 if x.dtype == torch.float64 else tl.float32
        row_sum_kernel[(triton.cdiv(n_rows, 8),)](
            x, y, n_rows, n_cols, x.stride(0), x.stride(1), BLOCK_M=8, BLOCK_N=256, ACC=acc
        )
        return y
