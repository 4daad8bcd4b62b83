"""Right algorithms stay inside the derived tolerance, wrong ones leave it: fp32, one fault at a time."""

import math
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F

from assay.oracle import compare, evaluate

Pair = tuple[Callable[..., torch.Tensor], Callable[..., torch.Tensor], tuple[torch.Tensor, ...]]


def draw(*shape: int, seed: int = 0, scale: float = 1.0, offset: float = 0.0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator) * scale + offset


def ratio(
    reference: Callable[..., torch.Tensor], kernel: Callable[..., torch.Tensor], *inputs: torch.Tensor
) -> float:
    evaluation = evaluate(reference, inputs)
    assert evaluation.raised is None
    assert evaluation.replay_error is None
    assert not evaluation.unmodelled
    result = compare(evaluation.leaves[0], kernel(*inputs))
    assert result.n_decided > 0.9 * result.n
    return result.ratio


def to_tf32(x: torch.Tensor) -> torch.Tensor:
    return ((x.view(torch.int32) + 0x1000) & ~0x1FFF).view(torch.float32)


def online_softmax(x: torch.Tensor) -> torch.Tensor:
    peak = torch.full_like(x[:, :1], -math.inf)
    total = torch.zeros_like(peak)
    for block in x.split(32, dim=1):
        following = torch.maximum(peak, block.amax(1, keepdim=True))
        total = total * torch.exp(peak - following) + torch.exp(block - following).sum(1, keepdim=True)
        peak = following
    return torch.exp(x - peak) / total


def exp2_softmax(x: torch.Tensor) -> torch.Tensor:
    scaled = x * 1.4426950408889634
    weights = torch.exp2(scaled - scaled.amax(1, keepdim=True))
    return weights * (1.0 / weights.sum(1, keepdim=True))


def half_softmax(x: torch.Tensor) -> torch.Tensor:
    weights = torch.exp((x - x.amax(1, keepdim=True)).half()).float()
    return weights / weights.sum(1, keepdim=True)


def layer_norm(x: torch.Tensor) -> torch.Tensor:
    return F.layer_norm(x, x.shape[-1:])


def two_pass(x: torch.Tensor, eps: float = 1e-5) -> torch.Tensor:
    centred = x - x.mean(1, keepdim=True)
    return centred * torch.rsqrt((centred * centred).mean(1, keepdim=True) + eps)


def one_pass(x: torch.Tensor) -> torch.Tensor:
    mean = x.mean(1, keepdim=True)
    variance = (x * x).mean(1, keepdim=True) - mean * mean
    return (x - mean) * torch.rsqrt(variance + 1e-5)


def welford(x: torch.Tensor) -> torch.Tensor:
    mean, m2 = torch.zeros_like(x[:, 0]), torch.zeros_like(x[:, 0])
    for i in range(x.shape[1]):
        delta = x[:, i] - mean
        mean = mean + delta / (i + 1)
        m2 = m2 + delta * (x[:, i] - mean)
    return (x - mean[:, None]) * torch.rsqrt(m2 / x.shape[1] + 1e-5)[:, None]


def eps_outside(x: torch.Tensor) -> torch.Tensor:
    centred = x - x.mean(1, keepdim=True)
    return centred / ((centred * centred).mean(1, keepdim=True).sqrt() + 1e-5)


def rms_norm(x: torch.Tensor) -> torch.Tensor:
    return F.rms_norm(x, x.shape[-1:], eps=1e-6)


def rms_norm_by_hand(x: torch.Tensor, eps: float = 1e-6) -> torch.Tensor:
    return x * torch.rsqrt((x * x).mean(-1, keepdim=True) + eps)


def in_order(x: torch.Tensor) -> torch.Tensor:
    # A loop, because torch.cumsum accumulates float32 in float64 on CPU.
    total = x[..., 0].clone()
    for i in range(1, x.shape[-1]):
        total += x[..., i]
    return total


