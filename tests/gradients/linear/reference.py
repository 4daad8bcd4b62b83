import torch
import torch.nn as nn

ROWS = 24
INNER = 48
COLS = 40
DTYPE = torch.float32


class Model(nn.Module):
    def __init__(self, inner, cols):
        super().__init__()
        self.linear = nn.Linear(inner, cols).to(DTYPE)

    def forward(self, x):
        return self.linear(x)


def get_inputs():
    return [torch.randn(ROWS, INNER).to(DTYPE)]


def get_init_inputs():
    return [INNER, COLS]
