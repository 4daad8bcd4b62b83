"""Packs its weight once, and again when the weight is another one or has changed."""
import torch


class ModelNew(torch.nn.Module):
    def __init__(self, in_features, out_features):
        super().__init__()
        self.linear = torch.nn.Linear(in_features, out_features)
        self.packed, self.key = None, None

    def forward(self, x):
        weight = self.linear.weight
        key = (weight.data_ptr(), weight._version)
        if key != self.key:
            self.packed, self.key = weight.detach().t().contiguous(), key
        return torch.relu(torch.addmm(self.linear.bias, x, self.packed))
