"""Wrong implementations: small semantic faults, and the right function in coarser arithmetic than declared.

A semantic fault is written as a kernel's author would have got it wrong: a constant of the wrong size or in
the wrong place, an element too many or too few, the neighbouring formula. All are float32.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.nn import functional as F

from assay.calibration.model import Fault
from assay.calibration.orders import pairwise, sequential
from assay.calibration.products import flash
from assay.oracle.arithmetic import DTYPE, round_to

Generator = Callable[[int], list[torch.Tensor]]


def normal(*shapes: tuple[int, ...], scale: float = 1.0) -> Generator:
    """A task's generator of standard normal float32 tensors, the later ones `scale` times as large."""

    def make(seed: int) -> list[torch.Tensor]:
        torch_generator = torch.Generator().manual_seed(seed)
        drawn = [torch.randn(shape, generator=torch_generator) for shape in shapes]
        return [drawn[0], *(t * scale for t in drawn[1:])]

    return make


def uniform(*shapes: tuple[int, ...]) -> Generator:
    """A task's generator of uniform float32 tensors in [0, 1)."""

    def make(seed: int) -> list[torch.Tensor]:
        torch_generator = torch.Generator().manual_seed(seed)
        return [torch.rand(shape, generator=torch_generator) for shape in shapes]

    return make


def _classes(rows: int, count: int) -> Generator:
    def make(seed: int) -> list[torch.Tensor]:
        torch_generator = torch.Generator().manual_seed(seed)
        logits = torch.randn((rows, count), generator=torch_generator)
        return [logits, torch.randint(count, (rows,), generator=torch_generator)]

    return make


def _distributions(seed: int) -> list[torch.Tensor]:
    x, y = normal((16, 50), (16, 50))(seed)
    return [torch.log_softmax(x, -1), torch.softmax(y, -1)]


ROWS = normal((16, 256))
LONG_ROWS = normal((4, 4096))
WIDE_ROWS = normal((64, 512))
IMAGE = normal((2, 8, 12, 12))


def _norm(x: torch.Tensor, eps: float = 1e-5, correction: int = 0) -> torch.Tensor:
    centred = x - x.mean(-1, keepdim=True)
    return centred * torch.rsqrt(centred.square().sum(-1, keepdim=True) / (x.shape[-1] - correction) + eps)


def _layer(x: torch.Tensor) -> torch.Tensor:
    return F.layer_norm(x, (x.shape[-1],))


def _one_pass(x: torch.Tensor) -> torch.Tensor:
    mean = x.mean(-1, keepdim=True)
    return (x - mean) * torch.rsqrt((x.square().mean(-1, keepdim=True) - mean.square()).clamp_min(0) + 1e-5)


def _eps_outside(x: torch.Tensor) -> torch.Tensor:
    return (x - x.mean(-1, keepdim=True)) / (x.std(-1, keepdim=True, unbiased=False) + 1e-5)


def _rms(x: torch.Tensor, eps: float = 1e-6) -> torch.Tensor:
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + eps)


def _group(x: torch.Tensor, groups: int = 4, eps: float = 1e-5) -> torch.Tensor:
    return _norm(x.reshape(x.shape[0], groups, -1), eps).reshape(x.shape)


def _batch(x: torch.Tensor, m: torch.Tensor, v: torch.Tensor, eps: float = 1e-5) -> torch.Tensor:
    return (x - m.view(1, -1, 1, 1)) * torch.rsqrt(v + eps).view(1, -1, 1, 1)


def _batch_inputs(seed: int) -> list[torch.Tensor]:
    (x,) = normal((4, 8, 6, 6))(seed)
    return [x, *normal((8,))(seed + 1), *uniform((8,))(seed + 2)]


def _running(x: torch.Tensor, running: torch.Tensor, momentum: float, correction: int = 1) -> torch.Tensor:
    variance = x.transpose(0, 1).flatten(1).var(-1, correction=correction)
    return (1.0 - momentum) * running + momentum * variance


