import torch
import torch.nn as nn


def one(v):
    return 0.5 * v * (1 + torch.erf(v / 2 ** 0.5))


class ModelNew(nn.Module):
    def forward(self, x):
        return torch.func.vmap(one)(x)
