import torch
import torch.nn as nn

DTYPE = torch.float32


class Lookup(torch.autograd.Function):
    @staticmethod
    def forward(ctx, index, weight):
        ctx.save_for_backward(index, weight)
        return weight[index]

    @staticmethod
    def backward(ctx, g):
        index, weight = ctx.saved_tensors
        flat = g.reshape(-1, g.shape[-1]).float()
        total = torch.zeros(weight.shape, dtype=torch.float32, device=g.device)
        dw = total.index_add_(0, index.reshape(-1), flat).to(weight.dtype)
        return None, dw


class ModelNew(nn.Module):
    def __init__(self, words, dim):
        super().__init__()
        self.table = nn.Embedding(words, dim).to(DTYPE)

    def forward(self, index):
        return Lookup.apply(index, self.table.weight)
