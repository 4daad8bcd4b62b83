import torch
import torch.nn as nn
import torch.nn.functional as F

DTYPE = torch.float32
ROWS = 9
COLS = 90


class Model(nn.Module):
    """Each row divided by its Euclidean norm."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.normalize(x, dim=1, eps=1e-6)


def get_inputs():
    return [torch.randn(ROWS, COLS).to(DTYPE)]


def get_init_inputs():
    return []
