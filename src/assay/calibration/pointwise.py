"""Honest activations, losses, pooling and gathers."""

from __future__ import annotations

import math

import torch
from torch.nn import functional as F

from assay.calibration.data import draw, seed_of
from assay.calibration.model import Maker, Operator
from assay.calibration.orders import FEW_SUMS, Sum, pairwise, sequential
from assay.calibration.reductions import exp2_form, single

KINDS = ("random", "positive", "heavy_tailed", "wide", "subnormal", "tiny_variance")
ROOT_HALF = math.sqrt(0.5)


def _logistic(x: torch.Tensor) -> torch.Tensor:
    return 1.0 / (1.0 + torch.exp(-x))


def _logistic_exp2(x: torch.Tensor) -> torch.Tensor:
    return 1.0 / (1.0 + exp2_form(-x))


def _tanh_exp(x: torch.Tensor) -> torch.Tensor:
    small = torch.exp(-2.0 * x.abs())
    return torch.sign(x) * (1.0 - small) / (1.0 + small)


def _softplus(x: torch.Tensor) -> torch.Tensor:
    return x.clamp_min(0.0) + torch.log1p(torch.exp(-x.abs()))


def _mish(x: torch.Tensor) -> torch.Tensor:
    """Through one exponential: tanh(log(1 + e)) = e(e + 2) / (e(e + 2) + 2)."""
    e = torch.exp(x.clamp_max(20.0))
    n = e * (e + 2.0)
    return x * (n / (n + 2.0))


def _gelu_tanh(x: torch.Tensor) -> torch.Tensor:
    return x * _logistic(2.0 * math.sqrt(2.0 / math.pi) * (x + 0.044715 * x * x * x))


def _pair(name: str, shape: tuple[int, ...], second: str | None = None) -> Maker:
    return lambda kind, dtype: [
        draw(kind, shape, dtype, seed_of(name, kind)),
        draw(second or kind, shape, dtype, seed_of(name, kind, 1)),
    ]


def _logits(kind: str, dtype: torch.dtype) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(3)
    return [
        draw(kind, (24, 100), dtype, seed_of("cross entropy", kind)),
        torch.randint(100, (24,), generator=generator),
    ]


def _targets(kind: str, dtype: torch.dtype) -> list[torch.Tensor]:
    return [
        draw(kind, (16, 60), dtype, seed_of("bce", kind)),
        torch.rand((16, 60), generator=torch.Generator().manual_seed(4)).to(dtype),
    ]


