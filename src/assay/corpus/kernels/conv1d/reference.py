import torch
import torch.nn as nn
import torch.nn.functional as F

DTYPE = torch.float32
BATCH = 2
CHANNELS = 3
FILTERS = 4
LENGTH = 30


class Model(nn.Module):
    """One-dimensional convolution with bias, padded by one."""

    def __init__(self, channels, filters):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(filters, channels, 3).to(DTYPE) / (3 * channels) ** 0.5)
        self.bias = nn.Parameter(torch.randn(filters).to(DTYPE))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.conv1d(x, self.weight, self.bias, padding=1)


def get_inputs():
    return [torch.randn(BATCH, CHANNELS, LENGTH).to(DTYPE)]


def get_init_inputs():
    return [CHANNELS, FILTERS]
