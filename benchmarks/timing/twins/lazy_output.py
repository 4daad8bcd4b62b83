"""Uses a tensor subclass inside and returns a plain tensor."""
import torch


class Scaled(torch.Tensor):
    factor = 1.5


class ModelNew(torch.nn.Module):
    def forward(self, x):
        own = x.as_subclass(Scaled)
        return torch.softmax(own.factor * own, dim=-1).as_subclass(torch.Tensor)
