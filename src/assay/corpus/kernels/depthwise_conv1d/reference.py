import torch
import torch.nn as nn
import torch.nn.functional as F

DTYPE = torch.float32
BATCH = 2
CHANNELS = 5
LENGTH = 40


class Model(nn.Module):
    """Each channel convolved with its own causal filter."""

    def __init__(self, channels):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(channels, 1, 4).to(DTYPE) / 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.conv1d(F.pad(x, (3, 0)), self.weight, groups=x.shape[1])


def get_inputs():
    return [torch.randn(BATCH, CHANNELS, LENGTH).to(DTYPE)]


def get_init_inputs():
    return [CHANNELS]
