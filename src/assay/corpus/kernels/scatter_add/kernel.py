import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def scatter_add_kernel(x_ptr, segment_ptr, out_ptr, n_rows, n_cols, BLOCK_SIZE: tl.constexpr):
    # One program owns a piece of one segment, so that sums come in one order.
    own = tl.program_id(0).to(tl.int64)
    cols = tl.program_id(1) * BLOCK_SIZE + tl.arange(0, BLOCK_SIZE)
    mask = cols < n_cols
    total = tl.zeros((BLOCK_SIZE,), dtype=tl.float32)
    for row in range(0, n_rows):
        segment = tl.load(segment_ptr + row)
        mine = mask & (segment == own)
        total += tl.load(x_ptr + row * n_cols + cols, mask=mine, other=0.0).to(tl.float32)
    tl.store(out_ptr + own * n_cols + cols, total.to(out_ptr.dtype.element_ty), mask=mask)


class ModelNew(nn.Module):
    def __init__(self, segments):
        super().__init__()
        self.segments = segments

    def forward(self, x: torch.Tensor, segment: torch.Tensor) -> torch.Tensor:
        x, segment = x.contiguous(), segment.contiguous()
        rows, cols = x.shape
        out = torch.empty((self.segments, cols), device=x.device, dtype=x.dtype)
        if out.numel() == 0:
            return out
        scatter_add_kernel[(self.segments, triton.cdiv(cols, 16))](x, segment, out, rows, cols, BLOCK_SIZE=16)
        return out
