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
    ACC: tl.constexpr,
):
    rows = tl.program_id(0).to(tl.int64) * BLOCK_M + tl.arange(0, BLOCK_M)
    lanes = tl.arange(0, BLOCK_N).to(tl.int64)

    best = tl.full((BLOCK_M,), float("-inf"), dtype=ACC)
    best_index = tl.zeros((BLOCK_M,), dtype=tl.int64) + n_cols
    nan_index = tl.zeros((BLOCK_M,), dtype=tl.int64) + n_cols
    for start in range(0, n_cols, BLOCK_N):
        cols = start + lanes
        mask = (rows[:, None] < n_rows) & (cols[None, :] < n_cols)
        x = tl.load(
            x_ptr + rows[:, None] * stride_row + cols[None, :] * stride_col, mask=mask, other=float("-inf")
        ).to(ACC)
        position = tl.where(mask, cols[None, :], n_cols)

        # NaN compares false with everything: look for the first one by itself.
        is_nan = x != x
        nan_index = tl.minimum(nan_index, tl.min(tl.where(is_nan, position, n_cols), axis=1))

        x = tl.where(is_nan, float("-inf"), x)
        block_best = tl.max(x, axis=1)
        block_index = tl.min(tl.where(x == block_best[:, None], position, n_cols), axis=1)
        # Only a strictly larger value replaces an earlier one, so the first of equals stays.
        better = (block_best > best) | (best_index == n_cols)
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
        if n_cols == 0:
            raise IndexError("argmax of a dimension of size zero")
        indices = torch.empty((n_rows,), device=x.device, dtype=torch.int64)
        if n_rows == 0:
            return indices
        acc = tl.float64 if x.dtype == torch.float64 else tl.float32
        row_argmax_kernel[(triton.cdiv(n_rows, 4),)](
            x, indices, n_rows, n_cols, x.stride(0), x.stride(1), BLOCK_M=4, BLOCK_N=128, ACC=acc
        )
        return indices
