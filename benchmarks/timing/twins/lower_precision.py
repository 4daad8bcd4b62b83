"""Multiplies another way once the same shapes keep coming, in the same precision."""
import torch


class ModelNew(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.seen = {}

    def forward(self, a, b):
        key = (a.shape, b.shape)
        self.seen[key] = self.seen.get(key, 0) + 1
        if self.seen[key] > 3:
            return torch.mm(a, b)
        half = a.shape[0] // 2
        return torch.cat([torch.mm(a[:half], b), torch.mm(a[half:], b)])
