import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def top_k_kernel(x_ptr, values_ptr, indices_ptr, n_cols, stride_row, stride_col, K: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    cols = tl.arange(0, BLOCK)
    mask = cols < n_cols
    x = tl.load(x_ptr + row * stride_row + cols * stride_col, mask=mask, other=0.0).to(tl.float32)
    # Integers in the order of the floats, NaN above everything.
    bits = (x + 0.0).to(tl.int32, bitcast=True)
    key = tl.where(bits < 0, bits ^ 0x7FFFFFFF, bits)
    key = tl.where(x != x, 0x7FFFFFFF, key)
    key = tl.where(mask, key, -2147483648)
    for i in range(K):
        best = tl.argmax(key, axis=0)
        value = tl.load(x_ptr + row * stride_row + best * stride_col)
        tl.store(values_ptr + row * K + i, value)
        tl.store(indices_ptr + row * K + i, best.to(tl.int64))
        key = tl.where(cols == best, -2147483648, key)


class ModelNew(nn.Module):
    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        rows, cols = x.shape
        if cols < 3:
            raise RuntimeError("fewer than three elements in a row")
        values = torch.empty((rows, 3), device=x.device, dtype=x.dtype)
        indices = torch.empty((rows, 3), device=x.device, dtype=torch.int64)
        if rows == 0:
            return values, indices
        block = triton.next_power_of_2(cols)
        top_k_kernel[(rows,)](x, values, indices, cols, x.stride(0), x.stride(1), K=3, BLOCK=block)
        return values, indices
