"""Honest normalisations: layer, RMS, group, instance, batch, L2, cosine similarity."""

from __future__ import annotations

import functools
from collections.abc import Callable

import torch
from torch.nn import functional as F

from assay.calibration.data import draw, seed_of
from assay.calibration.model import Maker, Operator
from assay.calibration.orders import FEW_SUMS, pairwise
from assay.calibration.reductions import MOMENTS, Moments, two_pass

OFFSETS = ("random", "positive", "offset", "heavy_tailed", "tiny_variance", "sorted", "subnormal", "wide")
EPS = 1e-5

Root = Callable[[torch.Tensor], torch.Tensor]


def rsqrt(x: torch.Tensor) -> torch.Tensor:
    """As torch takes it."""
    return x.rsqrt()


def coarse_rsqrt(x: torch.Tensor) -> torch.Tensor:
    """A root between one and two units in the last place too large: more than `rsqrt.approx` may err."""
    exact = x.double().rsqrt()
    one = torch.nextafter(exact.float(), torch.full_like(x, torch.inf))
    two = torch.nextafter(one, torch.full_like(x, torch.inf))
    return torch.where(two.double() - exact <= 2.0 * (two - one).double(), two, one)


def reciprocal_root(x: torch.Tensor) -> torch.Tensor:
    """One over the square root."""
    return 1.0 / x.sqrt()


def _scaled(name: str, shape: tuple[int, ...], parameters: int) -> Maker:
    """x of `shape`, and a weight and a bias of size `parameters`."""

    def make(kind: str, dtype: torch.dtype) -> list[torch.Tensor]:
        seed = seed_of(name, kind)
        weight = 1.0 + 0.3 * draw("random", (parameters,), torch.float32, seed + 1)
        bias = draw("random", (parameters,), torch.float32, seed + 2)
        return [draw(kind, shape, dtype, seed), weight.to(dtype), bias.to(dtype)]

    return make


def _rms_inputs(kind: str, dtype: torch.dtype) -> list[torch.Tensor]:
    return _scaled("rms norm", (8, 520), 520)(kind, dtype)[:2]


def _pair(kind: str, dtype: torch.dtype) -> list[torch.Tensor]:
    return [draw(kind, (8, 300), dtype, seed_of("cosine", kind, i)) for i in range(2)]