def _running_reference(x: torch.Tensor, running: torch.Tensor) -> torch.Tensor:
    return _running(x, running, 0.1)


def _running_inputs(seed: int) -> list[torch.Tensor]:
    return [*normal((8, 8, 16, 16))(seed), *uniform((8,))(seed + 1)]


def _quick_gelu(x: torch.Tensor) -> torch.Tensor:
    return x * torch.sigmoid(1.702 * x)


def _gelu_tanh(x: torch.Tensor) -> torch.Tensor:
    return F.gelu(x, approximate="tanh")


def _gelu_coarse(x: torch.Tensor) -> torch.Tensor:
    return 0.5 * x * (1.0 + torch.tanh(0.7979 * (x + 0.044715 * x**3)))


def _without_last(x: torch.Tensor) -> torch.Tensor:
    return x[..., :-1].sum(-1)


def _smoothed(smoothing: float, x: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    return F.cross_entropy(x, target, label_smoothing=smoothing)


def _ignored(x: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    return F.cross_entropy(x, target, reduction="sum") / (x.shape[0] + 1e-3)


def _scores(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, scale: float | None = None, window: int | None = None
) -> torch.Tensor:
    """Attention; with a window, each query sees that many keys up to its own."""
    scores = q @ k.transpose(-1, -2) * (1.0 / math.sqrt(q.shape[-1]) if scale is None else scale)
    if window is not None:
        distance = torch.arange(q.shape[-2], device=q.device).unsqueeze(-1) - torch.arange(k.shape[-2], device=q.device)
        scores = scores.masked_fill((distance < 0) | (distance >= window), -math.inf)
    return torch.softmax(scores, -1) @ v


def _last_key(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """The denominator misses the last key."""
    weights = torch.exp(q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1]))
    return weights @ v / weights[..., :-1].sum(-1, keepdim=True)


QKV = normal((1, 2, 40, 32), (1, 2, 40, 32), (1, 2, 40, 32))
LONG_KEYS = normal((1, 1, 8, 32), (1, 1, 1500, 32), (1, 1, 1500, 32))


def _window_mean(x: torch.Tensor, length: int) -> torch.Tensor:
    sums = F.pad(x.double().cumsum(-1), (1, 0))
    return ((sums[..., length:] - sums[..., :-length]) / length).float()[..., : x.shape[-1] - 64]


def _pool_divisor(x: torch.Tensor) -> torch.Tensor:
    return F.avg_pool2d(x, 3, stride=2, padding=1, count_include_pad=False)


def _pool(x: torch.Tensor) -> torch.Tensor:
    return F.avg_pool2d(x, 3, stride=2, padding=1)


def _inner(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return a[:, :-1] @ b[:-1]


def _conv_bias_twice(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return F.conv2d(x, w, b * (1.0 + 1e-4), padding=1)


def _conv(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return F.conv2d(x, w, b, padding=1)


def _rotary(x: torch.Tensor, base: float = 10000.0) -> torch.Tensor:
    half = x.shape[-1] // 2
    rate = base ** (-torch.arange(half, device=x.device) / half)
    angle = torch.arange(x.shape[-2], device=x.device).unsqueeze(-1) * rate
    a, b = x[..., :half], x[..., half:]
    return torch.cat([a * angle.cos() - b * angle.sin(), b * angle.cos() + a * angle.sin()], -1)


def _mish_coarse(x: torch.Tensor) -> torch.Tensor:
    return x * torch.tanh(torch.log(1.0 + 1e-4 + torch.exp(x)))


def _huber(x: torch.Tensor, y: torch.Tensor, delta: float = 1.0) -> torch.Tensor:
    return F.huber_loss(x, y, delta=delta)


def _kl(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return F.kl_div(x, y, reduction="batchmean")


def _normalised(x: torch.Tensor, eps: float = 1e-12) -> torch.Tensor:
    return x / x.square().sum(-1, keepdim=True).sqrt().clamp_min(eps)


def _interpolated(x: torch.Tensor, corners: bool) -> torch.Tensor:
    return F.interpolate(x, scale_factor=2, mode="bilinear", align_corners=corners)


def _adam(g: torch.Tensor, m: torch.Tensor, v: torch.Tensor, b2: float = 0.999, inside: bool = False) -> torch.Tensor:
    """One parameter update of Adam after ten steps."""
    mean = (0.9 * m + 0.1 * g) / (1.0 - 0.9**10)
    square = (b2 * v + (1.0 - b2) * g * g) / (1.0 - 0.999**10)
    return mean / (square + 1e-8).sqrt() if inside else mean / (square.sqrt() + 1e-8)


def _adam_inputs(seed: int) -> list[torch.Tensor]:
    return [*normal((40, 50), (40, 50))(seed), *uniform((40, 50))(seed + 1)]


def _decayed(p: torch.Tensor, g: torch.Tensor, decay: float = 0.01) -> torch.Tensor:
    return p * (1.0 - 1e-3 * decay) - 1e-3 * g


_SEMANTIC: tuple[tuple[str, Callable[..., Any], Callable[..., Any], Generator], ...] = (
    ("layer norm: eps 1e-6 for 1e-5", _layer, lambda x: _norm(x, 1e-6), ROWS),
    ("layer norm: eps 1.1e-5 for 1e-5", _layer, lambda x: _norm(x, 1.1e-5), ROWS),
    ("layer norm: eps outside the root", _layer, _eps_outside, ROWS),
    ("layer norm: no eps", _layer, lambda x: _norm(x, 0.0), ROWS),
    ("layer norm: one-pass variance", _layer, _one_pass, ROWS),
    ("layer norm: unbiased variance at 4096", _layer, lambda x: _norm(x, 1e-5, 1), LONG_ROWS),
    (
        "layer norm: last element left out of the mean",
        _layer,
        lambda x: (x - x[..., :-1].mean(-1, keepdim=True)) * torch.rsqrt(x.var(-1, keepdim=True, correction=0) + 1e-5),
        LONG_ROWS,
    ),
    ("rms norm: eps 1e-5 for 1e-6", _rms, lambda x: _rms(x, 1e-5), ROWS),
    (
        "rms norm: eps outside the root",
        _rms,
        lambda x: x / (x.square().mean(-1, keepdim=True).sqrt() + 1e-6),
        ROWS,
    ),
    (
        "rms norm: divided by n - 1 at 4096",
        _rms,
        lambda x: x * torch.rsqrt(x.square().sum(-1, keepdim=True) / (x.shape[-1] - 1) + 1e-6),
        LONG_ROWS,
    ),
    ("group norm: eps 1e-6 for 1e-5", lambda x: F.group_norm(x, 4), lambda x: _group(x, 4, 1e-6), IMAGE),
    ("instance norm: eps 1e-3 for 1e-5", F.instance_norm, lambda x: _group(x, 8, 1e-3), IMAGE),
    (
        "batch norm: eps 1e-6 for 1e-5",
        lambda x, m, v: F.batch_norm(x, m, v),
        lambda x, m, v: _batch(x, m, v, 1e-6),
        _batch_inputs,
    ),
    (
        "batch norm: eps outside the root",
        lambda x, m, v: F.batch_norm(x, m, v),
        lambda x, m, v: (x - m.view(1, -1, 1, 1)) / (v.sqrt() + 1e-5).view(1, -1, 1, 1),
        _batch_inputs,
    ),
    (
        "batch norm: momentum 0.101 for 0.1",
        _running_reference,
        lambda x, r: _running(x, r, 0.101),
        _running_inputs,
    ),
    (
        "batch norm: biased running variance",
        _running_reference,
        lambda x, r: _running(x, r, 0.1, 0),
        _running_inputs,
    ),
    ("variance: biased at 4096", lambda x: x.var(-1), lambda x: x.var(-1, correction=0), LONG_ROWS),
    ("standard deviation: eps 1e-6 added", lambda x: x.std(-1), lambda x: (x.var(-1) + 1e-6).sqrt(), ROWS),
    (
        "L2 normalisation: eps 1e-6 added to the norm",
        F.normalize,
        lambda x: x / (x.square().sum(1, keepdim=True).sqrt() + 1e-6),
        ROWS,
    ),
    (
        "L2 normalisation: eps 1e-6 under the root",
        _normalised,
        lambda x: x * torch.rsqrt(x.square().sum(-1, keepdim=True) + 1e-6),
        ROWS,
    ),
    (
        "cosine similarity: eps 1e-6 added",
        lambda x, y: F.cosine_similarity(x, y, -1),
        lambda x, y: (x * y).sum(-1) / (x.norm(dim=-1) * y.norm(dim=-1) + 1e-6),
        normal((32, 64), (32, 64)),
    ),
    ("gelu: tanh form for erf", F.gelu, _gelu_tanh, ROWS),
    ("gelu: erf form for tanh", _gelu_tanh, F.gelu, ROWS),
    ("gelu: quick form", F.gelu, _quick_gelu, ROWS),
    ("gelu: constant 0.7979 for sqrt(2/pi)", _gelu_tanh, _gelu_coarse, ROWS),
    (
        "gelu: constant 0.0447 for 0.044715",
        _gelu_tanh,
        lambda x: 0.5 * x * (1.0 + torch.tanh(math.sqrt(2.0 / math.pi) * (x + 0.0447 * x**3))),
        ROWS,
    ),
    ("gelu: root of two as 1.4142", F.gelu, lambda x: 0.5 * x * (1.0 + torch.erf(x / 1.4142)), ROWS),
    ("silu: slope 1.0001", F.silu, lambda x: x * torch.sigmoid(1.0001 * x), ROWS),
    ("mish: 1e-4 in the logarithm", F.mish, _mish_coarse, ROWS),
    ("softplus: threshold 5 for 20", F.softplus, lambda x: F.softplus(x, threshold=5.0), ROWS),
    ("elu: alpha 1.0001", F.elu, lambda x: F.elu(x, 1.0001), ROWS),
    ("leaky relu: slope 0.0101 for 0.01", F.leaky_relu, lambda x: F.leaky_relu(x, 0.0101), ROWS),
    (
        "selu: constants to four digits",
        F.selu,
        lambda x: 1.0507 * torch.where(x > 0, x, 1.6733 * torch.expm1(x)),
        ROWS,
    ),
    ("sum: last element dropped", lambda x: x.sum(-1), _without_last, LONG_ROWS),
    ("mean: last element dropped", lambda x: x.mean(-1), lambda x: x[..., :-1].mean(-1), LONG_ROWS),
    ("mean: divided by n - 1", lambda x: x.mean(-1), lambda x: x.sum(-1) / (x.shape[-1] - 1), LONG_ROWS),
    (
        "softmax: last element left out of the sum",
        lambda x: torch.softmax(x, -1),
        lambda x: (e := torch.exp(x - x.amax(-1, keepdim=True))) / e[..., :-1].sum(-1, keepdim=True),
        LONG_ROWS,
    ),
    (
        "softmax: 1e-5 added to the sum",
        lambda x: torch.softmax(x, -1),
        lambda x: (e := torch.exp(x - x.amax(-1, keepdim=True))) / (e.sum(-1, keepdim=True) + 1e-5),
        normal((16, 8)),
    ),
    (
        "softmax: exponentials in fp16",
        lambda x: torch.softmax(x, -1),
        lambda x: _narrow_exponentials("fp16", x),
        ROWS,
    ),
    ("softmax: in fp16", lambda x: torch.softmax(x, -1), lambda x: _narrow_softmax("fp16", x), ROWS),
    ("softmax: in bf16", lambda x: torch.softmax(x, -1), lambda x: _narrow_softmax("bf16", x), ROWS),
    (
        "softmax: no maximum taken off",
        lambda x: torch.softmax(x, -1),
        lambda x: x.exp() / x.exp().sum(-1, keepdim=True),
        ROWS,
    ),
    (
        "log-softmax: 1e-6 inside the logarithm",
        lambda x: torch.log_softmax(x, -1),
        lambda x: torch.log(torch.softmax(x, -1) + 1e-6),
        ROWS,
    ),
    (
        "log-sum-exp: last element left out",
        lambda x: torch.logsumexp(x, -1),
        lambda x: torch.logsumexp(x[..., :-1], -1),
        LONG_ROWS,
    ),
    (
        "sum: accumulated in fp16, data of one sign",
        lambda x: x.sum(-1),
        lambda x: _accumulated("fp16", x),
        uniform((8, 1024)),
    ),
    (
        "sum: accumulated in bf16, data of one sign",
        lambda x: x.sum(-1),
        lambda x: _accumulated("bf16", x),
        uniform((8, 1024)),
    ),
    ("cumulative sum: exclusive", lambda x: x.cumsum(-1), lambda x: x.cumsum(-1) - x, LONG_ROWS),
    (
        "moving mean: window one short",
        lambda x: _window_mean(x, 64),
        lambda x: _window_mean(x, 63),
        normal((4, 600)),
    ),
    (
        "cross entropy: smoothing 0.1001 for 0.1",
        functools.partial(_smoothed, 0.1),
        functools.partial(_smoothed, 0.1001),
        _classes(24, 100),
    ),
    (
        "cross entropy: smoothing left out at 1e-4",
        functools.partial(_smoothed, 1e-4),
        functools.partial(_smoothed, 0.0),
        _classes(24, 100),
    ),
    (
        "cross entropy: 1e-3 added to the count",
        lambda x, t: F.cross_entropy(x, t, reduction="sum") / x.shape[0],
        _ignored,
        _classes(24, 100),
    ),
    (
        "binary cross entropy: 1e-7 inside the logarithm",
        lambda p, t: -(t * p.log() + (1 - t) * (1 - p).log()),
        lambda p, t: -(t * (p + 1e-7).log() + (1 - t) * (1 - p + 1e-7).log()),
        lambda seed: [t * 0.98 + 0.01 for t in uniform((16, 60), (16, 60))(seed)],
    ),
    (
        "squared error: divided by n - 1",
        F.mse_loss,
        lambda x, y: (x - y).square().sum() / (x.numel() - 1),
        normal((64, 64), (64, 64)),
    ),
    ("Huber loss: delta 1.001 for 1", _huber, lambda x, y: _huber(x, y, 1.001), normal((16, 60), (16, 60))),
    (
        "divergence: 1e-6 added to the target",
        _kl,
        lambda x, y: (y * (torch.log(y + 1e-6) - x)).sum() / x.shape[0],
        _distributions,
    ),
    (
        "triplet loss: distance without eps",
        F.triplet_margin_loss,
        lambda a, p, n: ((a - p).norm(dim=-1) - (a - n).norm(dim=-1) + 1.0).clamp_min(0).mean(),
        normal((16, 40), (16, 40), (16, 40)),
    ),
    ("attention: scale missing a ten-thousandth", _scores, lambda q, k, v: _scores(q, k, v, 0.1767), QKV),
    ("attention: no scale", _scores, lambda q, k, v: _scores(q, k, v, 1.0), QKV),
    (
        "attention: window one key too wide",
        lambda q, k, v: _scores(q, k, v, None, 16),
        lambda q, k, v: _scores(q, k, v, None, 17),
        QKV,
    ),
    ("attention: last key left out of the sum", F.scaled_dot_product_attention, _last_key, LONG_KEYS),
    (
        "attention: head size off by one in the scale",
        _scores,
        lambda q, k, v: _scores(q, k, v, 1.0 / math.sqrt(q.shape[-1] + 1)),
        QKV,
    ),
    ("pooling: padding left out of the divisor", _pool, _pool_divisor, IMAGE),
    ("matmul: last inner index dropped", torch.matmul, _inner, normal((16, 1024), (1024, 16), scale=0.03)),
    (
        "matmul: scale 1.0001",
        lambda a, b: a @ b * 0.125,
        lambda a, b: a @ b * 0.1250125,
        normal((16, 64), (64, 16)),
    ),
    (
        "convolution: bias off by a ten-thousandth",
        _conv,
        _conv_bias_twice,
        normal((2, 8, 9, 9), (6, 8, 3, 3), (6,), scale=0.2),
    ),
    (
        "linear: bias left out",
        F.linear,
        lambda x, w, b: x @ w.t(),
        normal((16, 200), (20, 200), (20,), scale=1e-3),
    ),
    (
        "residual: scale 0.70711 for 1/sqrt(2)",
        lambda x, y: (x + y) * math.sqrt(0.5),
        lambda x, y: (x + y) * 0.70711,
        normal((16, 60), (16, 60)),
    ),
    ("rotary embedding: base 10,001", _rotary, lambda x: _rotary(x, 10001.0), normal((2, 40, 32))),
    (
        "interpolation: corners aligned",
        lambda x: _interpolated(x, False),
        lambda x: _interpolated(x, True),
        IMAGE,
    ),
    ("Adam: second decay 0.9991 for 0.999", _adam, lambda g, m, v: _adam(g, m, v, 0.9991), _adam_inputs),
    ("Adam: eps under the root", _adam, lambda g, m, v: _adam(g, m, v, inside=True), _adam_inputs),
    (
        "SGD: weight decay 0.0 for 0.01",
        _decayed,
        lambda p, g: _decayed(p, g, 0.0),
        normal((40, 50), (40, 50)),
    ),
    (
        "temperature: 1e-6 added",
        lambda x: torch.softmax(x / 0.7, -1),
        lambda x: torch.softmax(x / (0.7 + 1e-6), -1),
        ROWS,
    ),
    (
        "exponential moving average: decay 0.9991",
        lambda x, y: 0.999 * x + 0.001 * y,
        lambda x, y: 0.9991 * x + 0.0009 * y,
        normal((40, 50), (40, 50)),
    ),
    (
        "quotient: 1e-6 added to the divisor",
        lambda x, y: x / y,
        lambda x, y: x / (y + 1e-6),
        lambda seed: [*normal((40, 50))(seed), *(t + 0.5 for t in uniform((40, 50))(seed + 1))],
    ),
)


def _round(x: torch.Tensor, mode: str) -> torch.Tensor:
    return round_to(x.double(), mode).float()


def _rounded_operands(function: Callable[..., torch.Tensor], count: int, mode: str, *inputs: Any) -> torch.Tensor:
    """The function with its first `count` inputs rounded to `mode`."""
    return function(*(_round(t, mode) for t in inputs[:count]), *inputs[count:])


def _narrow_attention(mode: str, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """Operands of both products rounded to `mode`, the rest in float32."""
    scores = _round(q, mode) @ _round(k, mode).transpose(-1, -2) / math.sqrt(q.shape[-1])
    return _round(torch.softmax(scores, -1), mode) @ _round(v, mode)


def _accumulated(mode: str, x: torch.Tensor) -> torch.Tensor:
    """One accumulator of format `mode`, rounded after every addition."""
    return sequential(x.to(DTYPE[mode])).float()


def _accumulated_product(mode: str, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    total = torch.zeros(a.shape[0], b.shape[1], device=a.device)
    for i in range(a.shape[1]):
        total = (total + a[:, i : i + 1] * b[i : i + 1]).to(DTYPE[mode]).float()
    return total


def _narrow_exponentials(mode: str, x: torch.Tensor) -> torch.Tensor:
    """Softmax in float32 but for the exponentials."""
    weights = torch.exp((x - x.amax(-1, keepdim=True)).to(DTYPE[mode])).float()
    return weights / weights.sum(-1, keepdim=True)


def _narrow_softmax(mode: str, x: torch.Tensor) -> torch.Tensor:
    """Softmax with every intermediate in `mode`."""
    shifted = (x - x.amax(-1, keepdim=True)).to(DTYPE[mode])
    weights = torch.exp(shifted)
    return (weights / pairwise(weights).unsqueeze(-1)).float()


def _narrow_norm(mode: str, x: torch.Tensor) -> torch.Tensor:
    """Layer norm of inputs loaded in `mode`."""
    return _layer(_round(x, mode))


_MATRICES = normal((24, 512), (512, 24), scale=0.05)
_CONVOLUTION = normal((2, 16, 9, 9), (12, 16, 3, 3), (12,), scale=0.1)
_PRODUCT_TASKS: tuple[tuple[str, Callable[..., torch.Tensor], Callable[..., torch.Tensor], Generator], ...] = (
    ("matmul", torch.matmul, functools.partial(_rounded_operands, torch.matmul, 2), _MATRICES),
    (
        "batched matmul",
        torch.bmm,
        functools.partial(_rounded_operands, torch.bmm, 2),
        normal((3, 16, 200), (3, 200, 16), scale=0.1),
    ),
    (
        "linear",
        F.linear,
        functools.partial(_rounded_operands, F.linear, 2),
        normal((16, 300), (20, 300), (20,), scale=0.06),
    ),
    ("convolution", _conv, functools.partial(_rounded_operands, _conv, 2), _CONVOLUTION),
    ("attention", F.scaled_dot_product_attention, _narrow_attention, QKV),
)


def _bind(function: Callable[..., Any], mode: str, *leading: Any) -> Callable[..., Any]:
    """`function` with `mode` as the argument after those of `functools.partial`."""
    return functools.partial(function, *leading, mode)


def faults() -> Iterator[Fault]:
    """All faults, semantic ones first, in a fixed order."""
    for name, reference, wrong, make in _SEMANTIC:
        yield Fault(name, "semantic", reference, wrong, make)
    for task, reference, narrow, make in _PRODUCT_TASKS:
        for mode in ("tf32", "fp16", "bf16"):
            # TF32 and fp16 have the same significand: on values of ordinary size their roundings agree.
            modes = ("tf32", "fp16") if mode in ("tf32", "fp16") else ("bf16",)
            yield Fault(f"{task} in {mode}", "precision", reference, _bind(narrow, mode), make, modes)
    for mode in ("fp16", "bf16"):
        right = (f"{mode}_accumulate",)
        accumulated = _bind(_accumulated, mode)
        yield Fault(f"sum accumulated in {mode}", "precision", lambda x: x.sum(-1), accumulated, WIDE_ROWS, right)
        yield Fault(
            f"mean accumulated in {mode}",
            "precision",
            lambda x: x.mean(-1),
            lambda x, a=accumulated: a(x) / x.shape[-1],
            WIDE_ROWS,
            right,
        )
        yield Fault(
            f"matmul accumulated in {mode}",
            "precision",
            torch.matmul,
            _bind(_accumulated_product, mode),
            _MATRICES,
            right,
        )
        yield Fault(f"layer norm of inputs in {mode}", "precision", _layer, _bind(_narrow_norm, mode), ROWS, (mode,))
    yield Fault(
        "flash attention with fp16 probabilities",
        "precision",
        F.scaled_dot_product_attention,
        functools.partial(flash, narrow=torch.float16),
        QKV,
        ("tf32", "fp16"),
    )
    yield Fault(
        "flash attention with bf16 probabilities",
        "precision",
        F.scaled_dot_product_attention,
        functools.partial(flash, narrow=torch.bfloat16),
        QKV,
        ("bf16",),
    )
