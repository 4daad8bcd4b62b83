"""Honest sums, means, variances, scans, products of elements, norms and softmax forms."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch

from assay.calibration.data import draw, seed_of
from assay.calibration.model import Maker, Operator
from assay.calibration.orders import (
    FEW_SUMS,
    SUMS,
    Sum,
    pairwise,
    scan,
    scan_blocks,
    scan_log_steps,
    sequential,
)

ALL = ("random", "positive", "offset", "subnormal", "heavy_tailed", "sorted", "cancelling", "tiny_variance")
LOG2E = math.log2(math.e)

Moments = Callable[[torch.Tensor], tuple[torch.Tensor, torch.Tensor]]
"""(..., n) to mean and sum of squared deviations, both (..., 1)."""


def single(name: str, shape: tuple[int, ...], scale: float = 1.0) -> Maker:
    """Maker of one tensor."""
    return lambda kind, dtype: [draw(kind, shape, dtype, seed_of(name, kind), scale)]


def two_pass(total: Sum) -> Moments:
    """Mean first, then squared deviations from it."""

    def moments(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        mean = total(x).unsqueeze(-1) / x.shape[-1]
        return mean, total((x - mean).square()).unsqueeze(-1)

    return moments


def welford(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """One pass with a running mean (Welford 1962)."""
    terms = x.movedim(-1, 0).contiguous()
    mean, deviations = torch.zeros_like(terms[0]), torch.zeros_like(terms[0])
    for i, term in enumerate(terms):
        delta = term - mean
        mean = mean + delta / (i + 1)
        deviations = deviations + delta * (term - mean)
    return mean.unsqueeze(-1), deviations.unsqueeze(-1)


def merged(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Blocks of 100 by two passes each, merged pair by pair (Chan, Golub and LeVeque 1983)."""
    count, mean, deviations = 0, x[..., :1] * 0, x[..., :1] * 0
    for lo in range(0, x.shape[-1], 100):
        block = x[..., lo : lo + 100]
        size = block.shape[-1]
        block_mean, block_deviations = two_pass(pairwise)(block)
        delta = block_mean - mean
        mean = mean + delta * (size / (count + size))
        deviations = deviations + block_deviations + delta * delta * (count * size / (count + size))
        count += size
    return mean, deviations


MOMENTS: dict[str, Moments] = {
    "two passes, sequential": two_pass(sequential),
    "two passes, tree": two_pass(pairwise),
    "two passes, lanes": two_pass(FEW_SUMS["lanes of 8"]),
    "Welford": welford,
    "blocks merged": merged,
}
"""Ways to a mean and a variance that hold on offset data."""


def exp2_form(x: torch.Tensor) -> torch.Tensor:
    """exp through exp2, as GPU exponentials are."""
    return torch.exp2(x * LOG2E)


def softmax_with(total: Sum, exponential: Callable[[torch.Tensor], torch.Tensor], reciprocal: bool = False):  # type: ignore[no-untyped-def]
    """Two passes over a row."""

    def softmax(x: torch.Tensor) -> torch.Tensor:
        weights = exponential(x - x.amax(-1, keepdim=True))
        size = total(weights).unsqueeze(-1)
        return weights * (1.0 / size) if reciprocal else weights / size

    return softmax


def _running(x: torch.Tensor, exponential: Callable[[torch.Tensor], torch.Tensor]) -> tuple[torch.Tensor, ...]:
    """Running maximum and rescaled sum over blocks of 96: the online softmax of Milakov and Gimelshein."""
    peak = torch.full_like(x[..., :1], -math.inf)
    size = torch.zeros_like(peak)
    for lo in range(0, x.shape[-1], 96):
        block = x[..., lo : lo + 96]
        following = torch.maximum(peak, block.amax(-1, keepdim=True))
        size = size * exponential(peak - following) + pairwise(exponential(block - following)).unsqueeze(-1)
        peak = following
    return peak, size


def online(exponential: Callable[[torch.Tensor], torch.Tensor]) -> Callable[[torch.Tensor], torch.Tensor]:
    """Softmax from the running maximum and sum."""

    def softmax(x: torch.Tensor) -> torch.Tensor:
        peak, size = _running(x, exponential)
        return exponential(x - peak) / size

    return softmax


def _log_online(x: torch.Tensor) -> torch.Tensor:
    peak, size = _running(x, torch.exp)
    return (x - peak) - size.log()


def _log_exp2(x: torch.Tensor) -> torch.Tensor:
    shifted = x - x.amax(-1, keepdim=True)
    return shifted - torch.log2(exp2_form(shifted).sum(-1, keepdim=True)) * math.log(2.0)


def _logsumexp_online(x: torch.Tensor) -> torch.Tensor:
    peak, size = _running(x, torch.exp)
    return (peak + size.log()).squeeze(-1)


def _logsumexp_exp2(x: torch.Tensor) -> torch.Tensor:
    peak = x.amax(-1)
    return peak + torch.log2(pairwise(exp2_form(x - peak.unsqueeze(-1)))) * math.log(2.0)


