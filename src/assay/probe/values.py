"""Variations of an input's values that keep its structure.

``variants`` names those that are legal for a structure; ``apply`` makes one. Both are pure: the same name,
tensor and seed give the same bits. Values stay inside the range of a bounded input; only an input with normal
tails on both sides may go wider.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from assay.probe import recipes
from assay.probe.recipes import Limits, Recipe
from assay.probe.structure import Structure

_UNBOUNDED: dict[str, Recipe] = {
    "wide10": recipes.scaled(10.0),
    "wide100": recipes.scaled(100.0),
    "narrow": recipes.scaled(1e-3),
    "offset10": recipes.shifted(10.0),
    "offset1000": recipes.shifted(1000.0),
    "heavy_tailed": recipes.heavy_tailed,
    "constant_rows": recipes.constant_rows,
    "zero_rows": recipes.zero_rows,
    "zeros": recipes.zeros,
    "ones": recipes.ones,
    "all_negative": recipes.negative,
    "all_positive": recipes.nonnegative,
    "tiny_variance": recipes.tiny_variance,
    "dominant": recipes.dominant,
    "cancelling": recipes.cancelling,
    "alternating": recipes.alternating,
    "ties": recipes.ties,
    "sorted": recipes.sorted_rows,
    "descending": recipes.descending_rows,
    "ramp": recipes.ramp,
    "sparse": recipes.sparse,
    "small_integers": recipes.small_integers,
    "powers_of_two": recipes.powers_of_two,
}
_BOUNDED: dict[str, Recipe] = {
    "filled": recipes.filled,
    "low_end": recipes.low_end,
    "high_end": recipes.high_end,
    "both_ends": recipes.both_ends,
    "one_high": recipes.one_high,
    "middle": recipes.middle,
    "levels": recipes.levels,
    "constant_rows": recipes.constant_rows,
    "lowest": recipes.lowest,
    "highest": recipes.highest,
    "sorted": recipes.sorted_rows,
    "descending": recipes.descending_rows,
    "ramp": recipes.ramp,
}
_WITH_ONE: dict[str, Recipe] = {"ones": recipes.ones}
_WITH_ZERO: dict[str, Recipe] = {
    "zero_rows": recipes.zero_rows,
    "zeros": recipes.zeros,
    "sparse": recipes.sparse,
}
_POSITIVE: dict[str, Recipe] = {"log_filled": recipes.log_filled}
_INTEGERS: dict[str, Recipe] = {
    "both_ends": recipes.both_ends,
    "lowest": recipes.lowest,
    "highest": recipes.highest,
    "all_same": recipes.all_same,
    "filled": recipes.filled,
}
_MASK: dict[str, Recipe] = {
    "false_rows": recipes.false_rows,
    "true_rows": recipes.true_rows,
    "single_true": recipes.single_true,
    "sparse_mask": recipes.density(0.05),
    "dense_mask": recipes.density(0.95),
    "all_true": recipes.highest,
    "all_false": recipes.lowest,
}
_SIGNS: dict[str, Recipe] = {
    "both_ends": recipes.both_ends,
    "lowest": recipes.lowest,
    "highest": recipes.highest,
}
_COMPLEX: dict[str, Recipe] = {
    "wide10": recipes.scaled(10.0),
    "narrow": recipes.scaled(1e-3),
    "heavy_tailed": recipes.heavy_tailed,
    "zero_rows": recipes.zero_rows,
    "small_integers": recipes.small_integers,
}
FAINT = "faint"
"""Values about 2^-40 times the task's own, made only where they are asked for: below everything that float16
holds, and far above what float32 and bfloat16 lose."""
MINUTE = "minute"
"""Values about 2^-108 times the task's own, likewise: near the smallest normal numbers of float32 and bfloat16."""
_ASKED = {FAINT: recipes.scaled(2.0**-40), MINUTE: recipes.scaled(2.0**-108)}
_SIMPLEX = ("redrawn", "peaked", "even", "one_tiny")
_UNIT_ROWS = ("redrawn", "peaked", "even")
_ONE_HOT = ("redrawn", "first_class", "last_class")
_PERMUTATION = ("redrawn", "identity", "reversed", "rotated")
_DEFINITE = ("scaled_up", "scaled_down", "diagonal_heavy", "nearly_diagonal")
_ORTHOGONAL = ("redrawn", "identity", "exchange")
_CONSTANT = ("filled", "middle")


def variants(structure: Structure) -> tuple[str, ...]:
    """Names of the variations that keep a structure, the most telling first; empty where none is known to."""
    special = _special(structure)
    if special is not None:
        return special
    names = list(_recipes(structure))
    if structure.has("ascending", "descending"):
        names = [name for name in names if name not in _AGAINST_ORDER]
    if structure.has("symmetric", "diagonal", "banded"):
        names = [name for name in names if name not in _AGAINST_SYMMETRY]
    return tuple(names)


