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
    n_features,
    eps,
    BLOCK_SIZE: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64)
    lanes = tl.arange(0, BLOCK_SIZE)
    base = row * n_features

    total = tl.zeros((BLOCK_SIZE,), dtype=tl.float32)
    for start in range(0, n_features, BLOCK_SIZE):
        cols = start + lanes
        mask = cols < n_features
        x = tl.load(x_ptr + base + cols, mask=mask, other=0.0).to(tl.float32)
        residual = tl.load(residual_ptr + base + cols, mask=mask, other=0.0).to(tl.float32)
        hidden = (x + residual).to(residual_ptr.dtype.element_ty)
        tl.store(residual_ptr + base + cols, hidden, mask=mask)
        total += hidden.to(tl.float32) * hidden.to(tl.float32)
    scale = 1.0 / tl.sqrt(tl.sum(total, axis=0) / n_features + eps)

    for start in range(0, n_features, BLOCK_SIZE):
        cols = start + lanes
        mask = cols < n_features
        hidden = tl.load(residual_ptr + base + cols, mask=mask, other=0.0).to(tl.float32)
        weight = tl.load(weight_ptr + cols, mask=mask, other=0.0).to(tl.float32)
        y = hidden * scale * weight
        tl.store(y_ptr + base + cols, y.to(y_ptr.dtype.element_ty), mask=mask)


class ModelNew(nn.Module):
    def __init__(self, features: int):
        super().__init__()
        self.eps = 1e-6
        self.weight = nn.Parameter(torch.ones(features))

    def forward(self, x: torch.Tensor, residual: torch.Tensor):
        # The residual stream is updated where it lies, which saves one buffer of activations.
        x, residual, weight = x.contiguous(), residual.contiguous(), self.weight.contiguous()
        y = torch.empty_like(x)
        n_features = x.shape[-1]
        add_rms_norm_kernel[(x.numel() // n_features,)](
            x, residual, weight, y, n_features, self.eps, BLOCK_SIZE=256
        )
        return y, residual
