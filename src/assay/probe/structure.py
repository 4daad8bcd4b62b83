"""Structure of an input, inferred from samples: what every variation of its values has to keep.

A trait is claimed only when enough elements over several samples show it and chance would not have: a matrix
of one element proves nothing. Where the evidence is thin the structure stays narrow (values inside the
observed range), because leaving a task's domain accuses right kernels.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

import torch
from pydantic import BaseModel, ConfigDict
from torch import Tensor

Kind = Literal["float", "integer", "boolean", "complex"]

Trait = Literal[
    "constant",  # the same bits in every sample
    "uniform",  # one value throughout each sample
    "integral",  # whole numbers in a floating dtype
    "binary",  # only 0 and 1, both seen
    "signs",  # only -1 and +1, both seen
    "one_hot",  # each row (last dimension) has a single 1 and zeros
    "permutation",  # each row is 0 … n-1 in some order
    "ascending",  # rows sorted, smallest first
    "descending",  # rows sorted, largest first
    "positive",  # all > 0
    "non_negative",  # all ≥ 0, zeros seen
    "negative",  # all < 0
    "non_positive",  # all ≤ 0, zeros seen
    "bounded",  # the range ends abruptly (or is an interval such as [0, 1]): stay inside [low, high]
    "unit_interval",  # inside [0, 1]
    "normal_like",  # both signs and tails on both sides: no bound to respect
    "rows_sum_to_one",
    "unit_norm_rows",
    "upper_triangular",  # of the last two dimensions
    "lower_triangular",
    "diagonal",
    "banded",
    "symmetric",
    "positive_definite",
    "orthogonal",
]

ENOUGH_ELEMENTS = 64
"""Elements, over all samples, below which nothing is said about a distribution."""
ENOUGH_ROWS = 6
"""Rows, over all samples, below which nothing is said about rows."""
ENOUGH_SIDE = 4
"""Smallest matrix side that can show a triangle, a band or a symmetry."""
_CROP = 1 << 16
_SIDE = 160


class Structure(BaseModel):
    """What is known of one tensor input."""

    model_config = ConfigDict(frozen=True)

    kind: Kind
    """Class of its dtype."""
    dtype: str
    """Its dtype, such as ``float32``."""
    traits: tuple[Trait, ...] = ()
    """Claims that hold in every sample, in a fixed order."""
    low: float | None = None
    """Smallest finite value seen (integers and floats)."""
    high: float | None = None
    """Largest finite value seen."""
    mean: float | None = None
    """Mean of the finite values seen."""
    std: float | None = None
    """Their standard deviation."""
    zeros: float = 0.0
    """Share of exact zeros (False for booleans), 0 to 1."""
    band: tuple[int, int] | None = None
    """Diagonals kept below and above the main one, where banded."""
    high_axis: str | None = None
    """Size that the range of an index ends at, so that ``high = size + high_offset``."""
    high_offset: int = -1
    """See ``high_axis``."""
    nonfinite: bool = False
    """Whether a sample held NaN or infinities (such as an additive mask)."""
    elements: int = 0
    """Elements seen."""
    samples: int = 0
    """Samples seen."""

    def has(self, *traits: Trait) -> bool:
        """Whether any of the traits is claimed."""
        return any(trait in self.traits for trait in traits)


def infer(samples: Sequence[Tensor]) -> Structure:
    """Structure shared by several samples of one input, made with different seeds.

    Args:
        samples: tensors of one dtype and one number of dimensions; shapes may differ.

    Raises:
        ValueError: no sample.
    """
    if not samples:
        raise ValueError("a structure is inferred from at least one sample")
    tensors = [sample.detach().resolve_conj() for sample in samples]
    first = tensors[0]
    dtype = str(first.dtype).removeprefix("torch.")
    kind: Kind = (
        "boolean"
        if first.dtype is torch.bool
        else "complex"
        if first.is_complex()
        else "float"
        if first.is_floating_point()
        else "integer"
    )
    traits: set[Trait] = set()
    if _is_constant(tensors):
        traits.add("constant")
    rows = [_readable(_crop_rows(tensor), kind) for tensor in tensors]
    flat = torch.cat([tensor.reshape(-1) for tensor in rows])
    finite = bool(torch.isfinite(flat).all())
    values = flat if finite else flat[torch.isfinite(flat)]
    facts: dict[str, float] = {}
    if values.numel():
        low, high = _range(tensors, values) if kind in ("float", "integer") and finite else _ends(values)
        facts = {
            "low": low,
            "high": high,
            "mean": float(values.double().mean()),
            "std": float(values.double().std(unbiased=False)),
            "zeros": float((values == 0).double().mean()),
        }
        if kind in ("float", "integer"):
            traits |= _of_elements(values, rows, kind, facts["low"], facts["high"])
        if kind != "complex" and finite:
            traits |= _of_rows(rows, kind, traits, first.dtype)
    band: tuple[int, int] | None = None
    if kind != "complex" and finite and facts and facts["zeros"] < 1 and first.dim() >= 2:
        squares = [_readable(_crop_square(tensor), kind) for tensor in tensors]
        shapes, band = _of_matrices(squares, [tensor.shape for tensor in tensors], kind, first.dtype)
        traits |= shapes
    if kind == "boolean":
        facts.pop("low", None)
        facts.pop("high", None)
    return Structure(
        kind=kind,
        dtype=dtype,
        traits=tuple(trait for trait in _ORDER if trait in traits),
        band=band,
        nonfinite=not finite,
        elements=sum(tensor.numel() for tensor in tensors),
        samples=len(tensors),
        **facts,
    )


_ORDER: tuple[Trait, ...] = Trait.__args__  # type: ignore[attr-defined]


def _readable(tensor: Tensor, kind: Kind) -> Tensor:
    """A copy in a dtype that every operation below takes: float32 or wider, int64 for integers."""
    if kind == "complex":
        return torch.view_as_real(
            tensor.to(torch.complex64 if tensor.dtype != torch.complex128 else tensor.dtype)
        )
    if kind == "float":
        return tensor if tensor.dtype in (torch.float32, torch.float64) else tensor.float()
    return tensor.to(torch.int64)


def _ends(values: Tensor) -> tuple[float, float]:
    low, high = values.aminmax()
    return float(low), float(high)


def _range(tensors: Sequence[Tensor], cropped: Tensor) -> tuple[float, float]:
    """Smallest and largest value of whole samples; of the cropped ones where the rest is not finite."""
    ends = [_ends(tensor) for tensor in tensors if tensor.numel()]
    low, high = min(end[0] for end in ends), max(end[1] for end in ends)
    return (low, high) if math.isfinite(low) and math.isfinite(high) else _ends(cropped)


def _crop_rows(tensor: Tensor) -> Tensor:
    """Whole rows (last dimension), at most about 65,536 elements."""
    if tensor.numel() <= _CROP or tensor.dim() < 2:
        return tensor[:_CROP] if tensor.dim() == 1 and tensor.numel() > 4 * _CROP else tensor
    rows = tensor.reshape(-1, tensor.shape[-1])
    return rows[: max(ENOUGH_ROWS, _CROP // max(1, tensor.shape[-1]))]


def _crop_square(tensor: Tensor) -> Tensor:
    """Leading principal blocks of the last two dimensions, at most 128 a side and 16 of them."""
    matrices = (
        tensor.reshape(-1, tensor.shape[-2], tensor.shape[-1]) if tensor.numel() else tensor[..., None][:0]
    )
    return matrices[:16, :_SIDE, :_SIDE]


def _is_constant(tensors: Sequence[Tensor]) -> bool:
    """The same bits in every sample, with enough samples that chance would have shown a difference."""
    first = tensors[0]
    if len(tensors) < (3 if first.numel() >= 4 else 6) or first.numel() == 0:
        return False
    return all(other.shape == first.shape and _same(first, other) for other in tensors[1:])


def _same(left: Tensor, right: Tensor) -> bool:
    if torch.equal(left, right):
        return True
    if not left.is_floating_point():
        return False
    return torch.equal(left.isnan(), right.isnan()) and torch.equal(left.nan_to_num(), right.nan_to_num())


def _of_elements(values: Tensor, rows: Sequence[Tensor], kind: Kind, low: float, high: float) -> set[Trait]:
    """Traits of single elements: sign, whole numbers, range."""
    traits: set[Trait] = set()
    several = sum(tensor.numel() for tensor in rows) > len(rows)
    if several and all(
        tensor.numel() == 0 or bool((tensor == tensor.reshape(-1)[0]).all()) for tensor in rows
    ):
        traits.add("uniform")
    if low > 0:
        traits.add("positive")
    elif low == 0:
        traits.add("non_negative")
    if high < 0:
        traits.add("negative")
    elif high == 0 and low < 0:
        traits.add("non_positive")
    if kind == "integer":
        traits.add("bounded")
    whole = kind == "integer" or bool((values == values.round()).all())
    if kind == "float" and whole and values.numel() >= 8:
        traits |= {"integral", "bounded"}
    if whole and values.numel() >= 8:
        if (low, high) == (0, 1):
            traits.add("binary")
        elif (low, high) == (-1, 1) and not bool((values == 0).any()):
            traits.add("signs")
    if kind == "float" and not whole:
        traits |= _range_traits(values, low, high)
    elif kind == "float" and not traits & {"integral"}:
        traits.add("bounded")
    return traits


def _range_traits(values: Tensor, low: float, high: float) -> set[Trait]:
    """Whether a floating range ends abruptly, is an interval by meaning, or has normal tails."""
    if low >= 0 and high <= 1 and (high > 0.5 or values.numel() < ENOUGH_ELEMENTS):
        return {"bounded", "unit_interval"}
    if values.numel() < ENOUGH_ELEMENTS or high == low:
        return {"bounded"}
    if float((values == 0).double().mean()) > 0.2:
        # zeros of a triangle or a band say nothing about the distribution of the rest
        values = values[values != 0]
    sample = values[:: values.numel() // 8192 + 1]
    if sample.numel() < ENOUGH_ELEMENTS:
        return {"bounded"}
    low, high = _ends(sample)
    points = torch.tensor([0.01, 0.1, 0.5, 0.9, 0.99], dtype=sample.dtype, device=sample.device)
    q01, q10, q50, q90, q99 = (float(q) for q in torch.quantile(sample, points))
    width = high - low
    # the outer percent of a uniform spans 1% of the range; of a normal sample of this length, 10% and more
    abrupt = (high - q99) < 0.03 * width or (q01 - low) < 0.03 * width
    # the outer percent against the outer decile: 1.8 for a normal, 1.2 for a uniform, more for heavy tails
    upper, lower = q90 - q50, q50 - q10
    tails = upper > 0 and lower > 0 and (q99 - q50) > 1.5 * upper and (q50 - q01) > 1.5 * lower
    if low < 0 < high and tails and not abrupt:
        return {"normal_like"}
    return {"bounded"}


def _of_rows(rows: Sequence[Tensor], kind: Kind, known: set[Trait], dtype: torch.dtype) -> set[Trait]:
    """Traits of rows along the last dimension."""
    shaped = [tensor.reshape(-1, tensor.shape[-1]) for tensor in rows if tensor.dim() >= 1 and tensor.numel()]
    if not shaped or min(tensor.shape[1] for tensor in shaped) < 2:
        return set()
    traits: set[Trait] = set()
    count = sum(tensor.shape[0] for tensor in shaped)
    pairs = sum(tensor.shape[0] * (tensor.shape[1] - 1) for tensor in shaped)
    whole = kind in ("integer", "boolean") or bool(known & {"integral"})
    if "uniform" not in known and kind != "boolean" and pairs >= 24:
        steps = [tensor[:, 1:] - tensor[:, :-1] for tensor in shaped]
        if all(bool((step >= 0).all()) for step in steps):
            traits.add("ascending")
        elif all(bool((step <= 0).all()) for step in steps):
            traits.add("descending")
    wide = min(tensor.shape[1] for tensor in shaped)
    shuffled = whole and count >= 2 and wide >= ENOUGH_SIDE and kind != "boolean"
    if shuffled and all(_is_permutation(tensor) for tensor in shaped):
        traits.add("permutation")
    if count < ENOUGH_ROWS:
        return traits
    zero_one = wide >= 3 and (kind == "boolean" or "binary" in known)
    if zero_one and all(bool((tensor.sum(dim=1) == 1).all()) for tensor in shaped):
        traits.add("one_hot")
    if kind == "float" and "one_hot" not in traits and "uniform" not in known:
        slack = max(1e-4, 4 * torch.finfo(dtype).eps)
        if known & {"non_negative", "positive"} and all(
            bool(((tensor.sum(dim=1) - 1).abs() < slack).all()) for tensor in shaped
        ):
            traits.add("rows_sum_to_one")
        if all(bool(((tensor.square().sum(dim=1) - 1).abs() < 2 * slack).all()) for tensor in shaped):
            traits.add("unit_norm_rows")
    return traits


def _is_permutation(rows: Tensor) -> bool:
    expected = torch.arange(rows.shape[1], dtype=rows.dtype, device=rows.device)
    return bool((rows.sort(dim=1).values == expected).all())


def _of_matrices(
    samples: Sequence[Tensor], shapes: Sequence[torch.Size], kind: Kind, dtype: torch.dtype
) -> tuple[set[Trait], tuple[int, int] | None]:
    """Traits of the last two dimensions, and the band where there is one."""
    if any(matrix.dim() < 3 or min(matrix.shape[1:]) < ENOUGH_SIDE for matrix in samples):
        return set(), None
    traits: set[Trait] = set()
    band: tuple[int, int] | None = None
    reach = [_band_of(matrix) for matrix in samples]
    below, above = max(r[0] for r in reach), max(r[1] for r in reach)
    rows, columns = min(m.shape[1] for m in samples), min(m.shape[2] for m in samples)
    # a triangle is claimed when the other side is well filled: a sparse matrix may look like one by chance
    if below == 0 and above == 0:
        if all(float((m.diagonal(dim1=1, dim2=2) != 0).double().mean()) > 0.5 for m in samples):
            traits.add("diagonal")
    elif below <= 0 and _filled(samples, upper=True):
        traits.add("upper_triangular")
    elif above <= 0 and _filled(samples, upper=False):
        traits.add("lower_triangular")
    if min(below, above) >= 0 and 0 < below + above < min(rows, columns) // 2:
        band = (below, above)
        traits.add("banded")
    square = all(shape[-1] == shape[-2] for shape in shapes)
    whole = all(shape[-1] <= _SIDE for shape in shapes)
    if not square or "diagonal" in traits or kind == "boolean":
        return traits, band
    doubles = [matrix.double() for matrix in samples]
    slack = 8 * torch.finfo(dtype).eps if kind == "float" else 0.0
    off_diagonal = any(bool((m - torch.diag_embed(m.diagonal(dim1=1, dim2=2)) != 0).any()) for m in doubles)
    distinct = any(bool((m != m.reshape(-1)[0]).any()) for m in doubles)
    if (
        off_diagonal
        and distinct
        and all(bool(((m - m.transpose(1, 2)).abs() <= slack * m.abs().amax()).all()) for m in doubles)
    ):
        traits.add("symmetric")
        if kind == "float" and all(bool((torch.linalg.cholesky_ex(m).info == 0).all()) for m in doubles):
            traits.add("positive_definite")
    if kind == "float" and off_diagonal and whole and all(_is_orthogonal(m, dtype) for m in doubles):
        traits.add("orthogonal")
    return traits, band


def _band_of(matrices: Tensor) -> tuple[int, int]:
    """Farthest nonzero diagonal below and above the main one; negative when that side starts beyond it."""
    places = (matrices != 0).any(dim=0).nonzero()
    if places.numel() == 0:
        return 0, 0
    offset = places[:, 1] - places[:, 0]
    return int((-offset).max()), int(offset.max())


def _filled(samples: Sequence[Tensor], *, upper: bool) -> bool:
    """Whether more than half of the triangle's strict part is nonzero in every sample."""
    for matrices in samples:
        mask = torch.ones(matrices.shape[1:], dtype=torch.bool, device=matrices.device)
        mask = mask.triu(1) if upper else mask.tril(-1)
        part = matrices[:, mask]
        if part.numel() < 6 or float((part != 0).double().mean()) <= 0.5:
            return False
    return True


def _is_orthogonal(matrices: Tensor, dtype: torch.dtype) -> bool:
    product = matrices @ matrices.transpose(1, 2)
    identity = torch.eye(matrices.shape[1], dtype=product.dtype, device=product.device)
    slack = max(1e-4, math.sqrt(matrices.shape[1]) * 4 * torch.finfo(dtype).eps)
    return bool(((product - identity).abs() < slack).all())
