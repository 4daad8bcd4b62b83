import torch
import torch.nn as nn
import torch.nn.functional as F

DTYPE = torch.float32
BATCH = 2
CHANNELS = 2
FILTERS = 3
HEIGHT = 11
WIDTH = 10


class Model(nn.Module):
    """Two-dimensional convolution with bias, stride two."""

    def __init__(self, channels, filters):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(filters, channels, 3, 3).to(DTYPE) / (9 * channels) ** 0.5)
        self.bias = nn.Parameter(torch.randn(filters).to(DTYPE))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.conv2d(x, self.weight, self.bias, stride=2)


def get_inputs():
    return [torch.randn(BATCH, CHANNELS, HEIGHT, WIDTH).to(DTYPE)]


def get_init_inputs():
    return [CHANNELS, FILTERS]
