import torch
import torch.nn as nn
import torch.nn.functional as F

DTYPE = torch.float32
TOKENS = 30
VOCABULARY = 40
WIDTH = 37


class Model(nn.Module):
    """Rows of a table by their indices."""

    def __init__(self, vocabulary, width):
        super().__init__()
        self.table = nn.Parameter(torch.randn(vocabulary, width).to(DTYPE))

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return F.embedding(tokens, self.table)


def get_inputs():
    return [torch.randint(0, VOCABULARY, (TOKENS,))]


def get_init_inputs():
    return [VOCABULARY, WIDTH]
