import torch
import torch.nn as nn
import torch.nn.functional as F

DTYPE = torch.float32
ROWS = 12
COLS = 75


class Model(nn.Module):
    """Values limited to an interval; NaN stays NaN."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.clamp(x, -0.8, 1.1)


def get_inputs():
    return [torch.randn(ROWS, COLS).to(DTYPE)]


def get_init_inputs():
    return []
