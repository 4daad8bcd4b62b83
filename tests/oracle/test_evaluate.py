"""What `evaluate` promises: private copies, float64 through casts, guards, exactness, plain-data truths."""

import json
import math
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from assay.oracle import Arithmetic, Evaluation, arithmetic_for, compare, evaluate


def draw(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


class Counting(nn.Module):
    """Changes its own state and its input."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(8)
        self.calls = 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        x.add_(1.0)
        return self.norm(x)


def test_module_inputs_and_generators_are_left_alone() -> None:
    module, x = Counting(), draw(16, 8)
    before, state = x.clone(), {name: t.clone() for name, t in module.state_dict().items()}
    generator = torch.random.get_rng_state()
    evaluate(module, [x])
    assert torch.equal(x, before)
    assert module.calls == 0
    assert all(torch.equal(t, state[name]) for name, t in module.state_dict().items())
    assert torch.equal(torch.random.get_rng_state(), generator)
    assert not torch.are_deterministic_algorithms_enabled()
    assert torch.backends.mha.get_fastpath_enabled()


def test_same_call_gives_same_truth() -> None:
    x = draw(8, 32)
    first, second = evaluate(nn.Softmax(-1), [x]), evaluate(nn.Softmax(-1), [x])
    assert torch.equal(first.leaves[0].spread, second.leaves[0].spread)
    assert torch.equal(first.leaves[0].y, second.leaves[0].y)


def test_casts_factories_and_scalars_keep_float64() -> None:
    def reference(x: torch.Tensor) -> torch.Tensor:
        total = torch.zeros(x.shape[0], dtype=torch.float32)
        total += x.float().sum(-1)
        buffer = torch.empty(x.shape[0])
        buffer[:] = total
        return torch.cat([buffer.to(torch.float32), torch.full((1,), 1 / 3)])

    x = draw(4, 64)
    truth = evaluate(reference, [x]).leaves[0]
    assert torch.equal(truth.y[:4], x.double().sum(-1))
    assert truth.dtype == "torch.float32"
    assert bool((truth.spread[:4] > 0).all())


def test_cast_to_a_narrow_dtype_widens_the_tolerance_by_its_rounding() -> None:
    x = draw(8, 64)
    narrow = evaluate(lambda x: (x * 3.0).bfloat16().float() * 1.5, [x]).leaves[0]
    wide = evaluate(lambda x: (x * 3.0).float() * 1.5, [x]).leaves[0]
    assert torch.equal(narrow.y, wide.y)
    assert float(narrow.spread.mean()) > 1000 * float(wide.spread.mean())


def test_cast_of_representable_values_is_exact() -> None:
    mask = (draw(8, 64) > 0).float()
    truth = evaluate(lambda m: m.bfloat16().float(), [mask]).leaves[0]
    assert float(truth.spread.max()) == 0.0


def test_a_last_cast_counts_once() -> None:
    x = draw(8, 64)
    truth = evaluate(lambda x: (x.float() * 1.1).bfloat16(), [x]).leaves[0]
    assert truth.unit == 2.0**-8
    assert float((truth.tolerance / truth.y.abs()).min()) < 1.1 * 2.0**-8


def test_the_reference_sees_native_dtypes() -> None:
    def reference(x: torch.Tensor) -> torch.Tensor:
        assert x.dtype == torch.bfloat16
        y = x.float()
        assert y.dtype == torch.float32
        assert (y * 2).dtype == torch.float32
        y = y.masked_fill(y > 1, torch.finfo(x.dtype).min)
        return y.softmax(-1).type_as(x)

    evaluation = evaluate(reference, [draw(4, 32).bfloat16()])
    assert evaluation.raised is None
    assert evaluation.replay_error is None


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16])
def test_native_result_decides_at_every_dtype(dtype: torch.dtype) -> None:
    module = nn.Sequential(nn.Linear(64, 64), nn.GELU(), nn.LayerNorm(64), nn.Linear(64, 16)).to(dtype)
    evaluation = evaluate(module, [draw(32, 64).to(dtype)])
    truth = evaluation.leaves[0]
    assert evaluation.arithmetic == arithmetic_for(dtype)
    assert bool(truth.decided.all())
    assert compare(truth, truth.native).ratio < 1.0


def test_float64_tolerance_is_of_float64_size() -> None:
    x = draw(8, 256).double()
    truth = evaluate(lambda x: x.softmax(-1), [x]).leaves[0]
    relative = truth.tolerance / truth.y
    assert float(relative.max()) < 1e-12
    assert float(relative.min()) > 1e-16


def test_half_precision_operands_are_rounded_by_default_and_half_accumulation_still_stands_out() -> None:
    a, b = draw(16, 1024).bfloat16(), draw(1024, 16, seed=1).bfloat16()
    truth = evaluate(torch.matmul, [a, b]).leaves[0]
    assert compare(truth, (a.float() @ b.float()).bfloat16()).ok
    total = torch.zeros(16, 16, dtype=torch.bfloat16)
    for i in range(0, 1024, 16):
        total += (a[:, i : i + 16].float() @ b[i : i + 16].float()).bfloat16()
    assert not compare(truth, total).ok


def test_flash_attention_with_rounded_probabilities_passes_in_bf16() -> None:
    q, k, v = (draw(2, 32, 32, seed=i).bfloat16() for i in range(3))
    truth = evaluate(F.scaled_dot_product_attention, [q, k, v]).leaves[0]
    scores = q.float() @ k.float().mT / 32**0.5
    weights = torch.exp(scores - scores.amax(-1, keepdim=True))
    out = (weights.bfloat16().float() @ v.float()) / weights.sum(-1, keepdim=True)
    assert compare(truth, out.bfloat16()).ok


def test_storing_intermediates_in_the_task_dtype_is_legal() -> None:
    module = nn.Sequential(nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 16)).bfloat16()
    x = draw(32, 64).bfloat16()
    truth = evaluate(module, [x]).leaves[0]
    with torch.no_grad():
        hidden = (x.float() @ module[0].weight.float().T + module[0].bias.float()).bfloat16()
        hidden = torch.tanh(hidden.float()).bfloat16()
        out = (hidden.float() @ module[2].weight.float().T + module[2].bias.float()).bfloat16()
    assert compare(truth, out).ok


def test_guard_leaves_unstable_elements_undecided() -> None:
    def cancels(x: torch.Tensor) -> torch.Tensor:
        return (x + 1e8) - 1e8

    truth = evaluate(cancels, [draw(64)], arithmetic=Arithmetic("fp64")).leaves[0]
    assert not bool(truth.decided.any())


def test_overflow_at_the_native_dtype_is_undecided() -> None:
    truth = evaluate(lambda x: x * x / x, [torch.tensor([1.0, 1e30])]).leaves[0]
    assert truth.decided.tolist() == [True, False]


def test_random_references_are_reported_and_drawn_once() -> None:
    x = draw(32, 32)
    torch.manual_seed(3)
    evaluation = evaluate(nn.Dropout(0.5), [x])
    torch.manual_seed(3)
    assert evaluation.random
    assert compare(evaluation.leaves[0], F.dropout(x, 0.5)).ok
    assert not evaluate(nn.Dropout(0.5).eval(), [x]).random


def test_python_numbers_read_from_rounded_tensors_carry_their_error() -> None:
    x = draw(8, 64).abs()
    evaluation = evaluate(lambda x: (x / x.sum().item(), x.sum().item(), None, 3), [x])
    assert [leaf.kind for leaf in evaluation.leaves] == ["float", "scalar", "none", "scalar"]
    assert bool((evaluation.leaves[0].spread > 0).all())
    assert compare(evaluation.leaves[0], x / x.sum()).ok
    assert compare(evaluation.leaves[1], torch.tensor(x.sum().item())).ok


def test_a_reference_that_raises_is_reported() -> None:
    evaluation = evaluate(lambda x: x @ x, [draw(2, 3)])
    assert evaluation.raised is not None
    assert evaluation.raised.type == "RuntimeError"
    assert evaluation.leaves == []


def test_a_reference_that_only_the_replay_cannot_run_decides_nothing() -> None:
    def reference(x: torch.Tensor) -> torch.Tensor:
        return (x.view(torch.int32) & 0x7FFFFFFF).view(torch.float32)

    evaluation = evaluate(reference, [draw(4)])
    assert evaluation.replay_error is not None
    assert not bool(evaluation.leaves[0].decided.any())


def test_integer_results_of_rounded_values_are_undecided_only_near_the_threshold() -> None:
    def reference(x: torch.Tensor) -> torch.Tensor:
        return torch.floor(x * 10.0).to(torch.int32)

    truth = evaluate(reference, [torch.tensor([0.35, 0.1 + 0.2, 0.71])]).leaves[0]
    assert truth.kind == "int"
    assert truth.decided.tolist() == [True, False, True]


def test_jumps_inside_a_floating_result_are_undecided() -> None:
    def reference(x: torch.Tensor) -> torch.Tensor:
        return torch.where(x * 3.0 > 0.3, x, -x)

    truth = evaluate(reference, [torch.tensor([0.5, 0.1, -0.5])]).leaves[0]
    assert truth.decided.tolist() == [True, False, True]


def test_leaves_follow_the_output_structure() -> None:
    def reference(x: torch.Tensor) -> dict[str, object]:
        return {"b": (x + 1, [x > 0]), "a": None, "c": torch.view_as_complex(x.reshape(-1, 2))}

    kinds = [leaf.kind for leaf in evaluate(reference, [draw(4, 4)]).leaves]
    assert kinds == ["float", "bool", "none", "complex"]


def test_integer_data_makes_linear_operations_exact() -> None:
    a = torch.randint(-8, 9, (16, 64), generator=torch.Generator().manual_seed(0)).float()
    b = torch.randint(-8, 9, (64, 8), generator=torch.Generator().manual_seed(1)).float() / 4
    evaluation = evaluate(lambda a, b: (a @ b).sum(-1) * 2 + 1, [a, b])
    truth = evaluation.leaves[0]
    assert evaluation.exact
    assert float(truth.tolerance.max()) == 0.0
    assert compare(truth, truth.native).ok
    assert not compare(truth, torch.nextafter(truth.native, torch.tensor(1e9))).ok


def test_integer_data_does_not_make_division_or_exp_exact() -> None:
    x = torch.arange(1.0, 65.0).reshape(8, 8)
    assert not evaluate(lambda x: x.mean(-1) / 3, [x]).exact
    assert not evaluate(lambda x: x.softmax(-1), [x]).exact


def test_sums_beyond_the_significand_are_not_exact() -> None:
    x = torch.full((4, 64), 2.0**20) + torch.arange(64.0)
    assert not evaluate(lambda x: x.sum(-1), [x]).exact


def test_truths_travel_as_plain_data() -> None:
    def reference(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return (*torch.topk(x * 1.1, 3), x.sum(), torch.fft.rfft(x))

    evaluation = evaluate(reference, [draw(4, 16)])
    meta, tensors = evaluation.to_parts()
    rebuilt = Evaluation.from_parts(json.loads(json.dumps(meta)), tensors)
    assert rebuilt.ops == evaluation.ops
    for a, b in zip(rebuilt.leaves, evaluation.leaves, strict=True):
        assert torch.equal(a.tolerance, b.tolerance)
        assert torch.equal(a.decided, b.decided)
        assert compare(a, b.native) == compare(b, b.native)


def test_tolerance_is_the_sum_of_its_parts() -> None:
    truth = evaluate(lambda x: x.softmax(-1), [draw(4, 32)]).leaves[0]
    parts = truth.parts(17)
    total = parts.spread + parts.pooled + parts.output + parts.floor
    assert total == pytest.approx(float(truth.tolerance.reshape(-1)[17]))
    assert min(parts.spread, parts.pooled, parts.output) > 0


def test_a_small_row_is_not_excused_by_a_large_one() -> None:
    x = draw(32, 64)
    x[0] *= 1e-6
    truth = evaluate(lambda x: x * 1.1 + x, [x]).leaves[0]
    assert float(truth.tolerance[0].max()) < 1e-10
    columns = evaluate(lambda x: x * 1.1 + x, [x.T.contiguous()]).leaves[0]
    assert float(columns.tolerance[:, 0].max()) < 1e-10


def test_unknown_operators_are_named() -> None:
    @torch.library.custom_op("assay_tests::folded", mutates_args=())
    def folded(x: torch.Tensor) -> torch.Tensor:
        return torch.from_numpy(np.sinc(x.numpy()))

    evaluation = evaluate(lambda x: folded(x), [draw(64)])
    assert len(evaluation.unmodelled) == 1
    assert "folded" in evaluation.unmodelled[0]


def test_products_under_autocast_are_judged_at_its_precision() -> None:
    module, x = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 16)), draw(16, 64)

    def reference(x: torch.Tensor) -> torch.Tensor:
        with torch.autocast("cpu", torch.bfloat16):
            return module(x)

    truth = evaluate(reference, [x]).leaves[0]
    assert truth.dtype == "torch.bfloat16"
    assert bool(truth.decided.all())
    with torch.no_grad():
        assert compare(truth, module(x).bfloat16()).ok
        assert not compare(truth, (module(x) * 1.1).bfloat16()).ok


def welford(x: torch.Tensor) -> torch.Tensor:
    """Mean of each row by a running update, which subtracts it from the next element."""
    mean = torch.zeros(x.shape[:-1], dtype=x.dtype)
    for i in range(x.shape[-1]):
        mean = mean + (x[..., i] - mean) / (i + 1)
    return mean


@pytest.mark.parametrize("function", [torch.var_mean, torch.std_mean])
@pytest.mark.parametrize("data", ["normal", "small integers"])
def test_a_mean_that_comes_with_a_variance_may_be_nan_where_it_is_infinite(function: Any, data: str) -> None:
    """What follows an infinity in Welford's update makes it NaN, and what follows it is up to the kernel."""
    generator = torch.Generator().manual_seed(3)
    x = torch.randn(6, 40, generator=generator) if data == "normal" else \
        torch.randint(-3, 4, (6, 40), generator=generator).float()
    x[1, -1], x[2, 3], x[3, 0], x[4, 7] = math.inf, math.inf, -math.inf, math.nan
    found = evaluate(lambda t: function(t, dim=-1, correction=0), [x], {}, runs=6)
    variance, mean = found.leaves
    assert variance.decided.all()
    assert mean.decided.tolist() == [True, False, False, False, True, True]
    one_way, other = x.mean(-1), welford(x)
    assert one_way[1:4].isinf().all()
    assert other[2:4].isnan().all()
    assert compare(mean, one_way).ok
    assert compare(mean, other).ok
    assert not compare(mean, torch.zeros(6)).ok


def test_a_mean_alone_is_infinite_where_a_summand_is() -> None:
    x = torch.randn(3, 40)
    x[1, 3] = math.inf
    [mean] = evaluate(lambda t: t.mean(-1), [x], {}, runs=6).leaves
    assert mean.decided.all()
    assert not compare(mean, welford(x)).ok
