"""Honest matrix products, convolutions, attention and layers fused with them."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable

import torch
from torch.nn import functional as F

from assay.calibration.data import draw, seed_of
from assay.calibration.model import Maker, Operator
from assay.calibration.orders import (
    PRODUCTS,
    Product,
    fused,
    pairwise,
    product_blocks,
    rank_one,
    split_k,
    tensor_core,
)
from assay.calibration.reductions import exp2_form

KINDS = ("random", "positive", "offset", "subnormal", "heavy_tailed", "sorted", "cancelling", "tiny_variance")
HALVES = (torch.bfloat16, torch.float16)
CORE = {"tensor core": HALVES}
MATRIX_UNITS = CORE | {"three TF32 products": (torch.float32,)}


def _two(name: str, left: tuple[int, ...], right: tuple[int, ...], right_kind: str | None = None) -> Maker:
    """Left operand of the kind, right operand too (or of `right_kind`), scaled for results near one."""

    def make(kind: str, dtype: torch.dtype) -> list[torch.Tensor]:
        seed = seed_of(name, kind)
        size = 1.0 / math.sqrt(left[-1])
        # The product of two subnormal operands is zero; one is enough.
        other = "random" if kind in ("subnormal", "cancelling") else right_kind or kind
        return [draw(kind, left, dtype, seed), draw(other, right, dtype, seed + 1, size)]

    return make


def _layer(name: str, left: tuple[int, ...], out: int) -> Maker:
    """x, weight (out, in) and bias (out)."""

    def make(kind: str, dtype: torch.dtype) -> list[torch.Tensor]:
        seed = seed_of(name, kind)
        size = 1.0 / math.sqrt(left[-1])
        return [
            draw(kind, left, dtype, seed),
            draw("random", (out, left[-1]), dtype, seed + 1, size),
            draw("random", (out,), dtype, seed + 2),
        ]

    return make


def _image(name: str, x: tuple[int, ...], w: tuple[int, ...]) -> Maker:
    def make(kind: str, dtype: torch.dtype) -> list[torch.Tensor]:
        seed = seed_of(name, kind)
        size = 1.0 / math.sqrt(math.prod(w[1:]))
        return [
            draw(kind, x, dtype, seed),
            draw("positive" if kind == "positive" else "random", w, dtype, seed + 1, size),
            draw("random", (w[0],), dtype, seed + 2),
        ]

    return make


def _unfolded(product: Product, x: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Convolution (3 by 3, padding 1) as one product with the image's patches."""
    patches = F.unfold(x, (3, 3), padding=1)
    out = product(w.reshape(w.shape[0], -1), patches)
    return out.reshape(x.shape[0], w.shape[0], *x.shape[2:]) + b.view(1, -1, 1, 1)


