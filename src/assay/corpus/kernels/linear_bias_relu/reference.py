import torch
import torch.nn as nn
import torch.nn.functional as F

DTYPE = torch.float32
BATCH = 20
IN_FEATURES = 45
OUT_FEATURES = 24


class Model(nn.Module):
    """Linear layer with bias and rectifier."""

    def __init__(self, in_features, out_features):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(out_features, in_features).to(DTYPE) / in_features**0.5)
        self.bias = nn.Parameter(torch.randn(out_features).to(DTYPE))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(F.linear(x, self.weight, self.bias))


def get_inputs():
    return [torch.randn(BATCH, IN_FEATURES).to(DTYPE)]


def get_init_inputs():
    return [IN_FEATURES, OUT_FEATURES]