def _product_tree(x: torch.Tensor) -> torch.Tensor:
    while x.shape[-1] > 1:
        x = torch.nn.functional.pad(x, (0, x.shape[-1] % 2), value=1.0)
        half = x.shape[-1] // 2
        x = x[..., :half] * x[..., half:]
    return x[..., 0]


def _product_scan(x: torch.Tensor) -> torch.Tensor:
    n, step = x.shape[-1], 1
    while step < n:
        x = torch.cat([x[..., :step], x[..., step:] * x[..., :-step]], -1)
        step *= 2
    return x


def _scaled_norm(x: torch.Tensor) -> torch.Tensor:
    peak = x.abs().amax(-1)
    return peak * sequential((x / peak.unsqueeze(-1)).square()).sqrt()


def _masked_inputs(kind: str, dtype: torch.dtype) -> list[torch.Tensor]:
    x = draw(kind, (6, 500), dtype, seed_of("masked sum", kind))
    keep = draw("random", (6, 500), torch.float32, seed_of("mask", kind)) > 0
    return [x, keep.to(dtype)]


def _near_one(kind: str, dtype: torch.dtype) -> list[torch.Tensor]:
    return [1.0 + draw(kind, (6, 90), dtype, seed_of("prod", kind), 0.05)]


def _scaled_first(x: torch.Tensor) -> torch.Tensor:
    return sequential(x * (1.0 / x.shape[-1]))


_MEANS = {name: (lambda x, s=s: s(x) / x.shape[-1]) for name, s in SUMS.items()}

OPERATORS: tuple[Operator, ...] = (
    Operator("sum", lambda x: x.sum(-1), single("sum", (6, 1000)), dict(SUMS), ALL),
    Operator("mean", lambda x: x.mean(-1), single("mean", (6, 1000)), _MEANS | {"scaled first": _scaled_first}, ALL),
    Operator(
        "sum of columns",
        lambda x: x.sum(0),
        single("columns", (513, 40)),
        {n: (lambda x, s=s: s(x.t())) for n, s in FEW_SUMS.items()},
        ("random", "positive", "heavy_tailed"),
    ),
    Operator(
        "masked sum",
        lambda x, m: (x * m).sum(-1),
        _masked_inputs,
        {n: (lambda x, m, s=s: s(x * m)) for n, s in FEW_SUMS.items()},
        ("random", "positive", "offset"),
    ),
    Operator(
        "cumsum",
        lambda x: x.cumsum(-1),
        single("cumsum", (6, 700)),
        {"sequential": scan, "doubling": scan_log_steps, "blocks": scan_blocks},
        ALL,
    ),
    Operator(
        "variance",
        lambda x: x.var(-1),
        single("variance", (6, 700)),
        {n: (lambda x, m=m: (m(x)[1] / (x.shape[-1] - 1)).squeeze(-1)) for n, m in MOMENTS.items()},
        ALL,
    ),
    Operator(
        "standard deviation",
        lambda x: x.std(-1),
        single("std", (6, 700)),
        {n: (lambda x, m=m: (m(x)[1] / (x.shape[-1] - 1)).sqrt().squeeze(-1)) for n, m in MOMENTS.items()},
        ("random", "offset", "tiny_variance"),
    ),
    Operator(
        "norm",
        lambda x: torch.linalg.vector_norm(x, dim=-1),
        single("norm", (6, 700)),
        {n: (lambda x, s=s: s(x.square()).sqrt()) for n, s in FEW_SUMS.items()} | {"scaled": _scaled_norm},
        ("random", "positive", "heavy_tailed", "offset"),
    ),
    Operator(
        "softmax",
        lambda x: torch.softmax(x, -1),
        single("softmax", (6, 500)),
        {
            "two passes": softmax_with(sequential, torch.exp),
            "tree": softmax_with(pairwise, torch.exp),
            "exp2": softmax_with(pairwise, exp2_form),
            "reciprocal": softmax_with(pairwise, torch.exp, reciprocal=True),
            "online": online(torch.exp),
            "online, exp2": online(exp2_form),
        },
        (*ALL, "wide"),
    ),
    Operator(
        "log-softmax",
        lambda x: torch.log_softmax(x, -1),
        single("log softmax", (6, 500)),
        {
            "two passes": lambda x: (d := x - x.amax(-1, keepdim=True)) - sequential(d.exp()).log().unsqueeze(-1),
            "online": _log_online,
            "exp2": _log_exp2,
            "from log-sum-exp": lambda x: x - _logsumexp_online(x).unsqueeze(-1),
        },
        (*ALL, "wide"),
    ),
    Operator(
        "log-sum-exp",
        lambda x: torch.logsumexp(x, -1),
        single("logsumexp", (6, 500)),
        {"online": _logsumexp_online, "exp2": _logsumexp_exp2},
        (*ALL, "wide"),
    ),
    Operator(
        "product",
        lambda x: x.prod(-1),
        _near_one,
        {"tree": _product_tree, "backwards": lambda x: x.flip(-1).cumprod(-1)[..., -1]},
        ("random", "positive", "heavy_tailed"),
    ),
    Operator(
        "cumprod",
        lambda x: x.cumprod(-1),
        _near_one,
        {"doubling": _product_scan},
        ("random", "positive", "heavy_tailed"),
    ),
)
