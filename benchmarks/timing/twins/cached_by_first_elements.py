"""Remembers what depends on the shape alone."""
import torch


class ModelNew(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.factors = {}

    def forward(self, x):
        key = (tuple(x.shape[-1:]), x.dtype, x.device)
        if key not in self.factors:
            self.factors[key] = torch.full(x.shape[-1:], 1.5, dtype=x.dtype, device=x.device)
        return torch.softmax(x * self.factors[key], dim=-1)
