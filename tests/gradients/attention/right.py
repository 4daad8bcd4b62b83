import math

import torch
import torch.nn as nn


class Attention(torch.autograd.Function):
    @staticmethod
    def forward(ctx, q, k, v):
        wide = [t.float() for t in (q, k, v)]
        scale = 1 / math.sqrt(q.shape[-1])
        hidden = torch.ones(q.shape[-2], k.shape[-2], dtype=torch.bool, device=q.device).triu(1)
        scores = (wide[0] @ wide[1].mT * scale).masked_fill(hidden, -math.inf)
        p = torch.softmax(scores, dim=-1)
        ctx.save_for_backward(q, k, v, p)
        ctx.scale = scale
        return (p @ wide[2]).to(q.dtype)

    @staticmethod
    def backward(ctx, g):
        q, k, v, p = ctx.saved_tensors
        wide = g.float()
        dv = p.mT @ wide
        dp = wide @ v.float().mT
        ds = p * (dp - (dp * p).sum(-1, keepdim=True)) * ctx.scale
        dq = ds @ k.float()
        dk = ds.mT @ q.float()
        return dq.to(q.dtype), dk.to(k.dtype), dv.to(v.dtype)


class ModelNew(nn.Module):
    def forward(self, q, k, v):
        return Attention.apply(q, k, v)
