"""Sparse operators: what they compute is decided by their entries, stored zeros included."""

import pytest
import torch

from assay.oracle import compare, evaluate


def sparse() -> torch.Tensor:
    """Three rows: two numbers, a number and a stored zero, and nothing."""
    rows, columns = torch.tensor([0, 0, 1, 1]), torch.tensor([0, 2, 1, 3])
    values = torch.tensor([1.25, -0.5, 3.0, 0.0])
    return torch.sparse_coo_tensor(torch.stack([rows, columns]), values, (3, 4)).to_sparse_csr()


def dense(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("reduce", ["sum", "mean", "amax", "amin"])
def test_reduction_goes_over_the_entries(reduce: str) -> None:
    a, b = sparse(), dense(4, 5)
    truth = evaluate(lambda a, b: torch.sparse.mm(a, b, reduce), [a, b])
    assert truth.replay_error is None
    assert truth.unmodelled == ()
    assert compare(truth.leaves[0], torch.sparse.mm(a, b, reduce)).ok


def test_mean_over_numbers_that_are_not_zero_is_wrong() -> None:
    a, b = sparse(), dense(4, 5)
    truth = evaluate(lambda a, b: torch.sparse.mm(a, b, "mean"), [a, b]).leaves[0]
    full = a.to_dense()
    wrong = full @ b / (full != 0).sum(-1, keepdim=True).clamp(min=1)
    assert not compare(truth, wrong).ok


def test_sampled_product_has_a_tolerance_where_entries_are() -> None:
    a, left, right = sparse(), dense(3, 6), dense(6, 4, seed=1)
    truth = evaluate(lambda s, a, b: torch.sparse.sampled_addmm(s, a, b, alpha=0.5), [a, left, right]).leaves[0]
    entries = torch.tensor([[1, 0, 1, 0], [0, 1, 0, 1], [0, 0, 0, 0]], dtype=torch.bool)
    assert bool((truth.spread[entries] > 0).all())
    assert bool((truth.spread[~entries] == 0).all())
    assert compare(truth, torch.where(entries, a.to_dense() + 0.5 * (left @ right), 0.0)).ok
    assert not compare(truth, a.to_dense() + 0.5 * (left @ right)).ok


def test_change_of_layout_is_exact() -> None:
    truth = evaluate(lambda x: (x * 3.0).to_sparse(), [dense(3, 4)]).leaves[0]
    assert truth.y.shape == (3, 4)
    assert compare(truth, dense(3, 4) * 3.0).ok
