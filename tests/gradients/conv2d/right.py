import torch
import torch.nn as nn
import torch.nn.functional as F

DTYPE = torch.float32


class Conv(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight, bias):
        ctx.save_for_backward(x, weight)
        return F.conv2d(x, weight, bias, stride=2, padding=1)

    @staticmethod
    def backward(ctx, g):
        x, weight = ctx.saved_tensors
        wide = g.float()
        dx = torch.nn.grad.conv2d_input(x.shape, weight.float(), wide, stride=2, padding=1).to(x.dtype)
        patches = F.unfold(x.float(), 3, stride=2, padding=1)
        dw = torch.einsum("bol,bkl->ok", wide.flatten(2), patches).reshape(weight.shape).to(x.dtype)
        db = wide.sum((0, 2, 3)).to(x.dtype)
        return dx, dw, db


class ModelNew(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.conv = nn.Conv2d(channels, 5, 3, stride=2, padding=1).to(DTYPE)

    def forward(self, x):
        return Conv.apply(x, self.conv.weight, self.conv.bias)
