import torch
import torch.nn as nn
import torch.nn.functional as F

DTYPE = torch.float32
BATCH = 2
CHANNELS = 3
HEIGHT = 10
WIDTH = 9


class Model(nn.Module):
    """Largest value of each window of two by two."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.max_pool2d(x, 2)


def get_inputs():
    return [torch.randn(BATCH, CHANNELS, HEIGHT, WIDTH).to(DTYPE)]


def get_init_inputs():
    return []
