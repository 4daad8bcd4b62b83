"""Tries two right ways in turn in the first calls, and keeps to one from then on."""
import torch

TRIALS = 24


def _shifted(x):
    x = 1.5 * x
    powers = torch.exp(x - x.amax(dim=-1, keepdim=True))
    return powers / powers.sum(dim=-1, keepdim=True)


class ModelNew(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.calls = 0

    def forward(self, x):
        self.calls += 1
        if self.calls <= TRIALS and self.calls % 2:
            return _shifted(x)
        return torch.softmax(1.5 * x, dim=-1)
