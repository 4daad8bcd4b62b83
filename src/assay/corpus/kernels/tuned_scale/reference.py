import torch
import torch.nn as nn
import torch.nn.functional as F

DTYPE = torch.float32
ROWS = 9
WIDTH = 50


class Model(nn.Module):
    """Rows scaled by a weight for each column, with an autotuned block."""

    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(width).to(DTYPE))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.weight


def get_inputs():
    return [torch.randn(ROWS, WIDTH).to(DTYPE)]


def get_init_inputs():
    return [WIDTH]