def _shifted(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Convolution as nine products of shifted images, starting from the bias."""
    padded = F.pad(x, (1, 1, 1, 1))
    height, width = x.shape[2:]
    out = b.view(1, -1, 1, 1).expand(x.shape[0], -1, height, width).clone()
    for i in range(3):
        for j in range(3):
            out += torch.einsum("nchw,oc->nohw", padded[:, :, i : i + height, j : j + width], w[:, :, i, j])
    return out


def _by_channel(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Channels in two blocks, each convolved and added."""
    half = x.shape[1] // 2
    out = F.conv2d(x[:, half:], w[:, half:], None, padding=1) + F.conv2d(x[:, :half], w[:, :half], None, padding=1)
    return out + b.view(1, -1, 1, 1)


def _depthwise(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    padded = F.pad(x, (1, 1, 1, 1))
    height, width = x.shape[2:]
    out = torch.zeros_like(x)
    for i in range(3):
        for j in range(3):
            out += padded[:, :, i : i + height, j : j + width] * w[:, 0, i, j].view(1, -1, 1, 1)
    return out + b.view(1, -1, 1, 1)


def _qkv(kind: str, dtype: torch.dtype) -> list[torch.Tensor]:
    shape = (2, 2, 64, 32)
    seed = seed_of("attention", kind)
    scale = 0.1 if kind in ("wide", "heavy_tailed") else 1.0
    q, k = (draw(kind, shape, dtype, seed + i, scale) for i in range(2))
    return [q, k, draw("random" if kind == "subnormal" else kind, shape, dtype, seed + 2)]


def flash(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    *,
    causal: bool = False,
    block: int = 16,
    exponential: Callable[[torch.Tensor], torch.Tensor] = torch.exp,
    narrow: torch.dtype | None = None,
) -> torch.Tensor:
    """Attention over tiles of keys with a running maximum and sum (Dao et al. 2022), float32 accumulators.

    `narrow` rounds the probabilities before the second product, as half-precision kernels do.
    """
    scale = 1.0 / math.sqrt(q.shape[-1])
    peak = torch.full_like(q[..., :1], -math.inf)
    size, out = torch.zeros_like(peak), torch.zeros_like(q)
    rows = torch.arange(q.shape[-2], device=q.device).unsqueeze(-1)
    for lo in range(0, k.shape[-2], block):
        scores = (q @ k[..., lo : lo + block, :].transpose(-1, -2)) * scale
        if causal:
            columns = torch.arange(lo, lo + scores.shape[-1], device=q.device)
            scores = scores.masked_fill(columns > rows, -math.inf)
        following = torch.maximum(peak, scores.amax(-1, keepdim=True))
        weights = exponential(scores - following)
        change = exponential(peak - following)
        size = size * change + weights.sum(-1, keepdim=True)
        if narrow is not None:
            weights = weights.to(narrow).float()
        out = out * change + weights @ v[..., lo : lo + block, :]
        peak = following
    return out / size


def _spelled_out(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    scores = rank_one(q / math.sqrt(q.shape[-1]), k.transpose(-1, -2))
    weights = torch.exp(scores - scores.amax(-1, keepdim=True))
    return split_k(weights, v) / pairwise(weights).unsqueeze(-1)


def _attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    return F.scaled_dot_product_attention(q, k, v)


def _causal(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    return F.scaled_dot_product_attention(q, k, v, is_causal=True)


def _gelu_layer(product: Product, x: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    value = product(x, w.t()) + b
    return value * 0.5 * (1.0 + torch.erf(value * math.sqrt(0.5)))


def _bias_first(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    out = b.expand(x.shape[0], -1)
    for lo in range(0, x.shape[-1], 32):
        out = out + x[:, lo : lo + 32] @ w[:, lo : lo + 32].t()
    return out


def _lstm_inputs(kind: str, dtype: torch.dtype) -> list[torch.Tensor]:
    seed = seed_of("lstm", kind)
    shapes = ((6, 40), (6, 24), (6, 24), (96, 40), (96, 24), (96,), (96,))
    kinds = (kind, "random", "random", "random", "random", "random", "random")
    scales = (1.0, 0.5, 0.5, 0.16, 0.2, 0.2, 0.2)
    return [
        draw(k, s, dtype, seed + i, scale) for i, (k, s, scale) in enumerate(zip(kinds, shapes, scales, strict=True))
    ]


def _lstm(x: torch.Tensor, h: torch.Tensor, c: torch.Tensor, *weights: torch.Tensor) -> tuple[torch.Tensor, ...]:
    return torch.lstm_cell(x, (h, c), *weights)


def _logistic(x: torch.Tensor) -> torch.Tensor:
    return 1.0 / (1.0 + torch.exp(-x))


def _lstm_fused(
    x: torch.Tensor,
    h: torch.Tensor,
    c: torch.Tensor,
    w_x: torch.Tensor,
    w_h: torch.Tensor,
    b_x: torch.Tensor,
    b_h: torch.Tensor,
) -> tuple[torch.Tensor, ...]:
    """One product over the concatenated input and state, gates through exp."""
    gates = product_blocks(16)(torch.cat([x, h], -1), torch.cat([w_x, w_h], -1).t()) + (b_x + b_h)
    i, f, g, o = gates.chunk(4, -1)
    cell = _logistic(f) * c + _logistic(i) * torch.tanh(g)
    return _logistic(o) * torch.tanh(cell), cell


def _distances(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return torch.cdist(x, y, compute_mode="donot_use_mm_for_euclid_dist")


def _score(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return torch.softmax(F.linear(x, w, b), -1)


def _score_fused(product: Product, x: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    value = product(x, w.t()) + b
    weights = exp2_form(value - value.amax(-1, keepdim=True))
    return weights / pairwise(weights).unsqueeze(-1)


_FEW = {n: PRODUCTS[n] for n in ("blocks of 32", "split-K", "one term at a time", "tensor core")}

OPERATORS: tuple[Operator, ...] = (
    Operator("matmul", torch.matmul, _two("matmul", (20, 500), (500, 24)), dict(PRODUCTS), KINDS, MATRIX_UNITS),
    Operator(
        "long matmul",
        torch.matmul,
        _two("long matmul", (6, 3000), (3000, 8)),
        _FEW,
        ("random", "positive", "heavy_tailed"),
        CORE,
    ),
    Operator(
        "batched matmul",
        torch.bmm,
        _two("bmm", (3, 16, 200), (3, 200, 16)),
        _FEW,
        ("random", "positive", "cancelling"),
        CORE,
    ),
    Operator(
        "matrix-vector",
        torch.mv,
        lambda k, d: [
            t if i == 0 else t[:, 0].contiguous() for i, t in enumerate(_two("mv", (30, 600), (600, 1))(k, d))
        ],
        {n: (lambda a, b, p=p: p(a, b.unsqueeze(-1)).squeeze(-1)) for n, p in _FEW.items()},
        ("random", "positive", "cancelling", "heavy_tailed"),
        CORE,
    ),
    Operator(
        "linear with bias",
        F.linear,
        _layer("linear", (16, 300), 20),
        {n: (lambda x, w, b, p=p: p(x, w.t()) + b) for n, p in _FEW.items()} | {"bias first": _bias_first},
        ("random", "positive", "offset", "heavy_tailed"),
        CORE,
    ),
    Operator(
        "linear and gelu",
        lambda x, w, b: F.gelu(F.linear(x, w, b)),
        _layer("linear gelu", (16, 300), 20),
        {n: functools.partial(_gelu_layer, p) for n, p in _FEW.items()},
        ("random", "positive"),
        CORE,
    ),
    Operator(
        "linear and softmax",
        _score,
        _layer("linear softmax", (16, 300), 64),
        {n: functools.partial(_score_fused, p) for n, p in _FEW.items()},
        ("random", "positive", "wide"),
        CORE,
    ),
    Operator(
        "convolution",
        lambda x, w, b: F.conv2d(x, w, b, padding=1),
        _image("conv", (2, 16, 9, 9), (10, 16, 3, 3)),
        {
            "patches, blocks": functools.partial(_unfolded, product_blocks(32)),
            "patches, split-K": functools.partial(_unfolded, split_k),
            "patches, fused multiply-add": functools.partial(_unfolded, fused),
            "patches, tensor core": functools.partial(_unfolded, tensor_core),
            "shifted images": _shifted,
            "channel blocks": _by_channel,
        },
        ("random", "positive", "offset", "heavy_tailed", "subnormal"),
        {"patches, tensor core": HALVES},
    ),
    Operator(
        "depthwise convolution",
        lambda x, w, b: F.conv2d(x, w, b, padding=1, groups=x.shape[1]),
        _image("depthwise", (2, 12, 9, 9), (12, 1, 3, 3)),
        {"shifted images": _depthwise},
        ("random", "positive", "offset", "heavy_tailed"),
    ),
    Operator(
        "attention",
        _attention,
        _qkv,
        {
            "spelled out": _spelled_out,
            "flash": flash,
            "flash, exp2": functools.partial(flash, exponential=exp2_form),
            "flash, one tile": functools.partial(flash, block=64),
            "flash, bf16 probabilities": functools.partial(flash, narrow=torch.bfloat16),
            "flash, fp16 probabilities": functools.partial(flash, narrow=torch.float16),
        },
        ("random", "positive", "heavy_tailed", "wide", "sorted"),
        {"flash, bf16 probabilities": (torch.bfloat16,), "flash, fp16 probabilities": (torch.float16,)},
    ),
    Operator(
        "causal attention",
        _causal,
        _qkv,
        {
            "flash": functools.partial(flash, causal=True),
            "flash, exp2": functools.partial(flash, causal=True, exponential=exp2_form),
        },
        ("random", "positive", "wide"),
    ),
    Operator("LSTM cell", _lstm, _lstm_inputs, {"one product": _lstm_fused}, ("random", "wide", "positive")),
    Operator(
        "distances",
        _distances,
        _two("cdist", (12, 80), (9, 80)),
        {
            "sequential": lambda x, y: (
                rank_one((x.unsqueeze(1) - y).square(), torch.ones(80, 1, device=x.device)).squeeze(-1).sqrt()
            ),
            "tree": lambda x, y: pairwise((x.unsqueeze(1) - y).square()).sqrt(),
        },
        ("random", "heavy_tailed", "positive"),
        dtypes=(torch.float32,),
    ),
)
