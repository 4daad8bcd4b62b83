"""Variations of values: the structure stays, the bits repeat."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from assay.probe.structure import Structure, infer
from assay.probe.values import apply, variants

N = 20


def samples(make: Callable[[], Tensor]) -> list[Tensor]:
    drawn = []
    for seed in range(6):
        torch.manual_seed(seed)
        drawn.append(make())
    return drawn


INPUTS: dict[str, Callable[[], Tensor]] = {
    "normal": lambda: torch.randn(N, N),
    "vector": lambda: torch.randn(4 * N),
    "half": lambda: torch.randn(N, N).half(),
    "bfloat": lambda: torch.randn(N, N).bfloat16(),
    "uniform": lambda: torch.rand(N, N),
    "positive": lambda: torch.rand(N, N) + 0.05,
    "rectified": lambda: torch.randn(N, N).relu(),
    "signed": lambda: torch.rand(N, N) * 2 - 1,
    "upper": lambda: torch.randn(N, N).triu(),
    "lower": lambda: torch.randn(2, N, N).tril(),
    "positive upper": lambda: (torch.rand(N, N) + 0.1).triu(),
    "diagonal": lambda: torch.diag(torch.randn(4 * N)),
    "banded": lambda: torch.randn(N, N).tril(1).triu(-2),
    "symmetric": lambda: (lambda a: a + a.T)(torch.randn(N, N)),
    "definite": lambda: (lambda a: a @ a.T + N * torch.eye(N))(torch.randn(N, N)),
    "orthogonal": lambda: torch.linalg.qr(torch.randn(N, N))[0],
    "probabilities": lambda: torch.randn(N, N).softmax(1),
    "unit rows": lambda: functional.normalize(torch.randn(N, N)),
    "one-hot": lambda: functional.one_hot(torch.randint(0, 9, (N,)), 9).float(),
    "binary": lambda: torch.randint(0, 2, (N, N)).float(),
    "mask": lambda: torch.rand(N, N) > 0.3,
    "signs": lambda: torch.randint(0, 2, (N, N)) * 2.0 - 1,
    "indices": lambda: torch.randint(3, 50, (N, 4)),
    "permutation": lambda: torch.stack([torch.randperm(N) for _ in range(3)]),
    "sorted": lambda: torch.randn(8, N).sort(1)[0],
    "falling": lambda: torch.rand(8, N).sort(1, descending=True)[0],
    "line": lambda: torch.linspace(0.5, 1.5, 2 * N),
    "complex": lambda: torch.randn(N, N, dtype=torch.complex64),
    "scalar": lambda: torch.randn(()),
}
STRUCTURES: dict[str, tuple[list[Tensor], Structure]] = {}
for _name, _make in INPUTS.items():
    _drawn = samples(_make)
    STRUCTURES[_name] = (_drawn, infer(_drawn))
PAIRS = [(name, variant) for name, (_, structure) in STRUCTURES.items() for variant in variants(structure)]


def keeps(values: Tensor, structure: Structure, original: Tensor) -> None:
    """Assert that values have the structure, as each trait defines it."""
    wide = values.double() if not values.is_complex() else values
    rows = wide.reshape(-1, wide.shape[-1]) if wide.dim() else wide.reshape(1, 1)
    if structure.has("upper_triangular"):
        assert torch.equal(wide, wide.triu())
    if structure.has("lower_triangular"):
        assert torch.equal(wide, wide.tril())
    if structure.has("diagonal"):
        assert torch.equal(wide, wide.tril().triu())
    if structure.band is not None:
        assert torch.equal(wide, wide.tril(structure.band[1]).triu(-structure.band[0]))
    if structure.has("symmetric"):
        assert torch.equal(wide, wide.transpose(-2, -1))
    if structure.has("positive_definite"):
        assert bool((torch.linalg.eigvalsh(wide) > 0).all())
    if structure.has("orthogonal"):
        assert torch.allclose(wide @ wide.T, torch.eye(N, dtype=torch.float64), atol=1e-5)
    if structure.has("rows_sum_to_one"):
        assert torch.allclose(rows.sum(1), torch.ones(len(rows), dtype=torch.float64), atol=1e-5)
    if structure.has("unit_norm_rows"):
        assert torch.allclose(rows.norm(dim=1), torch.ones(len(rows), dtype=torch.float64), atol=1e-5)
    if structure.has("one_hot"):
        assert bool((rows.sum(1) == 1).all())
    if structure.has("binary", "one_hot"):
        assert bool(((wide == 0) | (wide == 1)).all())
    if structure.has("signs"):
        assert bool((wide.abs() == 1).all())
    if structure.has("permutation"):
        assert torch.equal(rows.sort(1).values, torch.arange(N, dtype=torch.float64).expand_as(rows))
    if structure.has("ascending"):
        assert bool((rows.diff(dim=1) >= 0).all())
    if structure.has("descending"):
        assert bool((rows.diff(dim=1) <= 0).all())
    if structure.has("positive"):
        assert bool((wide > 0).all())
    free = ("rows_sum_to_one", "unit_norm_rows", "positive_definite", "orthogonal")
    if structure.has("bounded") and not structure.has(*free):
        low, high = structure.low, structure.high
        assert low is not None
        assert high is not None
        slack = 1e-6 * (high - low)
        zero_half = structure.has("upper_triangular", "lower_triangular")
        inside = ((wide >= low - slack) & (wide <= high + slack)) | (
            (wide == 0) if zero_half else wide.isnan()
        )
        assert bool(inside.all())


@pytest.mark.parametrize(("name", "variant"), PAIRS, ids=lambda value: value)
def test_a_variation_keeps_the_structure_and_repeats(name: str, variant: str) -> None:
    drawn, structure = STRUCTURES[name]
    before = drawn[0].clone()
    made = apply(variant, drawn[0], structure, 11)
    assert (made.shape, made.dtype, made.is_contiguous()) == (before.shape, before.dtype, True)
    assert bool(torch.isfinite(made).all())
    assert torch.equal(drawn[0], before)
    assert torch.equal(apply(variant, drawn[0], structure, 11), made)
    keeps(made, structure, before)


def test_the_inputs_of_a_test_are_taken_as_what_they_are() -> None:
    claimed = {name: structure.traits for name, (_, structure) in STRUCTURES.items()}
    assert "upper_triangular" in claimed["positive upper"]
    assert "positive_definite" in claimed["definite"]
    assert "one_hot" in claimed["one-hot"]
    assert "descending" in claimed["falling"]


def of(name: str, variant: str, **changes: object) -> Tensor:
    drawn, structure = STRUCTURES[name]
    return apply(variant, drawn[0], structure.model_copy(update=changes), 5).double()


def test_variations_do_what_their_names_say() -> None:
    base = STRUCTURES["normal"][0][0].double()
    assert torch.allclose(of("normal", "wide100"), base * 100)
    assert torch.allclose(of("normal", "narrow"), base * 1e-3)
    assert abs(float(of("normal", "offset1000").mean()) / 1000 - 1) < 0.1
    assert bool((of("normal", "all_negative") < 0).all())
    assert bool((of("normal", "constant_rows").std(dim=1) == 0).all())
    assert bool((of("normal", "zero_rows")[::3] == 0).all())
    assert of("normal", "dominant").abs().amax(1).min() > 1e3
    assert float((of("normal", "sparse") == 0).double().mean()) > 0.8
    tiny = of("normal", "tiny_variance")
    assert float(tiny.std() / tiny.mean()) < 1e-3
    cancelling = of("normal", "cancelling")
    assert bool((cancelling.sum(1).abs() < 0.02 * cancelling.abs().sum(1)).all())
    integers = of("normal", "small_integers")
    assert torch.equal(integers, integers.round())
    assert torch.equal(
        of("normal", "powers_of_two").abs().log2(), of("normal", "powers_of_two").abs().log2().round()
    )
    assert len(of("normal", "ties").unique()) < 15
    assert bool((of("normal", "descending").diff(dim=1) <= 0).all())
    assert torch.equal(of("normal", "descending").sort(1).values, base.sort(1).values)
    ramp = of("normal", "ramp")
    assert bool((ramp.diff(dim=1) > 0).all())
    assert (float(ramp.min()), float(ramp.max())) == (float(base.min()), float(base.max()))
    assert of("normal", "ones").unique().tolist() == [1.0]


def test_ones_are_tried_only_where_the_range_has_them() -> None:
    _, structure = STRUCTURES["uniform"]
    assert "ones" not in variants(structure)
    assert "ones" in variants(structure.model_copy(update={"high": 2.0}))


def test_extremes_of_ranges_are_reached() -> None:
    assert of("indices", "lowest").unique().tolist() == [3.0]
    assert of("indices", "highest").unique().tolist() == [49.0]
    assert of("indices", "both_ends").unique().tolist() == [3.0, 49.0]
    assert len(of("indices", "all_same").unique()) == 1
    near = of("uniform", "low_end")
    assert near.min() < 1e-3
    assert near.max() < 0.2
    ratio = of("positive", "log_filled").median() / of("positive", "filled").median()
    assert ratio < 0.7


def test_masks_have_full_and_empty_rows() -> None:
    mask = of("mask", "false_rows").bool()
    assert not bool(mask[0].any())
    assert not bool(mask[-1].any())
    assert bool(mask[1].any())
    assert bool(of("mask", "true_rows")[0].all())
    assert of("mask", "single_true").sum(1).unique().tolist() == [1.0]
    assert bool(of("mask", "all_true").all())


def test_an_index_range_ends_at_its_size_there() -> None:
    torch.manual_seed(0)
    native = [torch.randint(0, 500, (8, 50)) for _ in range(3)]
    structure = infer(native).model_copy(update={"high_axis": "VOCAB", "high": 499.0})
    small = torch.randint(0, 7, (2, 3))
    assert int(apply("highest", small, structure, 0, sizes={"VOCAB": 7}).max()) == 6
    assert int(apply("highest", native[0], structure, 0).max()) == 499


def test_an_untied_range_is_the_tensors_own_at_other_sizes() -> None:
    _, structure = STRUCTURES["indices"]
    small = torch.tensor([[3, 5]])
    assert int(apply("highest", small, structure, 0, sizes={"ROWS": 1}).max()) == 5


def test_half_precision_stays_where_products_are_finite() -> None:
    for variant in variants(STRUCTURES["half"][1]):
        made = apply(variant, STRUCTURES["half"][0][0], STRUCTURES["half"][1], 3)
        assert bool(torch.isfinite(made @ made).all()), variant


def test_two_seeds_give_two_variations() -> None:
    drawn, structure = STRUCTURES["normal"]
    assert not torch.equal(
        apply("heavy_tailed", drawn[0], structure, 1), apply("heavy_tailed", drawn[0], structure, 2)
    )


def test_a_fixed_line_is_warped_within_its_range() -> None:
    made = of("line", "filled")
    assert not torch.equal(made.float(), STRUCTURES["line"][0][0])
    assert bool((made.diff() >= 0).all())


@pytest.mark.parametrize(
    "make",
    [
        lambda: torch.ones(N, N).tril().bool(),
        lambda: torch.arange(N),
        lambda: torch.ones(N),
        lambda: torch.zeros(N, N).masked_fill(torch.rand(N, N) < 0.5, float("-inf")),
        lambda: torch.empty(0, 3),
        lambda: torch.randint(0, 9, (4, N)).sort(dim=1).values,
    ],
    ids=["constant mask", "positions", "ones", "additive mask", "empty", "segments"],
)
def test_what_obeys_rules_nobody_told_is_left_alone(make: Callable[[], Tensor]) -> None:
    assert variants(infer(samples(make))) == ()


def test_what_is_not_legal_is_refused() -> None:
    drawn, structure = STRUCTURES["uniform"]
    with pytest.raises(KeyError, match="no variation 'wide100'"):
        apply("wide100", drawn[0], structure, 0)


def test_the_task_itself_is_copied() -> None:
    drawn, structure = STRUCTURES["uniform"]
    made = apply("task", drawn[0], structure, 0)
    assert torch.equal(made, drawn[0])
    assert made.data_ptr() != drawn[0].data_ptr()


@pytest.mark.parametrize("name", ["normal", "uniform", "mask", "indices"])
def test_empty_and_tiny_tensors_take_every_variation(name: str) -> None:
    drawn, structure = STRUCTURES[name]
    for shape in ((0, 3), (1, 1), (2, 0)):
        tensor = drawn[0][:1, :1].expand(1, 1).clone() if shape == (1, 1) else drawn[0].new_empty(shape)
        for variant in variants(structure):
            assert apply(variant, tensor, structure, 0, sizes={}).shape == shape
