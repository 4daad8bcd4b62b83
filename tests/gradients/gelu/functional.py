import torch
import torch.nn as nn


def one(v):
    return 0.5 * v * (1 + torch.erf(v / 2 ** 0.5))


class Gelu(torch.autograd.Function):
    @staticmethod
    def forward(x):
        return one(x)
    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(inputs[0])
    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return torch.func.vjp(one, x)[1](g)[0]


class ModelNew(nn.Module):
    def forward(self, x):
        return Gelu.apply(x)
