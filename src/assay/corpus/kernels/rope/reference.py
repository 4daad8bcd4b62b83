import torch
import torch.nn as nn
import torch.nn.functional as F

DTYPE = torch.float32
BATCH = 2
HEADS = 2
LENGTH = 9
HALF = 10


class Model(nn.Module):
    """Rotary position embedding of interleaved halves."""

    def forward(self, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
        first, second = x[..., : cos.shape[-1]], x[..., cos.shape[-1] :]
        return torch.cat((first * cos - second * sin, second * cos + first * sin), dim=-1)


def get_inputs():
    return [torch.randn(BATCH, HEADS, LENGTH, 2 * HALF).to(DTYPE), torch.randn(LENGTH, HALF).to(DTYPE), torch.randn(LENGTH, HALF).to(DTYPE)]


def get_init_inputs():
    return []