def _cross_entropy(total: Sum, x: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    peak = x.amax(-1)
    size = total(torch.exp(x - peak.unsqueeze(-1)))
    chosen = x.gather(-1, target.unsqueeze(-1)).squeeze(-1)
    return total(size.log() + (peak - chosen)) / x.shape[0]


def _from_log_sum(x: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    """log Σ exp x is held as one number per row, and the chosen logit subtracted from it."""
    chosen = x.gather(-1, target.unsqueeze(-1)).squeeze(-1)
    return sequential(torch.logsumexp(x, -1) - chosen) / x.shape[0]


def _erf_rational(x: torch.Tensor) -> torch.Tensor:
    """Abramowitz and Stegun 7.1.26, absolute error 1.5e-7."""
    t = 1.0 / (1.0 + 0.3275911 * x.abs())
    p = ((((1.061405429 * t - 1.453152027) * t + 1.421413741) * t - 0.284496736) * t + 0.254829592) * t
    return torch.sign(x) * (1.0 - p * torch.exp(-x * x))


def _rows(kind: str, dtype: torch.dtype) -> list[torch.Tensor]:
    index = torch.randint(9, (300,), generator=torch.Generator().manual_seed(6))
    return [draw(kind, (300, 20), dtype, seed_of("index add", kind)), index]


def _scattered(x: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
    return x.new_zeros(9, x.shape[1]).index_add(0, index, x)


def _by_product(x: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
    return F.one_hot(index, 9).to(x.dtype).t() @ x


def _one_by_one(x: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
    out = x.new_zeros(9, x.shape[1])
    for i, row in zip(index.tolist(), x, strict=True):
        out[i] += row
    return out


def _pool_by_shifts(x: torch.Tensor) -> torch.Tensor:
    total = torch.zeros_like(x[..., ::2, ::2])
    for i in range(2):
        for j in range(2):
            total += x[..., i::2, j::2]
    return total * 0.25


def _angles(kind: str, dtype: torch.dtype) -> list[torch.Tensor]:
    positions = torch.arange(40).unsqueeze(-1) / 10000.0 ** (torch.arange(16) / 16)
    return [
        draw(kind, (3, 40, 32), dtype, seed_of("rotary", kind)),
        positions.cos().to(dtype),
        positions.sin().to(dtype),
    ]


def _rotary(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    a, b = x.chunk(2, -1)
    return torch.cat([a * cos - b * sin, b * cos + a * sin], -1)


def _rotary_fused(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    """The second product and the sum in one rounding."""
    a, b = x.chunk(2, -1)
    left = ((a * cos).double() - b.double() * sin.double()).float()
    right = ((b * cos).double() + a.double() * sin.double()).float()
    return torch.cat([left, right], -1)


def _divergence(kind: str, dtype: torch.dtype) -> list[torch.Tensor]:
    x, y = _pair("kl", (16, 50))(kind, torch.float32)
    return [torch.log_softmax(x, -1).to(dtype), torch.softmax(y, -1).to(dtype)]


def _activation(name: str, reference, algorithms, kinds=KINDS, per_algorithm=None) -> Operator:  # type: ignore[no-untyped-def]
    return Operator(name, reference, single(name, (40, 50)), algorithms, kinds, per_algorithm=per_algorithm or {})


OPERATORS: tuple[Operator, ...] = (
    _activation("sigmoid", torch.sigmoid, {"exp": _logistic, "exp2": _logistic_exp2}),
    _activation(
        "tanh",
        torch.tanh,
        {"exp": _tanh_exp, "sigmoid": lambda x: 2.0 * _logistic(2.0 * x) - 1.0},
        ("random", "positive", "wide", "heavy_tailed"),
    ),
    _activation("silu", F.silu, {"exp": lambda x: x / (1.0 + torch.exp(-x)), "exp2": lambda x: x * _logistic_exp2(x)}),
    _activation(
        "gelu",
        F.gelu,
        {
            "erf": lambda x: 0.5 * x * (1.0 + torch.erf(x * ROOT_HALF)),
            "rational erf": lambda x: 0.5 * x * (1.0 + _erf_rational(x * ROOT_HALF)),
            "erfc": lambda x: 0.5 * x * torch.erfc(-x * ROOT_HALF),
        },
    ),
    _activation(
        "gelu, tanh form",
        lambda x: F.gelu(x, approximate="tanh"),
        {
            "sigmoid": _gelu_tanh,
            "tanh": lambda x: 0.5 * x * (1.0 + torch.tanh(math.sqrt(2.0 / math.pi) * (x + 0.044715 * x * x * x))),
        },
    ),
    _activation("softplus", F.softplus, {"log1p": _softplus}),
    _activation("mish", F.mish, {"one exponential": _mish, "spelled out": lambda x: x * torch.tanh(_softplus(x))}),
    _activation(
        "elu",
        F.elu,
        {
            "expm1": lambda x: torch.where(x > 0, x, torch.expm1(x.clamp_max(0.0))),
            "exp": lambda x: torch.where(x > 0, x, torch.exp(x.clamp_max(0.0)) - 1.0),
        },
        per_algorithm={"exp": ("random", "wide", "heavy_tailed")},
    ),
    _activation("exponential", torch.exp, {"exp2": exp2_form}, ("random", "positive", "sorted")),
    _activation("logarithm", torch.log, {"log2": lambda x: torch.log2(x) * math.log(2.0)}, ("positive", "offset")),
    _activation("square root", torch.sqrt, {"rsqrt": lambda x: x * torch.rsqrt(x)}, ("positive", "offset")),
    _activation("hard swish", F.hardswish, {"clamp": lambda x: x * (x + 3.0).clamp(0.0, 6.0) * (1.0 / 6.0)}),
    _activation("cube", lambda x: x**3, {"products": lambda x: x * x * x}, ("random", "positive", "heavy_tailed")),
    Operator(
        "quotient",
        torch.div,
        _pair("quotient", (40, 50), "positive"),
        {"reciprocal": lambda x, y: x * (1.0 / y)},
        ("random", "positive", "heavy_tailed"),
    ),
    Operator(
        "gated unit",
        lambda x, y: F.silu(x) * y,
        _pair("gated", (40, 50)),
        {"exp": lambda x, y: x * y * _logistic(x), "exp2": lambda x, y: (x * _logistic_exp2(x)) * y},
        ("random", "positive", "heavy_tailed", "wide"),
    ),
    Operator(
        "scaled difference",
        lambda x, y: (x - y) * 0.5 + x,
        _pair("difference", (40, 50)),
        {"fused": lambda x, y: ((x - y).double() * 0.5 + x.double()).float()},
        ("random", "positive", "offset", "tiny_variance", "subnormal"),
    ),
    Operator(
        "rotary embedding",
        _rotary,
        _angles,
        {"fused multiply-add": _rotary_fused},
        ("random", "positive", "heavy_tailed"),
    ),
    Operator(
        "cross entropy",
        F.cross_entropy,
        _logits,
        {n: (lambda x, t, s=s: _cross_entropy(s, x, t)) for n, s in FEW_SUMS.items()}
        | {"from log-sum-exp": _from_log_sum},
        ("random", "positive", "heavy_tailed", "wide", "offset"),
    ),
    Operator(
        "binary cross entropy",
        F.binary_cross_entropy_with_logits,
        _targets,
        {
            "softplus": lambda x, t: sequential((_softplus(x) - x * t).flatten()) / x.numel(),
            "tree": lambda x, t: (
                pairwise((x.clamp_min(0) - x * t + torch.log1p(exp2_form(-x.abs()))).flatten()) / x.numel()
            ),
        },
        ("random", "heavy_tailed", "wide"),
    ),
    Operator(
        "squared error",
        F.mse_loss,
        _pair("mse", (16, 60)),
        {n: (lambda x, y, s=s: s((x - y).square().flatten()) / x.numel()) for n, s in FEW_SUMS.items()},
        ("random", "positive", "offset", "heavy_tailed"),
    ),
    Operator(
        "Huber loss",
        F.smooth_l1_loss,
        _pair("huber", (16, 60)),
        {
            "tree": lambda x, y: (
                pairwise(torch.where((d := (x - y).abs()) < 1.0, 0.5 * d * d, d - 0.5).flatten()) / x.numel()
            )
        },
        ("random", "positive", "heavy_tailed"),
    ),
    Operator(
        "divergence",
        lambda x, y: F.kl_div(x, y, reduction="batchmean"),
        _divergence,
        {
            "spelled out": lambda x, y: sequential((y * (torch.log(y) - x)).flatten()) / x.shape[0],
            "rows first": lambda x, y: pairwise(pairwise(y * (torch.log(y) - x))) / x.shape[0],
        },
        ("random", "positive"),
    ),
    Operator(
        "average pooling",
        lambda x: F.avg_pool2d(x, 2),
        single("pool", (2, 8, 16, 16)),
        {
            "shifted images": _pool_by_shifts,
            "window": lambda x: (
                pairwise(F.unfold(x.reshape(16, 1, 16, 16), 2, stride=2).transpose(1, 2)).reshape(2, 8, 8, 8) / 4.0
            ),
        },
        ("random", "positive", "offset", "heavy_tailed", "subnormal"),
    ),
    Operator(
        "global pooling",
        lambda x: F.adaptive_avg_pool2d(x, 1),
        single("global pool", (3, 8, 17, 17)),
        {n: (lambda x, s=s: (s(x.flatten(2)) / 289.0)[..., None, None]) for n, s in FEW_SUMS.items()},
        ("random", "positive", "offset", "cancelling"),
    ),
    Operator(
        "index add",
        _scattered,
        _rows,
        {"product": _by_product, "one by one": _one_by_one},
        ("random", "positive", "heavy_tailed"),
    ),
)
