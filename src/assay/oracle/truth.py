"""What the oracle knows of one evaluation: values, tolerances, and where they decide nothing.

These are plain data. They travel from the reference worker to the judge as a JSON-able dictionary and a
dictionary of tensors, and are rebuilt there to the same bits.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any, Literal

import torch

from assay.oracle.arithmetic import Arithmetic, is_real_or_complex

LAMBDA = 4.0
"""Factor from the standard deviation of honest error to its tolerance; one number for all operators."""
POOLED = 0.5
"""Share of the pooled spread that every element is granted."""
POOL_MINIMUM = 16
"""Fewest elements that make a pool."""

Kind = Literal["float", "complex", "int", "bool", "scalar", "none"]


@dataclasses.dataclass(frozen=True)
class ErrorText:
    """An exception that the reference raised."""

    type: str
    """Qualified name of the exception class."""
    message: str
    """Its message."""


@dataclasses.dataclass(frozen=True)
class Parts:
    """The tolerance at one element, term by term."""

    spread: float
    """λ · b, the element's own spread over the perturbed runs."""
    pooled: float
    """λ · c · rms(b) over the element's row or channel."""
    output: float
    """Rounding of the result to the output dtype."""
    floor: float
    """Smallest number the output dtype is sure to hold."""


@dataclasses.dataclass(frozen=True)
class IndexTruth:
    """The keys behind an output of indices.

    Leaf element e holds slot `slot[e]` of row `row[e]`. An index i is right there if the key of i is within
    tolerance of the key that the exact run put there.
    """

    keys: torch.Tensor
    """Keys, shape (rows, n), float64 or integer."""
    tolerance: torch.Tensor
    """Tolerance of each key, shape (rows, n) or (rows, 1), float64; 0 where keys are exact."""
    row: torch.Tensor
    """Row of keys of each leaf element, int64, shape of the leaf."""
    slot: torch.Tensor
    """Position in the ranking of each leaf element, int64, shape of the leaf."""
    rule: Literal["first", "any"]
    """`first`: of exactly equal keys the first must be chosen. `any`: any of them, each at most once."""
    distinct: bool
    """Whether two slots of one row must hold different indices."""
    descending: bool
    """Whether larger keys come first."""


