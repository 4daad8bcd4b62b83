import torch
import torch.nn as nn
import triton
import triton.language as tl

DTYPE = torch.float32


@triton.jit
def forward_kernel(x_ptr, weight_ptr, out_ptr, scale_ptr, n_cols, eps, BLOCK_SIZE: tl.constexpr):
    row, cols = tl.program_id(0), tl.arange(0, BLOCK_SIZE)
    mask = cols < n_cols
    x = tl.load(x_ptr + row * n_cols + cols, mask=mask, other=0.0).to(tl.float32)
    weight = tl.load(weight_ptr + cols, mask=mask, other=0.0).to(tl.float32)
    scale = 1.0 / tl.sqrt(tl.sum(x * x, axis=0) / n_cols + eps)
    out = x * scale * weight
    tl.store(out_ptr + row * n_cols + cols, out.to(out_ptr.dtype.element_ty), mask=mask)
    tl.store(scale_ptr + row, scale)


@triton.jit
def backward_kernel(x_ptr, weight_ptr, up_ptr, scale_ptr, dx_ptr, part_ptr, n_cols, BLOCK_SIZE: tl.constexpr):
    row, cols = tl.program_id(0), tl.arange(0, BLOCK_SIZE)
    mask = cols < n_cols
    scale = tl.load(scale_ptr + row)
    hat = tl.load(x_ptr + row * n_cols + cols, mask=mask, other=0.0).to(tl.float32) * scale
    up = tl.load(up_ptr + row * n_cols + cols, mask=mask, other=0.0).to(tl.float32)
    tl.store(part_ptr + row * n_cols + cols, up * hat, mask=mask)
    up = up * tl.load(weight_ptr + cols, mask=mask, other=0.0).to(tl.float32)
    along = tl.sum(up * hat, axis=0) / n_cols
    dx = scale * (up - hat * along)
    tl.store(dx_ptr + row * n_cols + cols, dx.to(dx_ptr.dtype.element_ty), mask=mask)


class Norm(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight):
        x = x.contiguous()
        rows, cols = x.shape
        out = torch.empty_like(x)
        scale = torch.empty(rows, dtype=torch.float32, device=x.device)
        if x.numel() > 0:
            block = triton.next_power_of_2(cols)
            forward_kernel[(rows,)](x, weight, out, scale, cols, 1e-6, BLOCK_SIZE=block)
        ctx.save_for_backward(x, weight, scale)
        return out

    @staticmethod
    def backward(ctx, up):
        x, weight, scale = ctx.saved_tensors
        up = up.contiguous()
        rows, cols = x.shape
        dx = torch.empty_like(x)
        part = torch.empty(rows, cols, dtype=torch.float32, device=x.device)
        if x.numel() > 0:
            block = triton.next_power_of_2(cols)
            backward_kernel[(rows,)](x, weight, up, scale, dx, part, cols, BLOCK_SIZE=block)
        dw = part.sum(0).to(weight.dtype)
        return dx, dw


class ModelNew(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(torch.rand(width).to(DTYPE) + 0.5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return Norm.apply(x, self.weight)
