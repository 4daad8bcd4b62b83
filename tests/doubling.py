"""A task that costs next to nothing, and a right kernel for it: where the kernel is not what is tested."""

from __future__ import annotations

REFERENCE = """
import torch
import torch.nn as nn

class Model(nn.Module):
    def forward(self, x):
        return x * 2

ROWS = 6

def get_inputs():
    return [torch.randn(ROWS, 5)]

def get_init_inputs():
    return []
"""
RIGHT = (
    "import torch.nn as nn\n\nclass ModelNew(nn.Module):\n    def forward(self, x):\n        return x + x\n"
)
