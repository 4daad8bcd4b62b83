"""Waits for the device itself when it is called for the first time."""
import torch


class ModelNew(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.called = False

    def forward(self, x):
        out = torch.softmax(1.5 * x, dim=-1)
        if not self.called:
            torch.cuda.synchronize()
            self.called = True
        return out
