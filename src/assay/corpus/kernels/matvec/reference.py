import torch
import torch.nn as nn
import torch.nn.functional as F

DTYPE = torch.float32
M = 20
K = 150


class Model(nn.Module):
    """Product of a matrix and a vector."""

    def forward(self, a: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        return torch.mv(a, x)


def get_inputs():
    return [torch.randn(M, K).to(DTYPE), torch.randn(K).to(DTYPE)]


def get_init_inputs():
    return []