@dataclasses.dataclass(frozen=True)
class LeafTruth:
    """Truth for one leaf of the output structure."""

    kind: Kind
    """What the leaf is; Python numbers are `scalar`, everything else that is no tensor is `none`."""
    dtype: str
    """Native dtype, e.g. `torch.bfloat16`; the Python type's name for `scalar` and `none`."""
    native: torch.Tensor
    """Result of the reference as it is, at its native dtype (0-dim for scalars, empty for none)."""
    y: torch.Tensor
    """Result of the replay: float64, complex128, or exact integers and booleans."""
    spread: torch.Tensor
    """b, float64: root mean square deviation over the perturbed runs. Complex leaves carry a last dimension
    of 2 (real, imaginary) here and in `pooled` and `tolerance`."""
    pooled: torch.Tensor
    """rms of b over the smallest natural pool of each element, broadcastable to `spread`."""
    decided: torch.Tensor
    """bool, shape of y: False where the element decides nothing."""
    unit: float
    """Unit roundoff of the output dtype."""
    floor: float
    """Smallest number the output dtype is sure to hold."""
    lam: float = LAMBDA
    """λ used in `tolerance`."""
    index: IndexTruth | None = None
    """Keys, where the leaf holds indices chosen by an operator."""
    exact: bool = False
    """Whether every partial result is exactly representable, so that the tolerance is 0."""
    dominant: str | None = None
    """Operator that contributes most to the spread, where that was asked for."""

    @property
    def magnitude(self) -> torch.Tensor:
        """|y| with non-finite values as 0, shape of `spread`."""
        size = finite_or_zero(self.y.abs().double())
        return size.unsqueeze(-1).expand(self.spread.shape) if self.kind == "complex" else size

    @property
    def tolerance(self) -> torch.Tensor:
        """λ·(b + c·rms(b)) + u·|y| + floor, float64, shape of `spread`; 0 for exact and integer leaves."""
        if self.exact or self.kind in ("int", "bool", "none"):
            return torch.zeros_like(self.spread)
        return self.lam * (self.spread + POOLED * self.pooled) + self.unit * self.magnitude + self.floor

    def parts(self, index: int) -> Parts:
        """Terms of the tolerance at flat `index` into `spread`."""
        if self.exact or self.kind in ("int", "bool", "none"):
            return Parts(0.0, 0.0, 0.0, 0.0)
        pooled = self.pooled.expand(self.spread.shape).reshape(-1)[index]
        return Parts(
            spread=self.lam * float(self.spread.reshape(-1)[index]),
            pooled=self.lam * POOLED * float(pooled),
            output=self.unit * float(self.magnitude.reshape(-1)[index]),
            floor=self.floor,
        )

    def to_parts(self) -> tuple[dict[str, Any], dict[str, torch.Tensor]]:
        """JSON-able fields and tensors; `from_parts` is the inverse."""
        meta: dict[str, Any] = {
            name: getattr(self, name)
            for name in ("kind", "dtype", "unit", "floor", "lam", "exact", "dominant")
        }
        tensors = {name: getattr(self, name) for name in ("native", "y", "spread", "pooled", "decided")}
        if self.index is not None:
            meta["index"] = {name: getattr(self.index, name) for name in ("rule", "distinct", "descending")}
            for name in ("keys", "tolerance", "row", "slot"):
                tensors[f"index.{name}"] = getattr(self.index, name)
        return meta, {name: t.detach().contiguous().cpu() for name, t in tensors.items()}

    @classmethod
    def from_parts(cls, meta: dict[str, Any], tensors: dict[str, torch.Tensor]) -> LeafTruth:
        """Rebuild from `to_parts`."""
        fields = dict(meta)
        index = fields.pop("index", None)
        truth = None
        if index is not None:
            truth = IndexTruth(
                keys=tensors["index.keys"],
                tolerance=tensors["index.tolerance"],
                row=tensors["index.row"],
                slot=tensors["index.slot"],
                rule=index["rule"],
                distinct=index["distinct"],
                descending=index["descending"],
            )
        values = {name: t for name, t in tensors.items() if not name.startswith("index.")}
        return cls(**fields, **values, index=truth)  # type: ignore[arg-type]


@dataclasses.dataclass(frozen=True)
class Evaluation:
    """Everything the oracle says about one probe."""

    leaves: list[LeafTruth]
    """One entry per leaf of the output, in pytree order; empty if the reference raised."""
    raised: ErrorText | None
    """What the reference raised at its native dtype, if it did."""
    unmodelled: tuple[str, ...]
    """Operators that were treated conservatively."""
    ops: dict[str, int]
    """How often each operator occurred in the replay."""
    random: bool
    """Whether the reference draws random numbers."""
    seconds: float
    """Wall time of the evaluation."""
    arithmetic: Arithmetic
    """The arithmetic that the tolerances grant."""
    replay_error: ErrorText | None = None
    """What the replay raised where the reference itself did not; no element is decided then."""

    @property
    def exact(self) -> bool:
        """Whether every leaf demands bit equality."""
        return bool(self.leaves) and all(
            leaf.exact or (leaf.kind in ("int", "bool") and leaf.index is None) for leaf in self.leaves
        )

    def to_parts(self) -> tuple[dict[str, Any], dict[str, torch.Tensor]]:
        """JSON-able fields and tensors, keyed `leaf.field`; `from_parts` is the inverse."""
        tensors: dict[str, torch.Tensor] = {}
        leaves = []
        for i, leaf in enumerate(self.leaves):
            meta, own = leaf.to_parts()
            leaves.append(meta)
            tensors.update({f"{i}.{name}": t for name, t in own.items()})
        fields: dict[str, Any] = {
            "leaves": leaves,
            "raised": dataclasses.asdict(self.raised) if self.raised else None,
            "unmodelled": list(self.unmodelled),
            "ops": dict(self.ops),
            "random": self.random,
            "seconds": self.seconds,
            "arithmetic": self.arithmetic.to_json(),
            "replay_error": dataclasses.asdict(self.replay_error) if self.replay_error else None,
        }
        return fields, tensors

    @classmethod
    def from_parts(cls, meta: dict[str, Any], tensors: dict[str, torch.Tensor]) -> Evaluation:
        """Rebuild from `to_parts`."""
        leaves = []
        for i, fields in enumerate(meta["leaves"]):
            prefix = f"{i}."
            own = {name[len(prefix) :]: t for name, t in tensors.items() if name.startswith(prefix)}
            leaves.append(LeafTruth.from_parts(fields, own))
        return cls(
            leaves=leaves,
            raised=ErrorText(**meta["raised"]) if meta["raised"] else None,
            unmodelled=tuple(meta["unmodelled"]),
            ops=dict(meta["ops"]),
            random=meta["random"],
            seconds=meta["seconds"],
            arithmetic=Arithmetic.from_json(meta["arithmetic"]),
            replay_error=ErrorText(**meta["replay_error"]) if meta["replay_error"] else None,
        )


