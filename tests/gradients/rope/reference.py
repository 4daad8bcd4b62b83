import torch
import torch.nn as nn

BATCH = 3
LENGTH = 7
DIM = 20
DTYPE = torch.float32


class Model(nn.Module):
    def forward(self, x):
        half = x.shape[-1] // 2
        rate = 10000.0 ** (-torch.arange(half, dtype=torch.float32) / half)
        angle = torch.arange(x.shape[1], dtype=torch.float32)[:, None] * rate
        cos, sin = angle.cos().to(x.dtype), angle.sin().to(x.dtype)
        a, b = x[..., :half], x[..., half:]
        return torch.cat([a * cos - b * sin, b * cos + a * sin], dim=-1)


def get_inputs():
    return [torch.randn(BATCH, LENGTH, DIM).to(DTYPE)]


def get_init_inputs():
    return []