def by_lanes(x: torch.Tensor, lanes: int = 32) -> torch.Tensor:
    return in_order(in_order(x.reshape(*x.shape[:-1], -1, lanes).transpose(-1, -2)))


def factors_in_order(x: torch.Tensor) -> torch.Tensor:
    total = x[..., 0].clone()
    for i in range(1, x.shape[-1]):
        total *= x[..., i]
    return total


def half_sum(x: torch.Tensor) -> torch.Tensor:
    total = torch.zeros(x.shape[0], dtype=torch.float16)
    for i in range(x.shape[1]):
        total += x[:, i].half()
    return total.float()


def split_k(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return sum((a[:, i::4] @ b[i::4] for i in range(4)), torch.zeros(a.shape[0], b.shape[1]))


def rank_one_updates(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    total = torch.zeros(a.shape[0], b.shape[1])
    for i in range(a.shape[1]):
        total += a[:, i, None] * b[None, i]
    return total


def flash(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    scale = 1 / math.sqrt(q.shape[-1])
    peak = torch.full((*q.shape[:-1], 1), -math.inf)
    total, out = torch.zeros_like(peak), torch.zeros_like(q)
    for kb, vb in zip(k.split(16, -2), v.split(16, -2), strict=True):
        scores = q @ kb.transpose(-1, -2) * scale
        following = torch.maximum(peak, scores.amax(-1, keepdim=True))
        decay, weights = torch.exp(peak - following), torch.exp(scores - following)
        total = total * decay + weights.sum(-1, keepdim=True)
        out = out * decay + weights @ vb
        peak = following
    return out / total


RIGHT: dict[str, Pair] = {
    "softmax online": (lambda x: x.softmax(-1), online_softmax, (draw(32, 256),)),
    "softmax online, inputs times ten": (lambda x: x.softmax(-1), online_softmax, (draw(32, 256, scale=10),)),
    "softmax by exp2": (lambda x: x.softmax(-1), exp2_softmax, (draw(32, 256),)),
    "softmax by exp2, inputs times ten": (lambda x: x.softmax(-1), exp2_softmax, (draw(32, 256, scale=10),)),
    "online softmax on rising rows": (
        lambda x: x.softmax(-1),
        online_softmax,
        (draw(8, 512).sort(-1)[0] * 5,),
    ),
    "log softmax": (lambda x: x.log_softmax(-1), lambda x: torch.log(online_softmax(x)), (draw(32, 64),)),
    "layer norm two pass": (layer_norm, two_pass, (draw(32, 256),)),
    "layer norm two pass, offset 10": (layer_norm, two_pass, (draw(32, 256, offset=10),)),
    "layer norm two pass, offset 1000": (layer_norm, two_pass, (draw(32, 256, offset=1000),)),
    "layer norm by Welford": (layer_norm, welford, (draw(32, 256),)),
    "layer norm by Welford, offset 1000": (layer_norm, welford, (draw(32, 256, offset=1000),)),
    "rms norm": (rms_norm, rms_norm_by_hand, (draw(32, 256),)),
    "sum in order": (lambda x: x.sum(-1), in_order, (draw(32, 1024),)),
    "sum in order, positive": (lambda x: x.sum(-1), in_order, (draw(32, 1024).abs(),)),
    "sum by lanes": (lambda x: x.sum(-1), by_lanes, (draw(32, 1024),)),
    "sum by lanes, alternating": (
        lambda x: x.sum(-1),
        by_lanes,
        (draw(32, 1024).abs() * torch.tensor([1.0, -1.0]).repeat(512),),
    ),
    "sum by lanes, sorted": (lambda x: x.sum(-1), by_lanes, (draw(32, 1024).sort(-1)[0],)),
    "mean": (lambda x: x.mean(-1), lambda x: by_lanes(x) * (1 / 1024), (draw(32, 1024, offset=3),)),
    "product of matrices, split": (torch.matmul, split_k, (draw(32, 256), draw(256, 48, seed=1))),
    "product of matrices, rank-one updates": (
        torch.matmul,
        rank_one_updates,
        (draw(32, 256), draw(256, 48, seed=1)),
    ),
    "product of positive matrices": (
        torch.matmul,
        rank_one_updates,
        (draw(32, 256).abs(), draw(256, 48, seed=1).abs()),
    ),
    "gelu by erfc": (F.gelu, lambda x: 0.5 * x * torch.erfc(-x * 0.70710678), (draw(64, 64, scale=2),)),
    "tanh through exp": (torch.tanh, lambda x: 1 - 2 / (torch.exp(2 * x) + 1), (draw(64, 64),)),
    "silu by division": (F.silu, lambda x: x / (1 + torch.exp(-x)), (draw(64, 64, scale=3),)),
    "softplus by log": (F.softplus, lambda x: torch.log(1 + torch.exp(x)), (draw(64, 64),)),
    "elu by exp": (F.elu, lambda x: torch.where(x > 0, x, torch.exp(x) - 1), (draw(64, 64),)),
    "flash attention": (
        F.scaled_dot_product_attention,
        flash,
        (draw(2, 48, 32), draw(2, 64, 32, seed=1), draw(2, 64, 32, seed=2)),
    ),
    "product of a row": (lambda x: x.prod(-1), lambda x: factors_in_order(x), (draw(64, 64).abs() + 0.5,)),
    "average pool": (
        lambda x: F.avg_pool2d(x, 3),
        lambda x: F.conv2d(x, torch.full((1, 1, 3, 3), 1 / 9), stride=3),
        (draw(4, 1, 12, 12),),
    ),
}

WRONG: dict[str, Pair] = {
    "softmax with a half exponential": (lambda x: x.softmax(-1), half_softmax, (draw(32, 256),)),
    "one-pass variance at offset 10": (layer_norm, one_pass, (draw(32, 256, offset=10),)),
    "one-pass variance at offset 1000": (layer_norm, one_pass, (draw(32, 256, offset=1000),)),
    "layer norm eps 1e-6": (layer_norm, lambda x: two_pass(x, 1e-6), (draw(32, 256),)),
    "layer norm eps outside the root": (layer_norm, eps_outside, (draw(32, 256),)),
    "rms norm eps 1e-5": (rms_norm, lambda x: rms_norm_by_hand(x, 1e-5), (draw(32, 256),)),
    "fp16 accumulator, positive data": (lambda x: x.sum(-1), half_sum, (draw(32, 512).abs(),)),
    "fp16 accumulator, mixed data": (lambda x: x.sum(-1), half_sum, (draw(32, 512),)),
    "product with TF32 operands": (
        torch.matmul,
        lambda a, b: to_tf32(a) @ to_tf32(b),
        (draw(32, 256), draw(256, 48, seed=1)),
    ),
    "convolution with TF32 operands": (
        F.conv2d,
        lambda x, w: F.conv2d(to_tf32(x), to_tf32(w)),
        (draw(2, 8, 12, 12), draw(8, 8, 3, 3, seed=1)),
    ),
    "gelu tanh form": (F.gelu, lambda x: F.gelu(x, approximate="tanh"), (draw(64, 64),)),
    "gelu quick form": (F.gelu, lambda x: x * torch.sigmoid(1.702 * x), (draw(64, 64),)),
    "variance unbiased at 4096": (
        lambda x: x.var(-1, unbiased=False),
        lambda x: x.var(-1, unbiased=True),
        (draw(8, 4096),),
    ),
    "sum without its last element": (
        lambda x: x.sum(-1),
        lambda x: x[:, :-1].sum(-1),
        (draw(32, 1024).abs(),),
    ),
}


@pytest.mark.parametrize("name", RIGHT)
def test_right_algorithm_passes_with_margin(name: str) -> None:
    reference, kernel, inputs = RIGHT[name]
    assert ratio(reference, kernel, *inputs) < 0.75


@pytest.mark.parametrize("name", WRONG)
def test_wrong_algorithm_fails_clearly(name: str) -> None:
    reference, kernel, inputs = WRONG[name]
    assert ratio(reference, kernel, *inputs) > 2.0
