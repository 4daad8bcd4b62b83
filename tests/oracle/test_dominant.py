"""Attribution of a tolerance to the operator that causes most of it."""

import pytest
import torch
import torch.nn.functional as F

from assay.oracle import contributions, evaluate, with_dominant


def draw(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def test_shares_sum_to_one_and_name_the_operator_that_loses_most() -> None:
    x = draw(16, 64) * 0.1
    # The addition of 1e4 and its removal cost far more than anything else.
    shares = contributions(lambda x: ((x.exp() + 1e4) - 1e4) * 1.5, [x])[0]
    assert sum(shares.values()) == pytest.approx(1.0)
    assert next(iter(shares)) == "add"
    assert shares["add"] > 0.9


def test_mean_dominates_layer_norm_at_a_large_offset() -> None:
    x = draw(16, 64) + 1000
    evaluation = evaluate(lambda x: F.layer_norm(x, (64,)), [x])
    filled = with_dominant(evaluation, contributions(lambda x: F.layer_norm(x, (64,)), [x]))
    assert filled.leaves[0].dominant == "mean"


def test_exact_results_have_no_dominant_operator() -> None:
    assert contributions(F.relu, [draw(4, 4)]) == [{}]


def test_operand_rounding_is_an_operator_of_its_own() -> None:
    def reference(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return torch.exp(a.float() @ b.float()) @ b.float()

    a, b = draw(8, 16).bfloat16(), draw(16, 16, seed=1).bfloat16()
    assert next(iter(contributions(reference, [a, b])[0])) == "rounding to bf16"
