import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    """Gated activation: silu(gate) * up."""

    def __init__(self):
        super().__init__()

    def forward(self, gate: torch.Tensor, up: torch.Tensor) -> torch.Tensor:
        return F.silu(gate) * up


TOKENS = 64
FEATURES = 512


def get_inputs():
    return [torch.randn(TOKENS, FEATURES), torch.randn(TOKENS, FEATURES)]


def get_init_inputs():
    return []
