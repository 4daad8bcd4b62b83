import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, grad_output, x, weight):
        mean = x.mean(-1, keepdim=True)
        rstd = torch.rsqrt(x.var(-1, keepdim=True, correction=0) + 1e-5)
        hat = (x - mean) * rstd
        g = grad_output * weight
        dx = rstd * (g - g.mean(-1, keepdim=True) - hat * (g * hat).mean(-1, keepdim=True))
        return dx, (grad_output * hat).sum(0)