def takes(name: str, structure: Structure) -> bool:
    """Whether a variation keeps a structure; `FAINT` and `MINUTE` are some that `variants` does not list."""
    if name in _ASKED:
        general = _special(structure) is None and structure.kind == "float"
        return general and structure.has("normal_like") and not structure.has("binary", "signs", "integral")
    return name in variants(structure)


# these say something about the order within a row, which sorting or mirroring would undo
_AGAINST_ORDER = {"sorted", "descending", "ramp", "alternating", "cancelling", "zero_rows", "sparse"}
_AGAINST_SYMMETRY = {"sorted", "descending", "ramp", "cancelling", "constant_rows", "zero_rows", "dominant", "one_high"}


def _special(structure: Structure) -> tuple[str, ...] | None:
    """Variations of structures that have recipes of their own; None for those that take the general ones."""
    if structure.elements == 0 or structure.nonfinite:
        return ()
    if structure.has("constant"):
        fixed = structure.kind != "float" or structure.has("integral", "uniform", "one_hot", "orthogonal")
        matrix = structure.has(
            "upper_triangular", "lower_triangular", "diagonal", "banded", "symmetric", "positive_definite"
        )
        simplex = structure.has("rows_sum_to_one", "unit_norm_rows")
        return () if fixed or matrix or simplex or structure.low == structure.high else _CONSTANT
    if structure.has("one_hot"):
        return _ONE_HOT
    if structure.has("permutation"):
        return _PERMUTATION
    if structure.has("orthogonal"):
        return _ORTHOGONAL
    if structure.has("positive_definite"):
        return _DEFINITE
    if structure.has("rows_sum_to_one"):
        return _SIMPLEX
    if structure.has("unit_norm_rows"):
        return _UNIT_ROWS
    if structure.has("ascending", "descending") and structure.kind == "integer":
        # offsets and segment numbers obey more rules than their order
        return ()
    if structure.kind in ("float", "integer") and structure.low == structure.high:
        return ()
    return None


def _recipes(structure: Structure) -> dict[str, Recipe]:
    """General recipes that suit a structure."""
    if structure.kind == "complex":
        return _COMPLEX
    triangle = structure.has("upper_triangular", "lower_triangular", "diagonal", "banded")
    if structure.kind == "boolean" or structure.has("binary"):
        return {} if triangle else _MASK
    if structure.has("signs"):
        return _SIGNS
    if structure.kind == "integer" or structure.has("integral"):
        return _INTEGERS
    if structure.has("normal_like"):
        return _UNBOUNDED
    found = dict(_BOUNDED)
    low, high = structure.low or 0.0, structure.high or 0.0
    if structure.has("positive"):
        found |= _POSITIVE
    elif not triangle and low <= 0 <= high:
        found |= _WITH_ZERO
    if low <= 1 <= high:
        found |= _WITH_ONE
    return found


def apply(
    name: str,
    tensor: Tensor,
    structure: Structure,
    seed: int,
    *,
    sizes: Mapping[str, int] | None = None,
) -> Tensor:
    """A contiguous tensor of the same shape, dtype and device with varied values.

    Args:
        name: one that the structure `takes`; ``task`` returns a plain copy.
        tensor: what the task's generator made; it is not changed.
        structure: structure of this input.
        seed: seed of the variation.
        sizes: values of all the task's integers, where the tensor was made at other than native sizes.
            The range seen natively may not hold there, so the tensor's own range (and the size that an
            index range is tied to) takes its place.

    Raises:
        KeyError: the variation is not legal for this structure.
    """
    if name == "task":
        return tensor.detach().contiguous().clone()
    if not takes(name, structure):
        raise KeyError(f"no variation {name!r} for this input; there are: {', '.join(variants(structure))}")
    if tensor.numel() == 0:
        return tensor.detach().contiguous().clone()
    limits = _limits(tensor, structure, seed, sizes)
    if structure.has("constant") or _special(structure) is None:
        made = {**_ASKED, **_BOUNDED, **_recipes(structure)}[name](limits)
        made = _project(made, limits, structure)
    else:
        made = _specials(name, limits, structure)
    return _as(made, tensor)


def _limits(tensor: Tensor, structure: Structure, seed: int, sizes: Mapping[str, int] | None) -> Limits:
    plain = torch.view_as_real(tensor.detach().resolve_conj()) if tensor.is_complex() else tensor.detach()
    original = plain.to(device="cpu", dtype=torch.float64).contiguous()
    low, high = (float(end) for end in original.aminmax())
    if sizes is None and structure.low is not None and structure.high is not None:
        low, high = min(low, structure.low), max(high, structure.high)
    elif sizes is not None and structure.high_axis is not None and structure.high_axis in sizes:
        low = min(low, structure.low or 0.0)
        high = max(high, float(sizes[structure.high_axis] + structure.high_offset))
    if structure.kind == "boolean" or structure.has("binary"):
        low, high = 0.0, 1.0
    nonzero = original[original != 0]
    scale = float(nonzero.std(unbiased=False)) if nonzero.numel() > 1 else 0.0
    scale = scale or structure.std or 1.0
    random = torch.Generator().manual_seed(seed)
    center = structure.mean or 0.0
    return Limits(tuple(original.shape), original, low, high, center, scale, random)


