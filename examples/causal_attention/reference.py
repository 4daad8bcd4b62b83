import torch
import torch.nn as nn


class Model(nn.Module):
    """Causal scaled dot product attention: a query sees the keys up to its own position."""

    def __init__(self):
        super().__init__()

    def forward(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        length, width = q.shape[-2], q.shape[-1]
        scores = torch.matmul(q, k.transpose(-2, -1)) * width**-0.5
        visible = torch.ones(length, length, dtype=torch.bool, device=q.device).tril()
        scores = scores.masked_fill(~visible, float("-inf"))
        return torch.matmul(torch.softmax(scores, dim=-1), v)


BATCH = 2
HEADS = 3
LENGTH = 96
WIDTH = 32


def get_inputs():
    q = torch.randn(BATCH, HEADS, LENGTH, WIDTH)
    k = torch.randn(BATCH, HEADS, LENGTH, WIDTH)
    v = torch.randn(BATCH, HEADS, LENGTH, WIDTH)
    return [q, k, v]


def get_init_inputs():
    return []
