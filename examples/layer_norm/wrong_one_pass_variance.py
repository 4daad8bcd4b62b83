import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def layer_norm_kernel(
    x_ptr,
    weight_ptr,
    bias_ptr,
    y_ptr,
    n_features,
    eps,
    BLOCK_SIZE: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64)
    lanes = tl.arange(0, BLOCK_SIZE)
    x_row = x_ptr + row * n_features
    y_row = y_ptr + row * n_features

    # One sweep for both moments: Var[x] = E[x^2] - E[x]^2.
    total = tl.zeros((BLOCK_SIZE,), dtype=tl.float32)
    total_sq = tl.zeros((BLOCK_SIZE,), dtype=tl.float32)
    for start in range(0, n_features, BLOCK_SIZE):
        cols = start + lanes
        x = tl.load(x_row + cols, mask=cols < n_features, other=0.0).to(tl.float32)
        total += x
        total_sq += x * x
    mean = tl.sum(total, axis=0) / n_features
    var = tl.sum(total_sq, axis=0) / n_features - mean * mean
    rstd = 1.0 / tl.sqrt(tl.maximum(var, 0.0) + eps)

    for start in range(0, n_features, BLOCK_SIZE):
        cols = start + lanes
        mask = cols < n_features
        x = tl.load(x_row + cols, mask=mask, other=0.0).to(tl.float32)
        weight = tl.load(weight_ptr + cols, mask=mask, other=0.0).to(tl.float32)
        bias = tl.load(bias_ptr + cols, mask=mask, other=0.0).to(tl.float32)
        y = (x - mean) * rstd * weight + bias
        tl.store(y_row + cols, y.to(y_ptr.dtype.element_ty), mask=mask)


class ModelNew(nn.Module):
    def __init__(self, features: int):
        super().__init__()
        self.norm = nn.LayerNorm(features)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        assert x.is_cuda, "input must be on a CUDA device"
        x = x.contiguous()
        weight = self.norm.weight.contiguous()
        bias = self.norm.bias.contiguous()
        y = torch.empty_like(x)
        n_features = x.shape[-1]
        layer_norm_kernel[(x.numel() // n_features,)](
            x, weight, bias, y, n_features, self.norm.eps, BLOCK_SIZE=256
        )
        return y
