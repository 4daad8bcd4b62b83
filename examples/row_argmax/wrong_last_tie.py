import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def row_argmax_kernel(
    x_ptr,
    indices_ptr,
    n_rows,
    n_cols,
    stride_row,
    stride_col,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
):
    rows = tl.program_id(0).to(tl.int64) * BLOCK_M + tl.arange(0, BLOCK_M)
    lanes = tl.arange(0, BLOCK_N).to(tl.int64)
    best = tl.full((BLOCK_M,), float("-inf"), dtype=tl.float32)
    best_index = tl.zeros((BLOCK_M,), dtype=tl.int64)
    nan_index = tl.zeros((BLOCK_M,), dtype=tl.int64) + n_cols
    for start in range(0, n_cols, BLOCK_N):
        cols = start + lanes
        mask = (rows[:, None] < n_rows) & (cols[None, :] < n_cols)
        x = tl.load(
            x_ptr + rows[:, None] * stride_row + cols[None, :] * stride_col, mask=mask, other=float("-inf")
        ).to(tl.float32)
        is_nan = x != x
        nan_index = tl.minimum(nan_index, tl.min(tl.where(is_nan, cols[None, :], n_cols), axis=1))
        x = tl.where(is_nan, float("-inf"), x)
        block_best = tl.max(x, axis=1)
        block_index = tl.max(tl.where((x == block_best[:, None]) & mask, cols[None, :], 0), axis=1)
        better = block_best >= best
        best_index = tl.where(better, block_index, best_index)
        best = tl.where(better, block_best, best)
    best_index = tl.where(nan_index < n_cols, nan_index, best_index)
    tl.store(indices_ptr + rows, best_index, mask=rows < n_rows)


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()

    def forward(self, x: torch.Tensor):
        assert x.is_cuda, "input must be on a CUDA device"
        n_rows, n_cols = x.shape
        indices = torch.empty((n_rows,), device=x.device, dtype=torch.int64)
        row_argmax_kernel[(triton.cdiv(n_rows, 4),)](
            x, indices, n_rows, n_cols, x.stride(0), x.stride(1), BLOCK_M=4, BLOCK_N=128
        )
        return indices