def all_finite(x: torch.Tensor) -> bool:
    """Whether no element of real `x` is NaN or infinite."""
    # NaN and infinity survive a sum, which is one pass; the converse fails only where the sum overflows
    return math.isfinite(float(x.sum())) or bool(torch.isfinite(x).all())


def difference(moved: Any, y: Any) -> torch.Tensor | None:
    """What a run moved of a floating result, as real pairs of a complex one; None of anything else."""
    if not isinstance(y, torch.Tensor) or not is_real_or_complex(y.dtype):
        return None
    if not isinstance(moved, torch.Tensor) or moved.shape != y.shape:
        return None
    shift = moved - y
    if shift.is_complex():
        shift = torch.view_as_real(shift.resolve_conj())
    return torch.nan_to_num(shift, nan=0.0, posinf=0.0, neginf=0.0)


def finite_or_zero(x: torch.Tensor) -> torch.Tensor:
    """Real `x` with NaN and infinities as 0; `x` itself where there are none."""
    return x if all_finite(x) else torch.nan_to_num(x, nan=0.0, posinf=0.0, neginf=0.0)


def classes(x: torch.Tensor) -> torch.Tensor:
    """Class of each element, int8: 0 finite, 1 NaN, 2 +Inf, 3 -Inf; complex input gains a dimension of 2."""
    if x.is_complex():
        x = torch.view_as_real(x.resolve_conj())
    if not x.is_floating_point():
        return torch.zeros(x.shape, dtype=torch.int8, device=x.device)
    kind = torch.zeros(x.shape, dtype=torch.int8, device=x.device)
    if all_finite(x):
        return kind
    kind[torch.isnan(x)] = 1
    kind[x == math.inf] = 2
    kind[x == -math.inf] = 3
    return kind


def pool(spread: torch.Tensor, use: torch.Tensor | None = None) -> torch.Tensor:
    """rms of `spread` over the smallest natural pool of each element.

    Pools are its row, its plane and its slices along every axis. The minimum over them keeps a small row,
    column or channel from being excused by a large one. Only pools of at least 16 elements count; if there
    are none the whole tensor is the pool. Elements where `use` is False (they jump, and would excuse their
    neighbours) are left out. Shape: broadcastable to `spread`.
    """
    square = spread.square()
    weight = None if use is None or bool(use.all()) else use.to(square.dtype)
    if weight is not None:
        square = square * weight
    rank = spread.dim()

    def mean(dims: tuple[int, ...]) -> torch.Tensor:
        if weight is None:
            return square.sum(dims, keepdim=True) / max(1, math.prod(spread.shape[d] for d in dims))
        return square.sum(dims, keepdim=True) / weight.sum(dims, keepdim=True).clamp(min=1.0)

    if rank == 0 or spread.numel() == 0:
        return mean(tuple(range(rank))).reshape(()).sqrt()
    groups: list[tuple[int, ...]] = [(rank - 1,)]
    if rank >= 3:
        groups.append((rank - 2, rank - 1))
    groups += [tuple(d for d in range(rank) if d != axis) for axis in range(rank)]
    best: torch.Tensor | None = None
    for dims in dict.fromkeys(groups):
        if math.prod(spread.shape[d] for d in dims) < POOL_MINIMUM:
            continue
        level = mean(dims)
        best = level if best is None else torch.minimum(best, level)
    return (mean(tuple(range(rank))) if best is None else best).sqrt()
