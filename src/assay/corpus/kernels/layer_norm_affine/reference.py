import torch
import torch.nn as nn
import torch.nn.functional as F

DTYPE = torch.float32
ROWS = 9
WIDTH = 90


class Model(nn.Module):
    """Layer norm of each row, with weight and bias."""

    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(torch.rand(width).to(DTYPE) + 0.5)
        self.bias = nn.Parameter(torch.randn(width).to(DTYPE))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.layer_norm(x, (x.shape[-1],), self.weight, self.bias, 1e-5)


def get_inputs():
    return [torch.randn(ROWS, WIDTH).to(DTYPE)]


def get_init_inputs():
    return [WIDTH]
