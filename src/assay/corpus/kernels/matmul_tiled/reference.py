import torch
import torch.nn as nn
import torch.nn.functional as F

DTYPE = torch.float32
M = 40
K = 50
N = 24


class Model(nn.Module):
    """Product of two matrices."""

    def forward(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return torch.matmul(a, b)


def get_inputs():
    return [torch.randn(M, K).to(DTYPE), torch.randn(K, N).to(DTYPE)]


def get_init_inputs():
    return []
