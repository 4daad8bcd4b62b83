"""Truths for gradients."""

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from assay.oracle import compare, cotangents, evaluate_vjp, gradient_names


def draw(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


class SelfAttention(nn.Module):
    """Attention of a sequence (B, S, 16) to itself, its fused operator chosen inside torch."""

    def __init__(self, padding: bool = False, causal: bool = False) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(16, 4, batch_first=True)
        self.padding, self.causal = padding, causal

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        size = x.shape[1]
        mask = torch.full((size, size), float("-inf")).triu(1) if self.causal else None
        padding = torch.arange(size).expand(x.shape[0], size) >= size - 3 if self.padding else None
        out: torch.Tensor = self.attention(x, x, x, key_padding_mask=padding, attn_mask=mask, need_weights=False)[0]
        return out


CASES: dict[str, tuple[Callable[[], Callable[..., object]], tuple[torch.Tensor, ...]]] = {
    "softmax": (lambda: nn.Softmax(-1), (draw(16, 64),)),
    "layer norm": (lambda: nn.LayerNorm(64), (draw(16, 64),)),
    "group norm": (lambda: nn.GroupNorm(2, 4), (draw(4, 4, 6, 6),)),
    "batch norm": (lambda: nn.BatchNorm2d(4), (draw(4, 4, 6, 6),)),
    "linear": (lambda: nn.Linear(64, 32), (draw(16, 64),)),
    "convolution": (lambda: nn.Conv2d(4, 8, 3, padding=1), (draw(2, 4, 8, 8),)),
    "transposed convolution": (lambda: nn.ConvTranspose2d(4, 8, 3, groups=2), (draw(2, 4, 8, 8),)),
    "attention": (
        lambda: lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True),
        tuple(draw(2, 12, 16, seed=i) for i in range(3)),
    ),
    "attention module": (lambda: SelfAttention(), (draw(2, 12, 16),)),
    "attention module, padded": (lambda: SelfAttention(padding=True), (draw(2, 12, 16),)),
    "attention module, causal": (lambda: SelfAttention(causal=True), (draw(2, 12, 16),)),
    "encoder layer": (
        lambda: nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, batch_first=True), (draw(2, 12, 16),)
    ),
    "recurrent": (lambda: nn.LSTM(8, 8), (draw(5, 2, 8),)),
    "average pool": (lambda: nn.AvgPool2d(3, 2, 1), (draw(2, 3, 8, 8),)),
    "embedding": (lambda: nn.Embedding(10, 4), (torch.tensor([1, 3, 3, 9]),)),
    "gelu": (lambda: nn.GELU(), (draw(16, 64),)),
}


@pytest.mark.parametrize("name", CASES)
def test_native_gradients_are_inside_the_tolerance(name: str) -> None:
    make, inputs = CASES[name]
    torch.manual_seed(0)
    evaluation = evaluate_vjp(make(), inputs)
    assert evaluation.replay_error is None
    assert evaluation.raised is None
    assert not evaluation.unmodelled
    for leaf in evaluation.leaves:
        assert bool(leaf.decided.all())
        assert compare(leaf, leaf.native).ratio < 0.8


def test_a_wrong_backward_is_caught() -> None:
    x = draw(16, 64).requires_grad_(True)
    evaluation = evaluate_vjp(nn.Softmax(-1), [x.detach()], grad_seed=5)
    out = x.softmax(-1)
    (grad,) = cotangents([out], 5)
    assert grad is not None
    right = out * (grad - (grad * out).sum(-1, keepdim=True))
    assert compare(evaluation.leaves[0], right).ok
    assert not compare(evaluation.leaves[0], out * grad).ok


def test_leaves_are_named_in_order_and_missing_gradients_are_none() -> None:
    class Partly(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.used = nn.Parameter(draw(4))
            self.idle = nn.Parameter(draw(4))

        def forward(self, x: torch.Tensor, n: int, y: torch.Tensor) -> torch.Tensor:
            return x * self.used + n

    module, inputs = Partly(), [draw(3, 4), 2, draw(3, 4)]
    evaluation = evaluate_vjp(module, inputs)
    assert gradient_names(module, inputs) == ["input 0", "input 2", "used", "idle"]
    assert [leaf.kind for leaf in evaluation.leaves] == ["float", "none", "float", "none"]


def test_parameters_and_inputs_keep_no_gradients() -> None:
    module, x = nn.Linear(8, 4), draw(2, 8)
    evaluate_vjp(module, [x])
    assert not x.requires_grad
    assert all(p.grad is None for p in module.parameters())


PAIRS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "amax": lambda x: x.amax(-1),
    "min": lambda x: x.min(-1).values,
    "topk": lambda x: x.topk(2, -1).values,
    "max pool": lambda x: F.max_pool1d(x, 4),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("name", PAIRS)
def test_which_of_equal_numbers_takes_a_gradient_is_open(name: str, dtype: torch.dtype) -> None:
    """Rows with two largest, or smallest, and a row without: only in the latter is everything decided."""
    x = draw(2, 16, seed=3).to(dtype)
    x[0] = torch.arange(1, 17).to(dtype)
    x[0, 14] = x[0, 15]
    x[0, 1] = x[0, 0]
    if name == "topk":
        x[0, 13] = x[0, 15]
    evaluation = evaluate_vjp(PAIRS[name], [x], seed=1)
    [leaf] = evaluation.leaves
    tied = [0, 1] if name == "min" else [13, 14, 15] if name == "topk" else [14, 15]
    assert [bool(leaf.decided[0, i]) for i in tied] != [True] * len(tied)
    assert all(bool(d) for i, d in enumerate(leaf.decided[0]) if i not in tied)
    assert bool(leaf.decided[1].all())


def test_a_gradient_without_a_choice_is_decided_where_numbers_are_equal() -> None:
    x = draw(8, 32).bfloat16()
    [leaf] = evaluate_vjp(lambda t: torch.softmax(t, -1) * t.square(), [x], seed=1).leaves
    assert bool(leaf.decided.all())
