import torch
import torch.nn as nn
import triton
import triton.language as tl

DTYPE = torch.float32


@triton.jit
def batch_norm_kernel(
    x_ptr, mean_ptr, var_ptr, weight_ptr, bias_ptr, out_ptr, n_rows, n_cols, stride_row, stride_col, eps,
    BLOCK_ROWS: tl.constexpr, BLOCK_COLS: tl.constexpr
):
    rows = tl.program_id(0).to(tl.int64) * BLOCK_ROWS + tl.arange(0, BLOCK_ROWS)
    cols = tl.program_id(1).to(tl.int64) * BLOCK_COLS + tl.arange(0, BLOCK_COLS)
    inside = cols < n_cols
    mask = (rows[:, None] < n_rows) & inside[None, :]
    x = tl.load(x_ptr + rows[:, None] * stride_row + cols[None, :] * stride_col, mask=mask, other=0.0)
    mean = tl.load(mean_ptr + cols, mask=inside, other=0.0).to(tl.float32)
    variance = tl.load(var_ptr + cols, mask=inside, other=1.0).to(tl.float32)
    weight = tl.load(weight_ptr + cols, mask=inside, other=0.0).to(tl.float32)
    bias = tl.load(bias_ptr + cols, mask=inside, other=0.0).to(tl.float32)
    scale = weight / tl.sqrt(variance + eps)
    out = (x.to(tl.float32) - mean[None, :]) * scale[None, :] + bias[None, :]
    tl.store(out_ptr + rows[:, None] * n_cols + cols[None, :], out.to(out_ptr.dtype.element_ty), mask=mask)


class ModelNew(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.norm = nn.BatchNorm1d(features).to(DTYPE)
        nn.init.uniform_(self.norm.running_mean, -1.0, 1.0)
        nn.init.uniform_(self.norm.running_var, 0.5, 2.0)
        nn.init.uniform_(self.norm.weight, 0.5, 1.5)
        nn.init.uniform_(self.norm.bias, -0.5, 0.5)
        self.eval()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        rows, cols = x.shape
        norm = self.norm
        out = torch.empty((rows, cols), device=x.device, dtype=x.dtype)
        if out.numel() == 0:
            return out
        grid = (triton.cdiv(rows, 8), triton.cdiv(cols, 32))
        batch_norm_kernel[grid](
            x, norm.running_mean, norm.running_var, norm.weight, norm.bias, out, rows, cols,
            x.stride(0), x.stride(1), norm.eps, BLOCK_ROWS=8, BLOCK_COLS=32
        )
        return out
