import torch
import torch.nn as nn
import torch.nn.functional as F

DTYPE = torch.float32
BATCH = 12
FEATURES = 70


class Model(nn.Module):
    """Batch norm with running statistics."""

    def __init__(self, features):
        super().__init__()
        self.norm = nn.BatchNorm1d(features).to(DTYPE)
        nn.init.uniform_(self.norm.running_mean, -1.0, 1.0)
        nn.init.uniform_(self.norm.running_var, 0.5, 2.0)
        nn.init.uniform_(self.norm.weight, 0.5, 1.5)
        nn.init.uniform_(self.norm.bias, -0.5, 0.5)
        self.eval()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.norm(x)


def get_inputs():
    return [torch.randn(BATCH, FEATURES).to(DTYPE)]


def get_init_inputs():
    return [FEATURES]
