"""Structure of inputs: claimed where samples show it, and not where chance could."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from assay.probe.structure import Structure, infer

N = 24


def seen(make: Callable[[], Tensor], samples: int = 3) -> Structure:
    drawn = []
    for seed in range(samples):
        torch.manual_seed(seed)
        drawn.append(make())
    return infer(drawn)


MATRICES = (
    "upper_triangular",
    "lower_triangular",
    "diagonal",
    "banded",
    "symmetric",
    "positive_definite",
    "orthogonal",
)
CLAIMS: dict[str, tuple[Callable[[], Tensor], set[str]]] = {
    "normal": (lambda: torch.randn(N, N), {"normal_like"}),
    "scaled normal": (lambda: 0.02 * torch.randn(N, N), {"normal_like"}),
    "half normal": (lambda: torch.randn(N, N).half(), {"normal_like"}),
    "heavy tails": (lambda: torch.randn(N, N) / torch.rand(N, N), {"normal_like"}),
    "uniform": (lambda: torch.rand(N, N), {"positive", "bounded", "unit_interval"}),
    "signed uniform": (lambda: torch.rand(N, N) * 2 - 1, {"bounded"}),
    "shifted uniform": (lambda: torch.rand(N, N) + 0.05, {"positive", "bounded"}),
    "shifted normal": (lambda: torch.randn(N, N) + 9, {"positive", "bounded"}),
    "rectified": (lambda: torch.randn(N, N).relu(), {"non_negative", "bounded"}),
    "sigmoid": (lambda: torch.randn(N, N).sigmoid(), {"positive", "bounded", "unit_interval"}),
    "negative": (lambda: -torch.rand(N, N) - 0.1, {"negative", "bounded"}),
    "log of probabilities": (lambda: torch.randn(N, N).log_softmax(1), {"negative", "bounded"}),
    "upper": (lambda: torch.randn(N, N).triu(), {"normal_like", "upper_triangular"}),
    "lower": (lambda: torch.randn(N, N).tril(), {"normal_like", "lower_triangular"}),
    "batched upper": (lambda: torch.randn(3, N, N).triu(), {"normal_like", "upper_triangular"}),
    "wide upper": (lambda: torch.randn(N, 2 * N).triu(), {"normal_like", "upper_triangular"}),
    "diagonal": (lambda: torch.diag(torch.randn(4 * N)), {"normal_like", "diagonal"}),
    "banded": (lambda: torch.randn(N, N).tril(2).triu(-1), {"normal_like", "banded"}),
    "symmetric": (lambda: (lambda a: a + a.T)(torch.randn(N, N)), {"normal_like", "symmetric"}),
    "orthogonal": (
        lambda: torch.linalg.qr(torch.randn(N, N))[0],
        {"normal_like", "orthogonal", "unit_norm_rows"},
    ),
    "probabilities": (
        lambda: (0.5 * torch.randn(N, N)).softmax(1),
        {"positive", "bounded", "rows_sum_to_one"},
    ),
    "unit rows": (lambda: functional.normalize(torch.randn(N, N)), {"normal_like", "unit_norm_rows"}),
    "one-hot": (
        lambda: functional.one_hot(torch.randint(0, 9, (N,)), 9),
        {"binary", "one_hot", "non_negative", "bounded"},
    ),
    "zeros and ones": (
        lambda: torch.randint(0, 2, (N, N)).float(),
        {"integral", "binary", "non_negative", "bounded"},
    ),
    "signs": (lambda: torch.randint(0, 2, (N,)) * 2.0 - 1, {"integral", "signs", "bounded"}),
    "indices": (lambda: torch.randint(0, 500, (N,)), {"non_negative", "bounded"}),
    "permutation": (lambda: torch.randperm(N), {"permutation", "non_negative", "bounded"}),
    "sorted": (lambda: torch.randn(8, N).sort(1)[0], {"ascending", "normal_like"}),
    "falling": (lambda: torch.randn(8, N).sort(1, descending=True)[0], {"descending", "normal_like"}),
    "line": (lambda: torch.linspace(0.5, 1.5, N), {"constant", "ascending", "positive", "bounded"}),
    "ones": (lambda: torch.ones(N), {"constant", "uniform", "integral", "positive", "bounded"}),
    "mask": (lambda: torch.rand(N, N) > 0.3, set()),
    "causal mask": (lambda: torch.ones(N, N).tril().bool(), {"constant", "lower_triangular"}),
    "complex": (lambda: torch.randn(N, N, dtype=torch.complex64), set()),
    "nothing": (lambda: torch.empty(0, 4), set()),
}


@pytest.mark.parametrize(("make", "traits"), CLAIMS.values(), ids=CLAIMS.keys())
def test_exactly_the_traits_of_a_kind_are_claimed(make: Callable[[], Tensor], traits: set[str]) -> None:
    assert set(seen(make).traits) == traits


def test_a_positive_definite_matrix_is_symmetric_too() -> None:
    structure = seen(lambda: (lambda a: a @ a.T + N * torch.eye(N))(torch.randn(N, N)))
    assert structure.has("symmetric")
    assert structure.has("positive_definite")


@pytest.mark.parametrize("shape", [(1, 1), (2, 2), (3, 3), (1, 30), (30, 1)])
def test_a_small_matrix_proves_no_matrix_structure(shape: tuple[int, int]) -> None:
    assert not seen(lambda: torch.randn(shape).triu()).has(*MATRICES)


def test_a_sparse_matrix_is_not_taken_for_a_triangle() -> None:
    def make() -> Tensor:
        matrix = torch.zeros(N, N)
        matrix[0, 5] = matrix[3, 9] = torch.randn(())
        return matrix

    assert not seen(make).has("upper_triangular", "lower_triangular")


def test_a_triangle_in_one_sample_alone_is_no_triangle() -> None:
    assert not infer([torch.randn(N, N).triu(), torch.randn(N, N)]).has("upper_triangular")


def test_two_equal_samples_are_not_enough_for_a_constant() -> None:
    line = torch.linspace(0, 1, N)
    assert not infer([line, line]).has("constant")
    assert infer([line] * 3).has("constant")


def test_a_single_element_needs_more_samples_to_be_constant() -> None:
    assert not infer([torch.tensor(3)] * 3).has("constant")
    assert infer([torch.tensor(3)] * 6).has("constant")


def test_too_few_elements_have_no_known_tails() -> None:
    assert not seen(lambda: torch.randn(8)).has("normal_like")
    assert seen(lambda: torch.randn(8)).has("bounded")


def test_few_sorted_elements_prove_no_order() -> None:
    assert not infer([torch.tensor([1.0, 2.0])] * 3).has("ascending")


def test_ranges_and_shares_are_those_seen() -> None:
    structure = seen(lambda: torch.tensor([[0.0, 0.0, 2.0, 4.0]] * 8))
    assert (structure.low, structure.high, structure.mean, structure.zeros) == (0.0, 4.0, 1.5, 0.5)
    assert (structure.samples, structure.elements) == (3, 96)


def test_the_range_covers_elements_beyond_those_looked_at_closely() -> None:
    def make() -> Tensor:
        values = torch.randn(600, 600)
        values[-1, -1] = 77.0
        return values

    assert seen(make).high == 77.0


def test_infinities_are_told_and_claim_nothing_of_rows() -> None:
    structure = seen(lambda: torch.zeros(N, N).masked_fill(torch.rand(N, N) < 0.3, float("-inf")))
    assert structure.nonfinite
    assert structure.high == 0.0


def test_no_sample_is_an_error() -> None:
    with pytest.raises(ValueError, match="at least one"):
        infer([])


@pytest.mark.parametrize(
    "dtype", [torch.float16, torch.bfloat16, torch.float64, torch.int8, torch.uint8, torch.bool]
)
def test_every_dtype_is_read(dtype: torch.dtype) -> None:
    structure = seen(lambda: (torch.rand(N, N) * 9).to(dtype))
    assert structure.dtype == str(dtype).removeprefix("torch.")
