import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def row_sum_kernel(x_ptr, y_ptr, n_cols, stride_row, stride_col, BLOCK: tl.constexpr, ACC: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    acc = tl.zeros((BLOCK,), dtype=ACC)
    for start in range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK).to(tl.int64)
        x = tl.load(x_ptr + row * stride_row + cols * stride_col, mask=cols < n_cols, other=0.0)
        acc += x.to(ACC)
    tl.store(y_ptr + row, (tl.sum(acc, axis=0) / n_cols).to(y_ptr.dtype.element_ty))


def launch(x, y):
    n_rows, n_cols = x.shape
    acc = tl.float64 if x.dtype == torch.float64 else tl.float32
    if n_rows:
        row_sum_kernel[(n_rows,)](x, y, n_cols, x.stride(0), x.stride(1), BLOCK=256, ACC=acc)
    return y


class ModelNew(nn.Module):
    """Wrong: the mean of each row."""

    def __init__(self):
        super().__init__()

    def forward(self, x):
        return launch(x, torch.empty((x.shape[0],), device=x.device, dtype=x.dtype))
