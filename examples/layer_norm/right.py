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
    EPS: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,
    ACC: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64)
    lanes = tl.arange(0, BLOCK_SIZE)
    x_row = x_ptr + row * n_features
    y_row = y_ptr + row * n_features

    total = tl.zeros((BLOCK_SIZE,), dtype=ACC)
    for start in range(0, n_features, BLOCK_SIZE):
        cols = start + lanes
        total += tl.load(x_row + cols, mask=cols < n_features, other=0.0).to(ACC)
    mean = tl.sum(total, axis=0) / n_features

    # The variance is taken about the mean in a sweep of its own; padding lanes add nothing.
    # The same sweep measures what the mean lost to rounding, which is then put back.
    first = tl.zeros((BLOCK_SIZE,), dtype=ACC)
    second = tl.zeros((BLOCK_SIZE,), dtype=ACC)
    for start in range(0, n_features, BLOCK_SIZE):
        cols = start + lanes
        x = tl.load(x_row + cols, mask=cols < n_features, other=0.0).to(ACC)
        centred = tl.where(cols < n_features, x - mean, 0.0)
        first += centred
        second += centred * centred
    residue = tl.sum(first, axis=0) / n_features
    var = tl.sum(second, axis=0) / n_features - residue * residue
    # Not tl.maximum, which may turn a NaN into zero.
    rstd = 1.0 / tl.sqrt(tl.where(var < 0.0, 0.0, var) + EPS)

    for start in range(0, n_features, BLOCK_SIZE):
        cols = start + lanes
        mask = cols < n_features
        x = tl.load(x_row + cols, mask=mask, other=0.0).to(ACC)
        weight = tl.load(weight_ptr + cols, mask=mask, other=0.0).to(ACC)
        bias = tl.load(bias_ptr + cols, mask=mask, other=0.0).to(ACC)
        y = (x - mean - residue) * rstd * weight + bias
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
        if y.numel() == 0:
            return y
        acc = tl.float64 if x.dtype == torch.float64 else tl.float32
        layer_norm_kernel[(x.numel() // n_features,)](
            x, weight, bias, y, n_features, EPS=self.norm.eps, BLOCK_SIZE=256, ACC=acc
        )
        return y
