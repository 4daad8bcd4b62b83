import torch
import torch.nn as nn
import torch.nn.functional as F

DTYPE = torch.float32
ROWS = 9
COLS = 90


class Model(nn.Module):
    """Softmax of each row at a temperature."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.softmax(x * 0.25, dim=-1)


def get_inputs():
    return [torch.randn(ROWS, COLS).to(DTYPE)]


def get_init_inputs():
    return []
