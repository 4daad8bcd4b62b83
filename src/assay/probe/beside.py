"""Sizes that vary, the values that each may take, and small values for those that are not under test."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    # the study itself plans small sizes with these functions
    from assay.task.facts import SizeKind, Study, TaskSize

BESIDE = 13
"""What the other sizes are while one is varied: several rows, and aligned with nothing."""


def varying(study: Study, kinds: Sequence[SizeKind]) -> list[tuple[str, ...]]:
    """Groups of integers of these kinds that vary together, in the order of the file."""
    groups: list[tuple[str, ...]] = []
    taken: set[str] = set()
    for size in study.integers:
        if size.name not in taken and size.varies and size.kind in kinds:
            groups.append((size.name, *size.tied))
            taken |= set(groups[-1])
    return groups


def legal(size: TaskSize, value: int) -> bool:
    """Whether the reference is known or likely to accept a value."""
    for attempt in size.tried:
        if attempt.value == value:
            return attempt.accepted and attempt.note != "nonfinite"
    if value == 0:
        return size.zero
    if size.maximum is not None and value > size.maximum:
        return False
    return value >= size.minimum and value % size.multiple_of == 0


def nearest(size: TaskSize, value: int) -> int:
    """The closest value that keeps a size's constraints, from above where there is a choice."""
    step = size.multiple_of
    near = max(size.minimum, -(-value // step) * step)
    if size.maximum is not None and near > size.maximum:
        near = size.maximum // step * step
    return near


def beside(study: Study, wanted: int) -> dict[str, int]:
    """Every size near ``wanted``, or native where that is smaller; counts as the study reduced them."""
    sizes = dict(study.small)
    by_name = {size.name: size for size in study.integers}
    for group in varying(study, ("size",)):
        head = by_name[group[0]]
        sizes.update(dict.fromkeys(group, nearest(head, min(wanted, head.native))))
    return sizes
