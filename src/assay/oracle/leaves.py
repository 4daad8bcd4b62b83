"""From an exact leaf and the deviations of its runs to its truth: spread, tolerance, and what decides nothing."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import torch

from assay.oracle.arithmetic import FORMAT, SMALLEST, UNIT, Arithmetic, is_real_or_complex, wide_dtype
from assay.oracle.compare import excess
from assay.oracle.deviations import Deviation, as_tensor, no_deviation
from assay.oracle.replay import nominal_unit
from assay.oracle.stacks import Ranking
from assay.oracle.summation import rows_of
from assay.oracle.truth import POOLED, IndexTruth, Kind, LeafTruth, pool


@dataclasses.dataclass
class ExactLeaf:
    """One leaf of the exact run, and what its storage knew."""

    value: Any
    ranking: tuple[Ranking, torch.Tensor] | None = None


def _kind(value: Any) -> Kind:
    if isinstance(value, torch.Tensor):
        if value.is_complex():
            return "complex"
        if value.is_floating_point():
            return "float"
        return "bool" if value.dtype == torch.bool else "int"
    return "scalar" if isinstance(value, bool | int | float | complex) else "none"


def _output_format(value: Any, arithmetic: Arithmetic) -> str:
    """Format to which the output is rounded; a Python number counts as one of the accumulation format."""
    if isinstance(value, torch.Tensor):
        return FORMAT.get(value.dtype, "fp64")
    return arithmetic.accumulate


def leaf_truth(
    native: Any,
    leaf: ExactLeaf,
    deviation: Deviation | None,
    wide: Deviation | None,
    arithmetic: Arithmetic,
    lam: float,
    exactly: bool,
) -> LeafTruth:
    """Truth of a leaf with native value `native`.

    `wide` has the deviations at the full width of the tolerance, where the reference may jump; `exactly` says that
    no partial result was rounded.
    """
    kind = _kind(native)
    if deviation is None:
        return _empty(native)
    value, y = as_tensor(native), as_tensor(leaf.value)
    assert value is not None
    assert y is not None
    value = value.detach().resolve_conj().resolve_neg()
    y = y.detach().resolve_conj().resolve_neg()
    if is_real_or_complex(y.dtype):
        y = y.to(wide_dtype(y.dtype))
    form = _output_format(native, arithmetic)
    integral = kind in ("int", "bool") or (kind == "scalar" and not is_real_or_complex(y.dtype))
    unstable = deviation.changed
    if wide is not None:
        unstable = unstable | wide.changed
        if not integral:
            unstable = unstable | _jumps(deviation, wide, lam)
    spread = deviation.spread
    pooled = pool(spread, ~unstable)
    if kind == "complex":
        unstable = unstable.any(-1)
    exactly = exactly and (integral or bool((y == y.to(value.dtype).to(y.dtype)).all()))
    truth = LeafTruth(
        kind=kind,
        dtype=str(value.dtype) if isinstance(native, torch.Tensor) else type(native).__name__,
        native=value,
        y=y,
        spread=spread,
        pooled=pooled,
        decided=torch.ones(y.shape, dtype=torch.bool, device=y.device),
        unit=0.0 if integral else UNIT[form],
        floor=0.0 if integral else SMALLEST[form],
        lam=lam,
        index=_index_truth(leaf, lam) if kind == "int" else None,
        exact=exactly and not integral,
    )
    if truth.index is not None:
        # Ties are settled by the keys, not by which of them the runs chose.
        unstable = torch.zeros_like(unstable)
    wrong = excess(truth, value)
    return dataclasses.replace(truth, decided=~(unstable | wrong))


def _jumps(narrow: Deviation, wide: Deviation, lam: float) -> torch.Tensor:
    """Where a result does not follow its perturbation in proportion, as at a branch or a floor.

    Deviations are already divided by their gain, so a smooth result has equal spreads in both passes. A jump
    shows only in the wide pass; or in few of the runs; or in half of them in both passes, and then relatively
    less in the wide one, while most of the other elements spread far less.
    """
    near, far = narrow.spread, wide.spread
    # A smooth result that responds with the square of the perturbation reaches a few times its spread.
    jump = far > lam**2 * (near + POOLED * pool(near))
    if near.numel():
        jump = jump | ((far < 0.3 * near) & (near > 30.0 * near.median()))
    if narrow.sizes:
        jump = jump | (near > 30.0 * torch.cat(narrow.sizes).median(0).values)
    return jump


def _empty(native: Any) -> LeafTruth:
    nothing = torch.zeros(0, dtype=torch.float64)
    return LeafTruth(
        kind="none",
        dtype=type(native).__name__,
        native=nothing,
        y=nothing,
        spread=nothing,
        pooled=torch.zeros((), dtype=torch.float64),
        decided=torch.zeros(0, dtype=torch.bool),
        unit=0.0,
        floor=0.0,
    )


def undecided_truth(native: Any, arithmetic: Arithmetic, lam: float) -> LeafTruth:
    """Truth of a leaf whose replay failed: the native value, and nothing decided."""
    value = as_tensor(native)
    if value is None:
        return _empty(native)
    deviation = no_deviation(value)
    assert deviation is not None
    truth = leaf_truth(native, ExactLeaf(value), deviation, None, arithmetic, lam, False)
    return dataclasses.replace(truth, decided=torch.zeros_like(truth.decided))


def _index_truth(leaf: ExactLeaf, lam: float) -> IndexTruth | None:
    if leaf.ranking is None:
        return None
    ranking, places = leaf.ranking
    dim = ranking.dim
    n = ranking.keys.shape[dim]
    keys = rows_of(ranking.keys, [dim]).reshape(-1, n)
    tolerance = torch.zeros((keys.shape[0], 1), dtype=torch.float64, device=keys.device)
    if ranking.stack is not None:
        stack = rows_of(ranking.stack, [dim + 1]).reshape(ranking.stack.shape[0], -1, n)
        deviation = torch.nan_to_num(stack - keys, nan=0.0, posinf=0.0, neginf=0.0)
        spread = deviation.square().mean(0).sqrt()
        magnitude = torch.nan_to_num(keys.abs(), nan=0.0, posinf=0.0)
        tolerance = lam * (spread + POOLED * pool(spread)) + nominal_unit(ranking.nominal) * magnitude
    # Split the place in the index tensor into the row of keys and the slot along the ranked dimension.
    kept = ranking.shape
    inner = math.prod(kept[dim + 1 :])
    slots = kept[dim]
    row = places.div(inner * slots, rounding_mode="floor") * inner + places % inner
    slot = places.div(inner, rounding_mode="floor") % slots
    return IndexTruth(
        keys=keys,
        tolerance=tolerance,
        row=row,
        slot=slot,
        rule="first" if ranking.first else "any",
        distinct=slots > 1,
        descending=ranking.descending,
    )
