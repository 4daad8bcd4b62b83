"""How the extents of tensors follow from the task's integers."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from pydantic import BaseModel, ConfigDict


class Axis(BaseModel):
    """One dimension of a tensor by the task's integers: ``constant + Σ coefficient · Π integers``."""

    model_config = ConfigDict(frozen=True)

    extent: int
    """Extent at the native sizes."""
    constant: float = 0.0
    """What does not move."""
    terms: tuple[tuple[float, tuple[str, ...]], ...] = ()
    """Coefficients and the integers that each multiplies."""

    @property
    def integers(self) -> tuple[str, ...]:
        """Names of the integers that move this dimension."""
        return tuple(dict.fromkeys(name for _, names in self.terms for name in names))

    @property
    def label(self) -> str:
        """Short text such as ``ROWS``, ``2*D``, ``B*S``, ``H-2`` or ``64``."""
        if not self.terms:
            return str(self.extent)
        parts = [
            "*".join(([f"{coefficient:g}"] if coefficient != 1 else []) + list(names))
            for coefficient, names in self.terms
        ]
        tail = f"{self.constant:+g}" if self.constant else ""
        return "+".join(parts) + tail

    def at(self, sizes: Mapping[str, int]) -> int:
        """Extent at given values of all the integers it names (rounded down, never negative).

        Raises:
            KeyError: an integer is missing from ``sizes``.
        """
        total = self.constant
        for coefficient, names in self.terms:
            total += coefficient * math.prod(sizes[name] for name in names)
        return max(0, math.floor(total + 1e-9))


def fit(extent: int, sizes: Mapping[str, int], moves: Sequence[tuple[Mapping[str, int], int]]) -> Axis:
    """An Axis through one observation and what changed beside it; its ``extent`` is the one observed.

    Args:
        extent: the extent at ``sizes``.
        sizes: values of all integers there.
        moves: further observations (sizes, extent), each with one integer (or one tied group) changed.
    """
    slopes: dict[str, float] = {}
    for other, moved in moves:
        changed = [name for name in other if other[name] != sizes[name]]
        if changed and moved != extent:
            # of a tied group the first stands for all
            slopes[changed[0]] = (moved - extent) / (other[changed[0]] - sizes[changed[0]])
    if not slopes:
        return Axis(extent=extent, constant=extent)
    proportional = all(
        sizes[name] != 0 and math.isclose(slope * sizes[name], extent) for name, slope in slopes.items()
    )
    if proportional and len(slopes) > 1:
        names = tuple(slopes)
        return Axis(extent=extent, terms=((_tidy(extent / math.prod(sizes[name] for name in names)), names),))
    terms = tuple((_tidy(slope), (name,)) for name, slope in slopes.items())
    constant = extent - sum(coefficient * sizes[names[0]] for coefficient, names in terms)
    return Axis(extent=extent, constant=_tidy(constant), terms=terms)


def _tidy(value: float) -> float:
    """The nearest whole number where rounding alone separates them."""
    return float(round(value)) if abs(value - round(value)) < 1e-6 else value
