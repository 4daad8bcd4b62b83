import torch
import torch.nn as nn
import torch.nn.functional as F

BATCH = 3
HEADS = 2
LENGTH = 13
DIM = 16
DTYPE = torch.float32


class Model(nn.Module):
    def forward(self, q, k, v):
        return F.scaled_dot_product_attention(q, k, v, is_causal=True)


def get_inputs():
    return [torch.randn(BATCH, HEADS, LENGTH, DIM).to(DTYPE) for _ in range(3)]


def get_init_inputs():
    return []
