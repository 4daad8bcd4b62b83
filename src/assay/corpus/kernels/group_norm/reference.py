import torch
import torch.nn as nn
import torch.nn.functional as F

DTYPE = torch.float32
BATCH = 3
GROUPS = 2
PER_GROUP = 3
LENGTH = 21


class Model(nn.Module):
    """Group norm over channels and length, with weight and bias."""

    def __init__(self, groups, channels):
        super().__init__()
        self.groups = groups
        self.weight = nn.Parameter(torch.rand(channels).to(DTYPE) + 0.5)
        self.bias = nn.Parameter(torch.randn(channels).to(DTYPE))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.group_norm(x, self.groups, self.weight, self.bias, 1e-5)


def get_inputs():
    return [torch.randn(BATCH, GROUPS * PER_GROUP, LENGTH).to(DTYPE)]


def get_init_inputs():
    return [GROUPS, GROUPS * PER_GROUP]