def _layer(moments: Moments, root: Root, x: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    mean, deviations = moments(x)
    return (x - mean) * root(deviations / x.shape[-1] + EPS) * w + b


def _group(moments: Moments, groups: int, x: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    flat = x.reshape(x.shape[0], groups, -1)
    mean, deviations = moments(flat)
    normal = ((flat - mean) * rsqrt(deviations / flat.shape[-1] + EPS)).reshape(x.shape)
    return normal * w.view(1, -1, 1, 1) + b.view(1, -1, 1, 1)


def _batch(moments: Moments, x: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    flat = x.transpose(0, 1).reshape(x.shape[1], -1)
    mean, deviations = moments(flat)
    normal = (flat - mean) * rsqrt(deviations / flat.shape[-1] + EPS) * w.unsqueeze(-1) + b.unsqueeze(-1)
    return normal.reshape(x.shape[1], x.shape[0], *x.shape[2:]).transpose(0, 1)


def _eval_inputs(kind: str, dtype: torch.dtype) -> list[torch.Tensor]:
    seed = seed_of("batch norm, inference", kind)
    x, w, b = _scaled("batch norm, inference", (4, 12, 6, 6), 12)(kind, dtype)
    mean = x.float().mean((0, 2, 3)) + 0.1 * draw("random", (12,), torch.float32, seed + 3).to(dtype).float()
    variance = x.float().var((0, 2, 3)) * (1.0 + 0.1 * draw("positive", (12,), torch.float32, seed + 4))
    return [x, w, b, mean.to(dtype), variance.to(dtype)]


def _batch_eval(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor, m: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    return F.batch_norm(x, m, v, w, b, False, 0.1, EPS)


def _shaped(t: torch.Tensor) -> torch.Tensor:
    return t.view(1, -1, 1, 1)


def _batch_eval_plain(
    root: Root, x: torch.Tensor, w: torch.Tensor, b: torch.Tensor, m: torch.Tensor, v: torch.Tensor
) -> torch.Tensor:
    return (x - _shaped(m)) * _shaped(root(v + EPS)) * _shaped(w) + _shaped(b)


def _batch_eval_folded(
    x: torch.Tensor, w: torch.Tensor, b: torch.Tensor, m: torch.Tensor, v: torch.Tensor
) -> torch.Tensor:
    factor = w * torch.rsqrt(v + EPS)
    return x * _shaped(factor) + _shaped(b - m * factor)


_LAYER = {f"{n}": functools.partial(_layer, m, rsqrt) for n, m in MOMENTS.items()} | {
    "rsqrt two units off": functools.partial(_layer, two_pass(pairwise), coarse_rsqrt),
    "reciprocal of root": functools.partial(_layer, two_pass(pairwise), reciprocal_root),
}
_GROUPS = {n: functools.partial(_group, m, 4) for n, m in MOMENTS.items()}
_INSTANCES = {n: functools.partial(_group, m, 12) for n, m in MOMENTS.items() if n != "blocks merged"}
_BATCHES = {n: functools.partial(_batch, m) for n, m in MOMENTS.items()}


def _rms(total: Callable[[torch.Tensor], torch.Tensor], root: Root, x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    return x * root(total(x.square()).unsqueeze(-1) / x.shape[-1] + 1e-6) * w


def _cosine(total: Callable[[torch.Tensor], torch.Tensor], x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return total(x * y) / (total(x.square()).sqrt() * total(y.square()).sqrt())


OPERATORS: tuple[Operator, ...] = (
    Operator(
        "layer norm",
        lambda x, w, b: F.layer_norm(x, (x.shape[-1],), w, b, EPS),
        _scaled("layer norm", (8, 520), 520),
        _LAYER,
        OFFSETS,
    ),
    Operator(
        "rms norm",
        lambda x, w: F.rms_norm(x, (x.shape[-1],), w, 1e-6),
        _rms_inputs,
        {n: functools.partial(_rms, s, rsqrt) for n, s in FEW_SUMS.items()}
        | {
            "rsqrt two units off": functools.partial(_rms, pairwise, coarse_rsqrt),
            "division by root": lambda x, w: x / (pairwise(x.square()).unsqueeze(-1) / x.shape[-1] + 1e-6).sqrt() * w,
        },
        OFFSETS,
    ),
    Operator(
        "rms norm, spelled out",
        lambda x, w: x / torch.sqrt(x.square().mean(-1, keepdim=True) + 1e-6) * w,
        _rms_inputs,
        {
            "rsqrt two units off": functools.partial(_rms, pairwise, coarse_rsqrt),
            "sequential": functools.partial(_rms, FEW_SUMS["sequential"], reciprocal_root),
        },
        OFFSETS,
    ),
    Operator(
        "group norm",
        lambda x, w, b: F.group_norm(x, 4, w, b, EPS),
        _scaled("group norm", (3, 12, 8, 8), 12),
        _GROUPS,
        ("random", "offset", "heavy_tailed", "tiny_variance"),
    ),
    Operator(
        "instance norm",
        lambda x, w, b: F.instance_norm(x, None, None, w, b, True, 0.1, EPS),
        _scaled("instance norm", (3, 12, 9, 9), 12),
        _INSTANCES,
        ("random", "offset", "tiny_variance"),
    ),
    Operator(
        "batch norm, training",
        lambda x, w, b: F.batch_norm(x, None, None, w, b, True, 0.1, EPS),
        _scaled("batch norm, training", (6, 12, 6, 6), 12),
        _BATCHES,
        ("random", "offset", "heavy_tailed", "tiny_variance"),
    ),
    Operator(
        "batch norm, inference",
        _batch_eval,
        _eval_inputs,
        {
            "plain": functools.partial(_batch_eval_plain, rsqrt),
            "rsqrt two units off": functools.partial(_batch_eval_plain, coarse_rsqrt),
            "folded": _batch_eval_folded,
        },
        ("random", "heavy_tailed", "wide", "offset"),
        per_algorithm={"folded": ("random", "heavy_tailed", "wide")},
    ),
    Operator(
        "L2 normalisation",
        lambda x: F.normalize(x, dim=-1),
        lambda kind, dtype: [draw(kind, (8, 300), dtype, seed_of("normalize", kind))],
        {n: (lambda x, s=s: x / s(x.square()).sqrt().clamp_min(1e-12).unsqueeze(-1)) for n, s in FEW_SUMS.items()}
        | {"coarse rsqrt": lambda x: x * coarse_rsqrt(pairwise(x.square())).unsqueeze(-1)},
        ("random", "positive", "heavy_tailed", "offset"),
    ),
    Operator(
        "cosine similarity",
        lambda x, y: F.cosine_similarity(x, y, dim=-1),
        _pair,
        {n: functools.partial(_cosine, s) for n, s in FEW_SUMS.items()},
        ("random", "positive", "heavy_tailed", "cancelling"),
    ),
)
