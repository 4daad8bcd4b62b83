import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def add_rms_norm_kernel(
    x_ptr,
    residual_ptr,
    weight_ptr,
    y_ptr,
    hidden_ptr,
    n_features,
    EPS: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,
    ACC: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64)
    lanes = tl.arange(0, BLOCK_SIZE)
    base = row * n_features

    total = tl.zeros((BLOCK_SIZE,), dtype=ACC)
    for start in range(0, n_features, BLOCK_SIZE):
        cols = start + lanes
        mask = cols < n_features
        x = tl.load(x_ptr + base + cols, mask=mask, other=0.0).to(ACC)
        residual = tl.load(residual_ptr + base + cols, mask=mask, other=0.0).to(ACC)
        hidden = (x + residual).to(hidden_ptr.dtype.element_ty)
        tl.store(hidden_ptr + base + cols, hidden, mask=mask)
        total += hidden.to(ACC) * hidden.to(ACC)
    scale = 1.0 / tl.sqrt(tl.sum(total, axis=0) / n_features + EPS)

    for start in range(0, n_features, BLOCK_SIZE):
        cols = start + lanes
        mask = cols < n_features
        x = tl.load(x_ptr + base + cols, mask=mask, other=0.0).to(ACC)
        residual = tl.load(residual_ptr + base + cols, mask=mask, other=0.0).to(ACC)
        hidden = (x + residual).to(hidden_ptr.dtype.element_ty).to(ACC)
        weight = tl.load(weight_ptr + cols, mask=mask, other=0.0).to(ACC)
        y = hidden * scale * weight
        tl.store(y_ptr + base + cols, y.to(y_ptr.dtype.element_ty), mask=mask)


class ModelNew(nn.Module):
    def __init__(self, features: int):
        super().__init__()
        self.eps = 1e-6
        self.weight = nn.Parameter(torch.ones(features))

    def forward(self, x: torch.Tensor, residual: torch.Tensor):
        dtype = torch.promote_types(x.dtype, residual.dtype)
        x, residual, weight = x.contiguous(), residual.contiguous(), self.weight.contiguous()
        hidden = torch.empty(x.shape, device=x.device, dtype=dtype)
        y = torch.empty(x.shape, device=x.device, dtype=torch.promote_types(dtype, weight.dtype))
        if y.numel() == 0:
            return y, hidden
        n_features = x.shape[-1]
        acc = tl.float64 if y.dtype == torch.float64 else tl.float32
        add_rms_norm_kernel[(x.numel() // n_features,)](
            x, residual, weight, y, hidden, n_features, EPS=self.eps, BLOCK_SIZE=256, ACC=acc
        )
        return y, hidden