def _project(values: Tensor, limits: Limits, structure: Structure) -> Tensor:
    """Values put back onto the structure."""
    if not structure.has("normal_like") and structure.kind != "complex":
        values = values.clamp(limits.low, limits.high)
    if structure.kind == "integer" or structure.has("integral", "binary", "signs"):
        values = values.round()
        if structure.has("signs"):
            values = torch.where(values < 0, -1.0, 1.0).to(values.dtype)
    if structure.has("ascending"):
        values = values.sort(dim=-1).values
    if structure.has("descending"):
        values = values.sort(dim=-1, descending=True).values
    if structure.has("diagonal"):
        values = values.tril().triu()
    if structure.has("symmetric") and _square(values):
        values = values.triu() + values.triu(1).transpose(-2, -1)
    if structure.has("upper_triangular"):
        values = values.triu()
    if structure.has("lower_triangular"):
        values = values.tril()
    if structure.band is not None:
        below, above = structure.band
        values = values.tril(above).triu(-below)
    return values


def _square(values: Tensor) -> bool:
    return values.dim() >= 2 and values.shape[-1] == values.shape[-2]


def _specials(name: str, limits: Limits, structure: Structure) -> Tensor:
    """Variations that rebuild the structure itself."""
    if structure.has("one_hot"):
        return _one_hot(name, limits)
    if structure.has("permutation"):
        return _permuted(name, limits)
    if structure.has("orthogonal"):
        return _orthogonal(name, limits)
    if structure.has("positive_definite"):
        return _definite(name, limits.original)
    made = torch.zeros(limits.shape, dtype=torch.float64)
    if name == "redrawn":
        made = limits.normal()
    elif name == "peaked":
        made = 8.0 * recipes.single_true(limits) + 0.1 * limits.normal()
    elif name == "one_tiny":
        made = -12.0 * recipes.single_true(limits)
    if structure.has("rows_sum_to_one"):
        return torch.softmax(made, dim=-1)
    if structure.has("positive", "non_negative"):
        made = made.abs()
    if name == "even":
        made = made + 1.0
    return made / made.square().sum(dim=-1, keepdim=True).sqrt().clamp_min(1e-30)


def _one_hot(name: str, limits: Limits) -> Tensor:
    if name == "redrawn":
        return recipes.single_true(limits)
    made = torch.zeros(limits.shape, dtype=torch.float64)
    made[..., 0 if name == "first_class" else -1] = 1
    return made


def _permuted(name: str, limits: Limits) -> Tensor:
    _, length = limits.rows()
    plain = torch.arange(length, dtype=torch.float64).expand(limits.shape)
    if name == "reversed":
        return plain.flip(-1)
    if name == "rotated":
        return plain.roll(1, -1)
    return limits.uniform().argsort(dim=-1).to(torch.float64) if name == "redrawn" else plain.clone()


def _orthogonal(name: str, limits: Limits) -> Tensor:
    side = limits.shape[-1]
    if name == "redrawn":
        basis: Tensor = torch.linalg.qr(limits.normal())[0]
        return basis
    plain = torch.eye(side, dtype=torch.float64).expand(limits.shape)
    return plain.flip(-1) if name == "exchange" else plain.clone()


def _definite(name: str, original: Tensor) -> Tensor:
    """Sums of the matrix and its diagonal stay positive definite."""
    diagonal = torch.diag_embed(original.diagonal(dim1=-2, dim2=-1))
    if name == "scaled_up":
        return original * 16.0
    if name == "scaled_down":
        return original / 16.0
    return original + 4.0 * diagonal if name == "diagonal_heavy" else 0.05 * original + 0.95 * diagonal


def _shrunk(values: Tensor, tensor: Tensor) -> Tensor:
    """Values scaled down where products and sums of a few hundred of them would overflow the dtype."""
    largest = torch.finfo(tensor.dtype).max
    top = float(values.abs().max())
    allowed = largest / 64
    if largest < 1e6:
        # 16 squared, 256 times, is the largest float16
        allowed = min(largest, max(largest**0.25, 4.0 * float(tensor.detach().abs().max())))
    return values * (allowed / top) if top > allowed else values


def _as(values: Tensor, tensor: Tensor) -> Tensor:
    """Values in the dtype and on the device of a tensor, finite there."""
    if tensor.is_complex():
        return torch.view_as_complex(values.contiguous()).to(device=tensor.device, dtype=tensor.dtype)
    if tensor.is_floating_point():
        values = _shrunk(values, tensor)
    else:
        values = values.round()
    return values.to(dtype=tensor.dtype).to(tensor.device).contiguous()
