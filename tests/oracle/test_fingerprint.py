"""Attribution of residuals to lower precision modes."""

import json
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F

from assay.oracle import Arithmetic, Fingerprint, ModeTruth, alternatives, attribute, evaluate, fingerprint

Map = Callable[[torch.Tensor], torch.Tensor]


def draw(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def nearest_tf32(x: torch.Tensor) -> torch.Tensor:
    return ((x.view(torch.int32) + 0x1000) & ~0x1FFF).view(torch.float32)


def truncated_tf32(x: torch.Tensor) -> torch.Tensor:
    return (x.view(torch.int32) & ~0x1FFF).view(torch.float32)


def bf16(x: torch.Tensor) -> torch.Tensor:
    return x.bfloat16().float()


def fp16(x: torch.Tensor) -> torch.Tensor:
    return x.half().float()


def matmul(rounding: Map) -> Fingerprint:
    a, b = draw(16, 256), draw(256, 24, seed=1)
    return fingerprint(torch.matmul, [a, b], [rounding(a) @ rounding(b)])


def conv(rounding: Map) -> Fingerprint:
    x, w = draw(2, 8, 10, 10), draw(8, 8, 3, 3, seed=1)
    return fingerprint(F.conv2d, [x, w], [F.conv2d(rounding(x), rounding(w))])


def attention(rounding: Map) -> Fingerprint:
    q, k, v = (draw(2, 24, 16, seed=i) for i in range(3))
    weights = torch.softmax(rounding(q) @ rounding(k).mT / 4, -1)
    return fingerprint(F.scaled_dot_product_attention, [q, k, v], [rounding(weights) @ rounding(v)])


def total(rounding: Map) -> Fingerprint:
    x = draw(16, 256)
    return fingerprint(lambda x: x.sum(-1), [x], [rounding(x).sum(-1)])


@pytest.mark.parametrize("task", [matmul, conv, attention])
@pytest.mark.parametrize(
    ("rounding", "mode"), [(nearest_tf32, "tf32"), (truncated_tf32, "tf32"), (bf16, "bf16"), (fp16, "tf32")]
)
def test_rounded_operands_are_recognised(
    task: Callable[[Map], Fingerprint], rounding: Map, mode: str
) -> None:
    found = task(rounding)
    assert found.mode == mode
    assert found.recognised
    if rounding is fp16:
        # Eleven significand bits each: only the range tells fp16 from TF32.
        assert "fp16" in found.also


@pytest.mark.parametrize("task", [matmul, conv, attention, total])
def test_honest_arithmetic_is_declared_with_all_its_bits(task: Callable[[Map], Fingerprint]) -> None:
    found = task(lambda x: x)
    assert found.mode == "declared"
    assert found.effective_bits > 22


def test_rounded_inputs_of_a_reduction_are_recognised() -> None:
    assert total(bf16).mode == "bf16"
    assert total(fp16).mode == "fp16"


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_narrow_accumulators_are_attributed(dtype: torch.dtype) -> None:
    a, b = draw(16, 256), draw(256, 24, seed=1)
    out = torch.zeros(16, 24, dtype=dtype)
    for i in range(256):
        out = (out.float() + a[:, i, None] * b[None, i]).to(dtype)
    found = fingerprint(torch.matmul, [a, b], [out.float()])
    name = "fp16" if dtype == torch.float16 else "bf16"
    assert found.mode == f"{name}_accumulate"
    assert not found.recognised
    assert 8 < found.effective_bits < 16


def test_a_wrong_factor_is_no_mode() -> None:
    a, b = draw(16, 256), draw(256, 24, seed=1)
    assert fingerprint(torch.matmul, [a, b], [(a @ b) * 1.001]).mode is None


def test_exact_data_cannot_tell_modes_apart() -> None:
    a = torch.randint(-4, 5, (16, 32), generator=torch.Generator().manual_seed(0)).float()
    b = torch.randint(-4, 5, (32, 8), generator=torch.Generator().manual_seed(1)).float()
    found = fingerprint(torch.matmul, [a / 3, b], [(a / 3) @ b])
    assert found.identifiable["tf32"]
    found = fingerprint(lambda a, b: (a @ b).exp(), [a / 64, b / 64], [((a / 64) @ (b / 64)).exp()])
    assert not found.identifiable["tf32"]
    assert not found.identifiable["bf16"]


def test_modes_travel_as_plain_data() -> None:
    a, b = draw(8, 64), draw(64, 8, seed=1)
    modes = alternatives(torch.matmul, [a, b])
    assert [m.mode for m in modes] == ["tf32", "fp16", "bf16", "fp16_accumulate", "bf16_accumulate"]
    rebuilt = []
    for mode in modes:
        meta, tensors = mode.to_parts()
        rebuilt.append(ModeTruth.from_parts(json.loads(json.dumps(meta)), tensors))
    evaluation = evaluate(torch.matmul, [a, b])
    actual = [nearest_tf32(a) @ nearest_tf32(b)]
    assert attribute(evaluation, rebuilt, actual) == attribute(evaluation, modes, actual)


def test_declared_tf32_is_no_divergence() -> None:
    a, b = draw(16, 256), draw(256, 24, seed=1)
    declared = Arithmetic(matmul="tf32")
    found = fingerprint(torch.matmul, [a, b], [nearest_tf32(a) @ nearest_tf32(b)], arithmetic=declared)
    assert found.mode == "declared"
    found = fingerprint(torch.matmul, [a, b], [bf16(a) @ bf16(b)], arithmetic=declared)
    assert found.mode == "bf16"


def online_attention(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, narrow: Map, tile: int, factor: float = 1.0
) -> torch.Tensor:
    """Flash attention that rounds each tile's exponentials before they meet the values."""
    scores = q @ k.mT * (factor / q.shape[-1] ** 0.5)
    peak = torch.full_like(scores[..., :1], -1e30)
    total, result = torch.zeros_like(peak), torch.zeros_like(q)
    for start in range(0, scores.shape[-1], tile):
        part = scores[..., start : start + tile]
        higher = torch.maximum(peak, part.amax(-1, keepdim=True))
        weights, before = torch.exp(part - higher), torch.exp(peak - higher)
        total = total * before + weights.sum(-1, keepdim=True)
        result = result * before + narrow(weights) @ v[..., start : start + tile, :]
        peak = higher
    return result / total


@pytest.mark.parametrize(("narrow", "mode"), [(bf16, "bf16"), (fp16, "fp16")])
@pytest.mark.parametrize("tile", [16, 32, 64])
def test_narrow_probabilities_of_flash_attention_account_for_its_error(narrow: Map, mode: str, tile: int) -> None:
    q, k, v = (draw(2, 64, 16, seed=i) for i in range(3))
    right = fingerprint(F.scaled_dot_product_attention, [q, k, v], [online_attention(q, k, v, narrow, tile)])
    assert right.ratios["declared"] > 1.0
    assert mode in right.accounted
    wrong = online_attention(q, k, v, narrow, tile, factor=1.0005)
    assert fingerprint(F.scaled_dot_product_attention, [q, k, v], [wrong]).accounted == ()


@pytest.mark.parametrize("task", [matmul, conv, attention])
@pytest.mark.parametrize(
    ("rounding", "mode"), [(nearest_tf32, "tf32"), (truncated_tf32, "tf32"), (bf16, "bf16"), (fp16, "fp16")]
)
def test_rounded_operands_account_for_all_of_the_error(
    task: Callable[[Map], Fingerprint], rounding: Map, mode: str
) -> None:
    assert mode in task(rounding).accounted


def test_rounded_inputs_account_for_the_error_of_a_sum() -> None:
    assert "bf16" in total(bf16).accounted


@pytest.mark.parametrize("rounding", [nearest_tf32, truncated_tf32, bf16])
def test_rounding_does_not_account_for_a_fault_beside_it(rounding: Map) -> None:
    a, b = draw(16, 256), draw(256, 24, seed=1)
    right = rounding(a) @ rounding(b)
    row = right.clone()
    row[3] *= 1.0003
    faults = {
        "one row scaled": row,
        "all scaled": right * 1.0001,
        "shifted": right + 1e-3,
        "last term dropped": rounding(a[:, :-1]) @ rounding(b[:-1]),
    }
    for name, wrong in faults.items():
        assert fingerprint(torch.matmul, [a, b], [wrong]).accounted == (), name


@pytest.mark.parametrize("rounding", [nearest_tf32, truncated_tf32, bf16])
def test_a_neighbouring_activation_hides_behind_no_rounding(rounding: Map) -> None:
    x, first, second = draw(64, 128), draw(256, 128, seed=1) / 11, draw(32, 256, seed=2) / 16

    def reference(x: torch.Tensor, first: torch.Tensor, second: torch.Tensor) -> torch.Tensor:
        return F.linear(F.gelu(F.linear(x, first)), second)

    def kernel(form: str) -> torch.Tensor:
        hidden = F.gelu(F.linear(rounding(x), rounding(first)), approximate=form)
        return F.linear(rounding(hidden), rounding(second))

    assert fingerprint(reference, [x, first, second], [kernel("none")]).accounted
    assert fingerprint(reference, [x, first, second], [kernel("tanh")]).accounted == ()


def test_rounded_operands_account_for_what_an_exact_product_loses() -> None:
    a = torch.arange(4096.0).view(16, 256) + 4096.0
    b = torch.ones(256, 4)
    right = fingerprint(torch.matmul, [a, b], [bf16(a) @ b])
    assert "bf16" in right.accounted
    assert fingerprint(torch.matmul, [a, b], [bf16(a) @ b + 8.0]).accounted == ()
