"""Figures over many candidates: pass@k and fast_p."""

from __future__ import annotations

import math
from collections.abc import Iterable

Result = tuple[bool, float | None]
"""Whether a candidate is right, and its speedup; None where it was not timed."""


def pass_at_k(samples: int, right: int, k: int) -> float:
    """Chance that at least one of k samples is right, without bias, from `right` of `samples`.

    1 - C(n - c, k) / C(n, k), as the product over i of (1 - k / i), which neither overflows nor cancels
    (Chen et al. 2021, arXiv:2107.03374).

    Args:
        samples: candidates drawn for the task, n.
        right: those that are right, c.
        k: how many one would draw.

    Raises:
        ValueError: not 0 <= right <= samples and 1 <= k <= samples.
    """
    if not (0 <= right <= samples and 1 <= k <= samples):
        raise ValueError(f"no pass@{k} of {right} right among {samples}")
    if right == 0:
        return 0.0
    if samples - right < k:
        return 1.0
    return -math.expm1(math.fsum(math.log1p(-k / i) for i in range(samples - right + 1, samples + 1)))


def mean_pass_at_k(tasks: Iterable[tuple[int, int]], k: int) -> float:
    """Mean of pass@k over tasks, each as (samples, right). Raises ValueError without a task."""
    found = [pass_at_k(samples, right, k) for samples, right in tasks]
    if not found:
        raise ValueError("no tasks")
    return math.fsum(found) / len(found)


def fast_p(results: Iterable[Result], p: float) -> float:
    """Share of tasks whose candidate is right and more than p times as fast as its reference.

    Every task counts in the denominator. A candidate that is right and was not timed counts at p = 0, where
    rightness is all that is asked for, and at no other.

    Raises ValueError without a result, or for a negative p.
    """
    if not p >= 0:
        raise ValueError(f"no fast_p for p = {p}")
    found = [right and (p == 0 if speedup is None else speedup > p) for right, speedup in results]
    if not found:
        raise ValueError("no results")
    return sum(found) / len(found)
