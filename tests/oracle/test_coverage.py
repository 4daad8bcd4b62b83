"""Operators that kernels are written for are modelled, and the native result is inside its own tolerance."""

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from assay.oracle import compare, evaluate


def draw(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def positive_definite(n: int) -> torch.Tensor:
    a = draw(n, n)
    return a @ a.T + n * torch.eye(n)


X, IMAGE, VOLUME = draw(16, 48), draw(2, 4, 9, 9), draw(1, 2, 6, 6, 6)
LABELS = torch.arange(16)

CASES: dict[str, tuple[Callable[..., object], tuple[object, ...]]] = {
    "logsumexp": (lambda x: torch.logsumexp(x, -1), (X,)),
    "log_softmax": (lambda x: x.log_softmax(0), (X,)),
    "rms_norm": (lambda x: F.rms_norm(x, (48,)), (X,)),
    "instance_norm": (F.instance_norm, (IMAGE,)),
    "batch_norm_train": (nn.BatchNorm2d(4), (IMAGE,)),
    "batch_norm_eval": (nn.BatchNorm2d(4).eval(), (IMAGE,)),
    "local_response_norm": (lambda x: F.local_response_norm(x, 3), (IMAGE,)),
    "normalize": (F.normalize, (X,)),
    "frobenius": (lambda x: torch.linalg.norm(x), (X,)),
    "weight_norm": (nn.utils.parametrizations.weight_norm(nn.Linear(48, 8)), (X,)),
    "cross_entropy": (lambda x: F.cross_entropy(x, LABELS, label_smoothing=0.1), (X,)),
    "nll": (lambda x: F.nll_loss(x.log_softmax(-1), LABELS), (X,)),
    "bce": (lambda x: F.binary_cross_entropy(x.sigmoid(), (x > 0).float()), (X,)),
    "bce_logits": (lambda x: F.binary_cross_entropy_with_logits(x, (x > 0).float()), (X,)),
    "kl_div": (lambda x: F.kl_div(x.log_softmax(-1), x.flip(0).softmax(-1), reduction="batchmean"), (X,)),
    "huber": (lambda x: F.huber_loss(x, x.flip(0)), (X,)),
    "smooth_l1": (lambda x: F.smooth_l1_loss(x, x.flip(0)), (X,)),
    "hinge": (lambda x: torch.mean(torch.clamp(1 - x * x.flip(0), min=0)), (X,)),
    "triplet": (lambda x: F.triplet_margin_loss(x, x.flip(0), x.roll(1, 0)), (X,)),
    "cosine": (lambda x: F.cosine_similarity(x, x.flip(0)), (X,)),
    "ctc": (
        lambda x: F.ctc_loss(x.log_softmax(-1).unsqueeze(1), torch.tensor([[1, 2, 3]]), (16,), (3,)),
        (X,),
    ),
    "avg_pool1d": (lambda x: F.avg_pool1d(x, 4), (X,)),
    "avg_pool2d": (lambda x: F.avg_pool2d(x, 3, 2, 1), (IMAGE,)),
    "avg_pool3d": (lambda x: F.avg_pool3d(x, 2), (VOLUME,)),
    "adaptive_avg_pool2d": (lambda x: F.adaptive_avg_pool2d(x, 2), (IMAGE,)),
    "max_pool2d": (lambda x: F.max_pool2d(x * 1.1, 3, 2), (IMAGE,)),
    "lp_pool": (lambda x: F.lp_pool2d(x.abs(), 2, 2), (IMAGE,)),
    "conv1d": (nn.Conv1d(4, 6, 3, dilation=2), (draw(2, 4, 16),)),
    "conv2d_grouped": (nn.Conv2d(4, 8, 3, groups=2), (IMAGE,)),
    "conv2d_depthwise": (nn.Conv2d(4, 4, 3, groups=4), (IMAGE,)),
    "conv3d": (nn.Conv3d(2, 4, 3), (VOLUME,)),
    "conv_transpose1d": (nn.ConvTranspose1d(4, 6, 3, stride=2), (draw(2, 4, 16),)),
    "conv_transpose2d": (nn.ConvTranspose2d(4, 6, 3, stride=2, output_padding=1), (IMAGE,)),
    "conv_transpose3d": (nn.ConvTranspose3d(2, 4, 3), (VOLUME,)),
    "einsum": (lambda x: torch.einsum("ij,kj->ik", x, x), (X,)),
    "bilinear": (nn.Bilinear(8, 6, 5), (draw(4, 8), draw(4, 6))),
    "baddbmm": (
        lambda a, b: torch.baddbmm(a @ b, a, b, beta=0.5, alpha=2),
        (draw(2, 8, 8), draw(2, 8, 8, seed=1)),
    ),
    "rnn": (nn.RNN(8, 8), (draw(6, 2, 8),)),
    "gru": (nn.GRU(8, 8, bidirectional=True), (draw(6, 2, 8),)),
    "lstm_cell": (nn.LSTMCell(8, 8), (draw(2, 8),)),
    "multihead": (nn.MultiheadAttention(16, 2), (draw(5, 2, 16),) * 3),
    "encoder_layer": (nn.TransformerEncoderLayer(16, 2, 32).eval(), (draw(5, 2, 16),)),
    "masked_attention": (
        lambda q: F.scaled_dot_product_attention(
            q, q, q, attn_mask=torch.ones(8, 8, dtype=torch.bool).tril()
        ),
        (draw(2, 8, 16),),
    ),
    "interpolate_bilinear": (lambda x: F.interpolate(x, scale_factor=2, mode="bilinear"), (IMAGE,)),
    "interpolate_bicubic": (lambda x: F.interpolate(x, scale_factor=2, mode="bicubic"), (IMAGE,)),
    "interpolate_nearest": (lambda x: F.interpolate(x * 1.1, scale_factor=2), (IMAGE,)),
    "embedding": (nn.Embedding(10, 4), (torch.tensor([[1, 2], [3, 9]]),)),
    "embedding_bag": (
        nn.EmbeddingBag(10, 4, mode="mean"),
        (torch.tensor([1, 2, 4, 5]), torch.tensor([0, 3])),
    ),
    "prod": (lambda x: x.prod(-1), (X,)),
    "cumprod": (lambda x: x.cumprod(-1), (X,)),
    "cumsum": (lambda x: x.cumsum(0), (X,)),
    "reverse_cumsum": (lambda x: x.flip(1).cumsum(1).flip(1), (X,)),
    "masked_cumsum": (lambda x: (x * (x > 0)).cumsum(1), (X,)),
    "logcumsumexp": (lambda x: x.logcumsumexp(1), (X,)),
    "cummax": (lambda x: (x * 1.1).cummax(1), (X,)),
    "std_var": (lambda x: (x.std(0), x.var(1), *torch.var_mean(x)), (X,)),
    "scatter_add": (lambda x: torch.zeros(48).scatter_add(0, torch.arange(48) % 7, x[0] * 1.1), (X,)),
    "index_add": (lambda x: torch.zeros(4, 48).index_add_(0, torch.arange(16) % 4, x), (X,)),
    "scatter_mean": (lambda x: torch.zeros(48).scatter_reduce(0, torch.arange(48) % 7, x[0], "mean"), (X,)),
    "fft": (lambda x: torch.fft.irfft(torch.fft.rfft(x) * 2.5), (X,)),
    "fft2": (lambda x: torch.fft.fft2(x).abs(), (IMAGE,)),
    "stft": (lambda x: torch.stft(x, 16, window=torch.hann_window(16), return_complex=True).abs(), (X,)),
    "solve": (lambda a: torch.linalg.solve(a, torch.ones(8)), (positive_definite(8),)),
    "inv": (torch.linalg.inv, (positive_definite(8),)),
    "det": (torch.linalg.det, (draw(6, 6),)),
    "cholesky": (torch.linalg.cholesky, (positive_definite(8),)),
    "eigvalsh": (torch.linalg.eigvalsh, (positive_definite(8),)),
    "svdvals": (torch.linalg.svdvals, (draw(8, 6),)),
    "qr": (torch.linalg.qr, (draw(8, 6),)),
    "cdist": (torch.cdist, (draw(8, 6), draw(9, 6, seed=1))),
    "cdist_by_product": (torch.cdist, (draw(30, 6), draw(32, 6, seed=1))),
    "pdist": (F.pdist, (draw(8, 6),)),
    "erf": (lambda x: torch.erf(x) + torch.erfc(x), (X,)),
    "activations": (
        lambda x: [
            f(x) for f in (F.mish, F.silu, F.selu, F.softsign, F.hardswish, F.logsigmoid, F.celu, F.softplus)
        ],
        (X,),
    ),
    "gelu_tanh": (lambda x: F.gelu(x, approximate="tanh"), (X,)),
    "pow": (lambda x: x.abs().pow(2.5) + x.pow(3) + 2.0**x, (X,)),
    "trigonometry": (lambda x: x.sin() + x.cos() * x.tan().atan(), (X,)),
    "in_place": (lambda x: x.clone().mul_(2.5).add_(x, alpha=0.3).clamp_(-1, 1).sub_(1), (X,)),
    "sliced_writes": (lambda x: _write_slices(x), (X,)),
    "out_argument": (lambda x: torch.mul(x, 1.1, out=torch.empty(16, 48)), (X,)),
    "unfold": (lambda x: F.unfold(x * 1.1, 3).sum(1), (IMAGE,)),
    "sort_values": (lambda x: (x * 1.1).sort(-1)[0], (X,)),
    "boolean_mask": (lambda x: (x * 1.5)[x > 0], (X,)),
    "trapezoid": (torch.trapezoid, (X,)),
    "kron": (lambda x: torch.kron(x[:3, :3], x[3:6, :4]), (X,)),
}


def _write_slices(x: torch.Tensor) -> torch.Tensor:
    out = torch.zeros(16, 48)
    for i in range(0, 16, 4):
        out[i : i + 4] = x[i : i + 4].softmax(-1)
        out[i, 3] += 1.5
    return out.T


@pytest.mark.parametrize("name", CASES)
def test_operator_is_modelled_and_native_result_is_inside(name: str) -> None:
    reference, inputs = CASES[name]
    torch.manual_seed(0)
    evaluation = evaluate(reference, inputs)
    assert evaluation.raised is None
    assert evaluation.replay_error is None
    assert set(evaluation.unmodelled) <= ({"_ctc_loss"} if name == "ctc" else set())
    for leaf in evaluation.leaves:
        if leaf.kind != "none":
            assert bool(leaf.decided.all())
            assert compare(leaf, leaf.native).ratio <= 0.9


@pytest.mark.parametrize("name", [n for n in CASES if n not in ("embedding", "embedding_bag")])
def test_error_of_a_thousandth_is_noticed(name: str) -> None:
    """No rule is so wide that a relative error of 1e-3 in the whole result would pass."""
    reference, inputs = CASES[name]
    torch.manual_seed(0)
    for leaf in evaluate(reference, inputs).leaves:
        if leaf.kind == "float" and float(leaf.y.abs().max()) > 0:
            assert not compare(leaf, leaf.native * 1.001).ok
