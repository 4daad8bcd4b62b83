import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def transpose_kernel(x_ptr, out_ptr, n_rows, n_cols, stride_row, stride_col, BLOCK: tl.constexpr):
    rows = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    cols = tl.program_id(1).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = (rows[:, None] < n_rows) & (cols[None, :] < n_cols)
    tile = tl.load(x_ptr + rows[:, None] * stride_row + cols[None, :] * stride_col, mask=mask, other=0.0)
    tl.store(out_ptr + cols[None, :] * n_rows + rows[:, None], tile, mask=mask)


class ModelNew(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        rows, cols = x.shape
        out = torch.empty((cols, rows), device=x.device, dtype=x.dtype)
        if out.numel() == 0:
            return out
        transpose_kernel[(triton.cdiv(rows, 16), triton.cdiv(cols, 16))](
            x, out, rows, cols, x.stride(0), x.stride(1), BLOCK=16
        )
        return out
