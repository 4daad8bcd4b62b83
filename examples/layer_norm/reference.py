import torch
import torch.nn as nn


class Model(nn.Module):
    """Layer normalisation over the features, with a learned scale and shift."""

    def __init__(self, features: int):
        super().__init__()
        self.norm = nn.LayerNorm(features)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.norm(x)


BATCH = 8
TOKENS = 4
FEATURES = 384


def get_inputs():
    return [torch.randn(BATCH, TOKENS, FEATURES)]


def get_init_inputs():
    return [FEATURES]
