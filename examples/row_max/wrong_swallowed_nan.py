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
):
    rows = tl.program_id(0).to(tl.int64) * BLOCK_M + tl.arange(0, BLOCK_M)
    lanes = tl.arange(0, BLOCK_N).to(tl.int64)
    best = tl.full((BLOCK_M, BLOCK_N), float("-inf"), dtype=tl.float32)
    for start in range(0, n_cols, BLOCK_N):
        cols = start + lanes
        mask = (rows[:, None] < n_rows) & (cols[None, :] < n_cols)
        x = tl.load(
            x_ptr + rows[:, None] * stride_row + cols[None, :] * stride_col, mask=mask, other=float("-inf")
        ).to(tl.float32)
        best = tl.where(x > best, x, best)
    y = tl.max(best, axis=1)
    tl.store(y_ptr + rows, y.to(y_ptr.dtype.element_ty), mask=rows < n_rows)


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        assert x.is_cuda, "input must be on a CUDA device"
        n_rows, n_cols = x.shape
        y = torch.empty((n_rows,), device=x.device, dtype=x.dtype)
        row_max_kernel[(triton.cdiv(n_rows, 4),)](
            x, y, n_rows, n_cols, x.stride(0), x.stride(1), BLOCK_M=4, BLOCK_N=128
        )
        return y
