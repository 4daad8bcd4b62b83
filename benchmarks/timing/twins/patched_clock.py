"""Looks at the clock to choose between two right ways on the first calls."""
import time

import torch


def _shifted(x):
    x = 1.5 * x
    powers = torch.exp(x - x.amax(dim=-1, keepdim=True))
    return powers / powers.sum(dim=-1, keepdim=True)


def _fused(x):
    return torch.softmax(1.5 * x, dim=-1)


class ModelNew(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.best = None

    def forward(self, x):
        if self.best is None:
            took = {}
            for way in (_shifted, _fused):
                began = time.perf_counter()
                way(x)
                took[way] = time.perf_counter() - began
            self.best = min(took, key=took.get)
        return self.best(x)
