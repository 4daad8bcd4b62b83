"""Outputs of indices: right inside measured ties, exact elsewhere."""

import pytest
import torch

from assay.oracle import LeafTruth, Reason, compare, evaluate


def draw(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(0))


def index_leaf(reference: object, *inputs: torch.Tensor) -> LeafTruth:
    leaves = evaluate(reference, inputs).leaves  # type: ignore[arg-type]
    return next(leaf for leaf in leaves if leaf.index is not None)


def test_argmax_returns_the_first_of_equal_entries() -> None:
    x = torch.tensor([[1.0, 3.0, 3.0, 0.0], [2.0, 2.0, 1.0, 2.0]])
    truth = index_leaf(lambda x: x.argmax(-1), x)
    assert truth.index is not None
    assert truth.index.rule == "first"
    assert compare(truth, torch.tensor([1, 0])).ok
    wrong = compare(truth, torch.tensor([2, 0]))
    assert wrong.reason is Reason.INDEX
    assert wrong.index == 0


def test_near_ties_of_rounded_keys_admit_any_member() -> None:
    x = torch.tensor([[0.1, 0.3, 0.2]])
    # 0.1 + 0.2 rounds next to 0.3: which is larger depends on the order of operations.
    truth = index_leaf(
        lambda x: torch.stack([x[:, 0] + x[:, 2], x[:, 1] * 1.0000001, x[:, 0]], -1).argmax(-1), x
    )
    assert compare(truth, torch.tensor([0])).ok
    assert compare(truth, torch.tensor([1])).ok
    assert not compare(truth, torch.tensor([2])).ok


def test_topk_admits_any_member_of_a_tie_but_none_twice() -> None:
    x = torch.tensor([[5.0, 1.0, 4.0, 4.0, 4.0]])
    truth = index_leaf(lambda x: torch.topk(x, 3), x)
    assert compare(truth, torch.tensor([[0, 4, 2]])).ok
    assert not compare(truth, torch.tensor([[0, 2, 2]])).ok
    assert not compare(truth, torch.tensor([[0, 2, 1]])).ok
    assert not compare(truth, torch.tensor([[2, 0, 3]])).ok


def test_out_of_range_indices_are_wrong() -> None:
    truth = index_leaf(lambda x: x.argmax(-1), draw(4, 8))
    assert not compare(truth, torch.full((4,), 8)).ok
    assert not compare(truth, torch.full((4,), -1)).ok


@pytest.mark.parametrize(
    "reference",
    [
        lambda x: x.argmax(),
        lambda x: x.argmin(0),
        lambda x: x.argmax(1, keepdim=True),
        lambda x: x.max(1),
        lambda x: x.min(0)[1].to(torch.int32),
        lambda x: x.sort(-1, descending=True),
        lambda x: x.argsort(0),
        lambda x: x.topk(3, dim=1, largest=False),
        lambda x: x.topk(3)[1].T,
        lambda x: x.kthvalue(2, dim=0),
        lambda x: x.median(-1),
        lambda x: (x * 1.1).exp().topk(2, dim=0)[1][:1],
    ],
)
def test_native_choice_is_right_and_a_shifted_one_is_not(reference: object) -> None:
    truth = index_leaf(reference, draw(6, 10))
    assert bool(truth.decided.all())
    assert compare(truth, truth.native).ok
    index = truth.index
    assert index is not None
    assert not compare(truth, (truth.native + 1) % index.keys.shape[-1]).ok


def test_nan_ranks_as_torch_ranks_it() -> None:
    x = torch.tensor([[1.0, float("nan"), 5.0]])
    truth = index_leaf(lambda x: x.argmax(-1), x)
    assert compare(truth, torch.tensor([1])).ok
    assert not compare(truth, torch.tensor([2])).ok


def test_integer_keys_are_exact() -> None:
    x = torch.tensor([[3, 7, 7, 1]])
    truth = index_leaf(lambda x: x.argmax(-1), x)
    assert compare(truth, torch.tensor([1])).ok
    assert not compare(truth, torch.tensor([2])).ok
