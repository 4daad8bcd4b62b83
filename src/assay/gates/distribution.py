"""Two-sample tests for random references: is a candidate's output drawn from the reference's distribution?

For each draw of the inputs there is one output of the reference and one of the candidate, made with
independent random numbers. If the candidate is right, the two could be exchanged, so the sign of the
difference of any statistic of theirs is a fair coin. Over n draws, the count of one sign is binomial (the
sign test), and its tail probability is exact, whatever the distribution is. Every test is held to an equal
share of one error probability (Bonferroni).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

ERROR_PROBABILITY = 1e-6
"""Chance that a right candidate is accused by all tests of one verification together."""


@dataclass(frozen=True)
class Pair:
    """Outputs on one draw.

    Attributes:
        reference: the reference's output, floating or complex.
        candidate: the candidate's, of the same shape.
        slack: rounding that both may differ by, an absolute error per element (mean over the output).
    """

    reference: Tensor
    candidate: Tensor
    slack: float


@dataclass(frozen=True)
class Shift:
    """A statistic that tells the candidate from the reference.

    Attributes:
        statistic: its name.
        probability: chance of as many differences of one sign, were the candidate right.
        larger: draws on which the candidate's was larger.
        draws: draws on which the two differed.
        reference: mean of the reference's.
        candidate: mean of the candidate's.
    """

    statistic: str
    probability: float
    larger: int
    draws: int
    reference: float
    candidate: float


Statistic = Callable[[Tensor], float]


def _share_of_zeros(y: Tensor) -> float:
    return float((y == 0).double().mean())


def _spread_of_rows(y: Tensor) -> float:
    """Variance of the rows' shares of zeros: large where one mask serves a whole row."""
    return _spread(y, 1)


def _spread_of_columns(y: Tensor) -> float:
    """The same of columns: large where every row has the same mask."""
    return _spread(y, 0)


def _spread(y: Tensor, along: int) -> float:
    if y.dim() == 0:
        return 0.0
    zeros = (y == 0).double().reshape(-1, y.shape[-1])
    return float(zeros.mean(dim=along).var(unbiased=False))


def _neighbours(y: Tensor) -> float:
    """Correlation of neighbours in a row: large where random numbers are shared by them."""
    if y.dim() == 0 or y.shape[-1] < 2:
        return 0.0
    return float((y[..., 1:] * y[..., :-1]).mean())


STATISTICS: dict[str, Statistic] = {
    "mean": lambda y: float(y.mean()),
    "mean of magnitudes": lambda y: float(y.abs().mean()),
    "mean of squares": lambda y: float(y.square().mean()),
    "largest magnitude": lambda y: float(y.abs().max()),
    "share of zeros": _share_of_zeros,
    "spread of rows": _spread_of_rows,
    "spread of columns": _spread_of_columns,
    "product of neighbours": _neighbours,
}
"""What is compared, of an output in float64."""


def two_sample(pairs: Sequence[Pair], error_probability: float = ERROR_PROBABILITY) -> Shift | None:
    """The most telling shift between reference and candidate, or None.

    Args:
        pairs: one per independent draw, outputs of one place in the structure.
        error_probability: chance of accusing a right candidate; shared among the statistics and the
            agreement of masks between successive draws.
    """
    values = [(_wide(p.reference), _wide(p.candidate), p.slack) for p in pairs if p.reference.numel()]
    values = [(r, c, slack) for r, c, slack in values if bool((r.isfinite() & c.isfinite()).all())]
    level = error_probability / (len(STATISTICS) + 1)
    found = []
    for name, statistic in STATISTICS.items():
        differences = []
        for reference, candidate, slack in values:
            one, two = statistic(reference), statistic(candidate)
            # the statistics are at most quadratic in the elements
            allowed = slack * max(1.0, 2 * float(reference.abs().max()))
            differences.append((one, two) if abs(one - two) > allowed else (0.0, 0.0))
        found.append(_sign_test(name, differences))
    found.append(_sign_test("agreement of successive masks", _agreements(values)))
    telling = [shift for shift in found if shift is not None and shift.probability < level]
    return min(telling, key=lambda shift: shift.probability, default=None)


def _agreements(values: Sequence[tuple[Tensor, Tensor, float]]) -> list[tuple[float, float]]:
    """How much the zeros of one draw are those of the next; near one where a mask is never drawn anew."""
    agreed = []
    for (a, x, _), (b, y, _) in zip(values[::2], values[1::2], strict=False):
        if a.shape == b.shape:
            agreed.append((float(((a == 0) == (b == 0)).double().mean()),
                           float(((x == 0) == (y == 0)).double().mean())))
    return agreed


def _sign_test(name: str, values: Sequence[tuple[float, float]]) -> Shift | None:
    """Two-sided exact sign test of (reference, candidate) values; None where none differ."""
    differing = [(one, two) for one, two in values if one != two]
    if not differing:
        return None
    n = len(differing)
    larger = sum(two > one for one, two in differing)
    extreme = max(larger, n - larger)
    tail = sum(math.comb(n, k) for k in range(extreme, n + 1)) / 2**n
    return Shift(name, min(1.0, 2 * tail), larger, n, sum(v[0] for v in values) / len(values),
                 sum(v[1] for v in values) / len(values))


def _wide(tensor: Tensor) -> Tensor:
    return (torch.view_as_real(tensor) if tensor.is_complex() else tensor).double()
