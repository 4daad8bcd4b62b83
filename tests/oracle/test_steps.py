"""Operators that are replayed as one run have the spread of the operations they stand for."""

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F

from assay.oracle import evaluate

Function = Callable[[torch.Tensor], torch.Tensor]


def draw(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def spelled_gelu(x: torch.Tensor) -> torch.Tensor:
    return x * 0.5 * (1.0 + torch.erf(x * 0.7071067811865476))


def spelled_tanh(x: torch.Tensor) -> torch.Tensor:
    return 0.5 * x * (1.0 + torch.tanh(0.7978845608028654 * (x + 0.044715 * (x * x * x))))


def spelled_norm(x: torch.Tensor) -> torch.Tensor:
    mean = x.mean(-1, keepdim=True)
    centred = x - mean
    variance = (centred * centred).mean(-1, keepdim=True)
    return centred * torch.rsqrt(variance + 1e-5) * 1.5 + 0.25


def norm(x: torch.Tensor) -> torch.Tensor:
    n = x.shape[-1]
    return F.layer_norm(x, (n,), x.new_full((n,), 1.5), x.new_full((n,), 0.25))


def spelled_softmax(x: torch.Tensor) -> torch.Tensor:
    weights = torch.exp(x - x.amax(-1, keepdim=True))
    return weights / weights.sum(-1, keepdim=True)


def linear(x: torch.Tensor) -> torch.Tensor:
    w = draw(24, x.shape[-1], seed=1).to(x.dtype)
    return F.linear(x, w, draw(24, seed=2).to(x.dtype))


def spelled_linear(x: torch.Tensor) -> torch.Tensor:
    w = draw(24, x.shape[-1], seed=1).to(x.dtype)
    return torch.matmul(x, w.T) + draw(24, seed=2).to(x.dtype)


@pytest.mark.parametrize(
    ("whole", "spelled"),
    [
        (F.gelu, spelled_gelu),
        (lambda x: F.gelu(x, approximate="tanh"), spelled_tanh),
        (F.silu, lambda x: x * torch.sigmoid(x)),
        (norm, spelled_norm),
        (lambda x: x.softmax(-1), spelled_softmax),
        (linear, spelled_linear),
    ],
)
@pytest.mark.parametrize("before", [lambda x: x, lambda x: x * 1.7], ids=["exact input", "rounded input"])
def test_spread_is_that_of_the_operations(whole: Function, spelled: Function, before: Function) -> None:
    x = draw(64, 96)
    one, other = (evaluate(lambda x, f=f: f(before(x)), [x]).leaves[0] for f in (whole, spelled))
    torch.testing.assert_close(one.y, other.y)
    ratio = one.spread.square().mean(-1).sqrt() / other.spread.square().mean(-1).sqrt()
    # softmax and its norm also grant forms that the spelling has not: base-2 exponentials, running means
    assert 0.8 < float(ratio.median()) < 1.6


def test_spread_of_log_softmax_grows_with_the_offset_of_its_row() -> None:
    near, far = (evaluate(lambda x: x.log_softmax(-1), [draw(16, 64) + offset]).leaves[0] for offset in (0.0, 1000.0))
    assert float(far.spread.mean()) > 50.0 * float(near.spread.mean())


def test_masked_scores_have_no_weight_and_no_spread() -> None:
    x = draw(8, 32)
    x[:, 20:] = float("-inf")
    truth = evaluate(lambda x: (x + 0.5).softmax(-1), [x]).leaves[0]
    assert bool((truth.y[:, 20:] == 0).all())
    assert bool((truth.spread[:, 20:] == 0).all())
    assert bool(truth.decided.all())


def test_running_statistics_follow_in_every_run() -> None:
    layer = torch.nn.BatchNorm1d(8)

    class Twice(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = layer

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.layer(x)
            return self.layer.running_var * 1.0

    x = draw(32, 8)
    truth = evaluate(Twice(), [x]).leaves[0]
    torch.testing.assert_close(truth.y, (0.9 + 0.1 * x.double().var(0)))
    assert bool((truth.spread > 0).all())


def test_rounding_of_an_output_is_expected_and_not_sampled() -> None:
    x = draw(8, 16)
    truth = evaluate(lambda x: x * 3.0, [x]).leaves[0]
    torch.testing.assert_close(truth.spread, 0.75 * 2.0**-24 * truth.y.abs(), rtol=1e-12, atol=0.0)


def test_result_that_is_read_twice_is_one_number_in_every_run() -> None:
    def reference(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        y = x * 3.0
        return y, y - y, y.view(-1)[3:9]

    y, nothing, part = evaluate(reference, [draw(8, 16)]).leaves
    assert bool((y.spread > 0).all())
    assert bool((nothing.spread == 0).all())
    torch.testing.assert_close(part.spread, y.spread.view(-1)[3:9])


def test_write_after_a_read_leaves_what_was_read() -> None:
    def reference(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        y = x * 3.0
        z = y[1:] + 0.0
        y.zero_()
        return y, z

    y, z = evaluate(reference, [draw(8, 16)]).leaves
    assert bool((y.spread == 0).all())
    assert bool((z.spread > 0).all())


def test_write_into_a_part_leaves_the_rest_perturbed() -> None:
    def reference(x: torch.Tensor) -> torch.Tensor:
        y = x * 3.0
        y[2] = 1.0
        return y

    truth = evaluate(reference, [draw(8, 16)]).leaves[0]
    assert bool((truth.spread[2] == 0).all())
    assert bool((truth.spread[[0, 1, 3, 4, 5, 6, 7]] > 0).all())


def test_view_in_place_keeps_the_noise_of_a_result() -> None:
    x, w = draw(5), draw(5, 7, seed=1)
    # torch takes the product as one of matrices, and drops the row in place
    truth = evaluate(torch.matmul, [x, w]).leaves[0]
    assert truth.spread.shape == (7,)
    assert bool((truth.spread > 0).all())
    squeezed = evaluate(lambda x: (x * 3.0).unsqueeze_(0).squeeze_(0), [x]).leaves[0]
    assert bool((squeezed.spread > 0).all())
