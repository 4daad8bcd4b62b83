"""Keeps memory for what lies between, and returns new memory every time."""
import torch


class ModelNew(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.scratch = None

    def forward(self, x):
        if self.scratch is None or self.scratch.shape != x.shape:
            self.scratch = torch.empty_like(x)
        torch.mul(x, 1.5, out=self.scratch)
        return torch.softmax(self.scratch, dim=-1)
