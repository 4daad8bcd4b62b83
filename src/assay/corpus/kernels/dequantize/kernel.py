import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def dequantize_kernel(codes_ptr, scale_ptr, out_ptr, n_cols, BLOCK_SIZE: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    cols = tl.program_id(1) * BLOCK_SIZE + tl.arange(0, BLOCK_SIZE)
    mask = cols < n_cols
    codes = tl.load(codes_ptr + row * n_cols + cols, mask=mask, other=0).to(tl.float32)
    scale = tl.load(scale_ptr + row).to(tl.float32)
    out = codes * scale
    tl.store(out_ptr + row * n_cols + cols, out.to(out_ptr.dtype.element_ty), mask=mask)


class ModelNew(nn.Module):
    def forward(self, codes: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
        codes, scale = codes.contiguous(), scale.contiguous()
        rows, cols = codes.shape
        out = torch.empty((rows, cols), device=codes.device, dtype=scale.dtype)
        if out.numel() == 0:
            return out
        dequantize_kernel[(rows, triton.cdiv(cols, 32))](codes, scale, out, cols, BLOCK_SIZE=32)
        return out
