"""Writes to a file of its own, as a kernel that logs does."""
import torch


class ModelNew(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.logged = False

    def forward(self, x):
        if not self.logged:
            with open("calls.log", "w", encoding="utf-8") as file:
                file.write(f"{tuple(x.shape)}\n")
            self.logged = True
        return torch.softmax(1.5 * x, dim=-1)
