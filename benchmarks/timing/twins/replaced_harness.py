"""Looks through the loaded modules, as libraries do to find out what they run with, and changes none."""
import sys

import torch

_has_triton = any(name == "triton" for name in list(sys.modules))


class ModelNew(torch.nn.Module):
    def forward(self, x):
        return torch.softmax(1.5 * x, dim=-1)
