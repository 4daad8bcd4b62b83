import torch
import torch.nn as nn
import torch.nn.functional as F

DTYPE = torch.float32
BATCH = 3
M = 20
K = 37
N = 18


class Model(nn.Module):
    """Batched product of matrices."""

    def forward(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return torch.bmm(a, b)


def get_inputs():
    return [torch.randn(BATCH, M, K).to(DTYPE), torch.randn(BATCH, K, N).to(DTYPE)]


def get_init_inputs():
    return []
