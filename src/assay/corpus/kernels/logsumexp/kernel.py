import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def logsumexp_kernel(x_ptr, out_ptr, n_cols, stride_row, stride_col, BLOCK_SIZE: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    lanes = tl.arange(0, BLOCK_SIZE).to(tl.int64)
    largest = tl.full((BLOCK_SIZE,), float("-inf"), dtype=tl.float32)
    for start in range(0, n_cols, BLOCK_SIZE):
        cols = start + lanes
        mask = cols < n_cols
        x = tl.load(x_ptr + row * stride_row + cols * stride_col, mask=mask, other=float("-inf")).to(tl.float32)
        largest = tl.maximum(largest, x)
    shift = tl.max(largest, axis=0)
    # An infinite maximum cannot be subtracted from itself.
    shift = tl.where(tl.abs(shift) == float("inf"), 0.0, shift)
    total = tl.zeros((BLOCK_SIZE,), dtype=tl.float32)
    for start in range(0, n_cols, BLOCK_SIZE):
        cols = start + lanes
        mask = cols < n_cols
        x = tl.load(x_ptr + row * stride_row + cols * stride_col, mask=mask, other=float("-inf")).to(tl.float32)
        total += tl.exp(x - shift)
    result = tl.log(tl.sum(total, axis=0)) + shift
    tl.store(out_ptr + row, result.to(out_ptr.dtype.element_ty))


class ModelNew(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        rows, cols = x.shape
        out = torch.empty(rows, device=x.device, dtype=x.dtype)
        if rows == 0:
            return out
        logsumexp_kernel[(rows,)](x, out, cols, x.stride(0), x.stride(1), BLOCK_SIZE=128)
        return out
