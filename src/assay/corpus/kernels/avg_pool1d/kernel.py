import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def avg_pool_kernel(x_ptr, out_ptr, length, out_length, BLOCK_SIZE: tl.constexpr, WINDOW: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    at = tl.program_id(1) * BLOCK_SIZE + tl.arange(0, BLOCK_SIZE)
    mask = at < out_length
    total = tl.zeros((BLOCK_SIZE,), dtype=tl.float32)
    for tap in range(0, WINDOW):
        total += tl.load(x_ptr + row * length + at * WINDOW + tap, mask=mask, other=0.0).to(tl.float32)
    tl.store(out_ptr + row * out_length + at, (total / WINDOW).to(out_ptr.dtype.element_ty), mask=mask)


class ModelNew(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x.contiguous()
        batch, channels, length = x.shape
        if length < 3:
            raise ValueError("the signal is shorter than the window")
        out_length = length // 3
        out = torch.empty((batch, channels, out_length), device=x.device, dtype=x.dtype)
        if out.numel() == 0:
            return out
        avg_pool_kernel[(batch * channels, triton.cdiv(out_length, 16))](
            x, out, length, out_length, BLOCK_SIZE=16, WINDOW=3
        )
        return out
