import torch
import torch.nn as nn
import torch.nn.functional as F

DTYPE = torch.float32
M = 14
K = 150
N = 18


class Model(nn.Module):
    """Product of two matrices with a long inner dimension."""

    def forward(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return torch.matmul(a, b)


def get_inputs():
    return [torch.randn(M, K).to(DTYPE), torch.randn(K, N).to(DTYPE)]


def get_init_inputs():
    return []
