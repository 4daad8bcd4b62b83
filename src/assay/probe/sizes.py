"""Which sizes to try: a plan of variations of a task's own integers, the most revealing first.

Pure: it reads a Study and a candidate's block constants, and decides nothing about the candidate.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Literal

from pydantic import BaseModel, ConfigDict

from assay.probe.beside import legal, nearest, varying
from assay.probe.blocks import block_constants
from assay.task.facts import Study, TaskSize

Tier = Literal["quick", "standard", "deep"]

__all__ = ["SizeVariant", "block_constants", "plan_sizes", "small_sizes"]

_COUNTS: dict[Tier, int] = {"quick": 8, "standard": 24, "deep": 96}
_USUAL_BLOCKS = (32, 128, 1024)
"""Blocks assumed where the candidate's source names none."""


BYTE = 128
"""Values that an 8-bit signed integer does not reach."""
OFFSETS = 1 << 15
"""Elements at which offsets in 16 bits overflow."""


class SizeVariant(BaseModel):
    """One set of sizes to run a task at."""

    model_config = ConfigDict(frozen=True)

    name: str
    """Readable and unique within a plan, such as ``COLS=129`` or ``all=prime``."""
    sizes: dict[str, int]
    """Every integer that differs from its native value."""
    reason: str
    """Why this is worth trying, in words: ``one above block 128``."""
    axes: tuple[str, ...]
    """Integers under test (tied ones together); the others are only kept small."""
    elements: int
    """Elements of inputs, parameters and outputs together, as the study foretells."""
    growth: float = 1.0
    """How many times as much work it is as the native sizes, if the work is proportional to each."""


class _Axis(BaseModel):
    """A size that varies, with those tied to it."""

    model_config = ConfigDict(frozen=True)

    head: TaskSize
    names: tuple[str, ...]
    outer: bool
    """Never the last dimension of an input: what a kernel spreads programs over rather than blocks."""


def plan_sizes(
    study: Study, blocks: Sequence[int] = (), budget_elements: int = 1 << 18, tier: Tier = "standard"
) -> list[SizeVariant]:
    """Plan variations of the sizes of a task.

    Each size alone at 1, primes, block − 1, block, block + 1, several tiles, a power of two, 0 where the
    reference admits it (an inner dimension in the deep tier only), and long; then all together. While one
    varies, the others are kept small, so that a variant costs little where kernels are interpreted; a variant
    over the budget is left out. Tied sizes move together, and constraints found by the study are kept. The
    first variants matter most: they take turns over the axes.

    Args:
        study: the task's study.
        blocks: block constants of the candidate (:func:`block_constants`); usual ones where it has none.
        budget_elements: most elements of inputs, parameters and outputs together.
        tier: how many variants: 8, 24 or 96.
    """
    axes = _axes(study, tier)
    if not axes:
        return []
    small = small_sizes(study)
    marks = sorted(set(blocks) or set(_USUAL_BLOCKS))
    queues = [list(_alone(axis, marks, tier, bool(blocks))) for axis in axes]
    # sizes that a kernel loops or blocks over are the larger ones: their first variants come first
    order = sorted(range(len(axes)), key=lambda i: (axes[i].head.kind != "size", -axes[i].head.native, i))
    together = list(_together(axes, marks, small, study))
    candidates: list[tuple[tuple[_Axis, ...], dict[str, int], str, str]] = []
    depth = max(len(queue) for queue in queues)
    for turn in range(depth):
        if turn < len(together):
            candidates.append(together[turn])
        for i in order:
            if turn < len(queues[i]):
                value, reason = queues[i][turn]
                axis = axes[i]
                sizes = {**small, **dict.fromkeys(axis.names, value)}
                candidates.append(((axis,), sizes, f"{axis.names[0]}={value}", reason))
    candidates += together[depth:]
    return _chosen(study, candidates, budget_elements, _COUNTS[tier])


def small_sizes(study: Study) -> dict[str, int]:
    """Small values of every size, accepted together: of the study's two sets the one with fewer elements."""
    lighter = sum(study.elements(study.beside)) <= sum(study.elements(study.small))
    return dict(study.beside if lighter else study.small)


def _axes(study: Study, tier: Tier) -> list[_Axis]:
    """Sizes that vary; in the deep tier also counts."""
    by_name = {size.name: size for size in study.integers}
    axes = []
    for names in varying(study, ("size", "count") if tier == "deep" else ("size",)):
        inner = any(leaf.axes and set(names) & set(leaf.axes[-1].integers) for leaf in study.inputs)
        axes.append(_Axis(head=by_name[names[0]], names=names, outer=not inner))
    return axes


def _alone(axis: _Axis, marks: Sequence[int], tier: Tier, blocks_known: bool) -> Iterator[tuple[int, str]]:
    """Values for one axis, the most revealing first, each once."""
    seen = {axis.head.native}
    for value, reason in _wishes(axis, marks, tier, blocks_known):
        near = value if value <= 1 else nearest(axis.head, value)
        if near not in seen and legal(axis.head, near):
            seen.add(near)
            yield near, reason if near == value else f"{reason}, moved to a legal value"


def _wishes(axis: _Axis, marks: Sequence[int], tier: Tier, blocks_known: bool) -> Iterator[tuple[int, str]]:
    """Values worth trying on one axis, legal or not."""
    native = axis.head.native
    if axis.head.kind == "count":
        for value in (1, native + 1, native - 1, 2):
            yield value, "another count"
        return
    if axis.outer:
        # a program for each row is dear where kernels are interpreted, and blocks over rows are small
        marks = [block for block in marks if block <= max(2 * native, 32)] if blocks_known else [32]
        marks = marks or [16]
    # the block nearest to the native size first: where a missing tail mask or a fixed width shows
    near = sorted(marks, key=lambda block: abs(math.log2(block / max(1, native))))
    principal = near[0]
    yield principal + 1, f"one above block {principal}"
    yield _prime_near(native // 3 or 2), "a prime, aligned with nothing"
    yield 1, "a single element"
    yield max(2, principal - 1), f"one below block {principal}"
    yield 2 * principal + principal // 2 + 1, f"several tiles of {principal} and a part"
    if axis.outer and native <= BYTE:
        yield BYTE + 3, "more than one byte counts"
    yield principal, f"exactly block {principal}"
    if tier == "deep" or not axis.outer or native < 128:
        yield 2 * native + 1, "more than twice the native size"
    if tier == "deep" or axis.outer:
        # an empty row is a case of its own for whatever reduces over it; an empty batch is plain
        yield 0, "no element"
    yield native - 1, "one below the native size"
    yield native + 1, "one above the native size"
    yield _power_below(native), "a power of two"
    for block in near[1 : None if tier == "deep" else 3]:
        yield block + 1, f"one above block {block}"
        yield max(2, block - 1), f"one below block {block}"
        yield block, f"exactly block {block}"
        if tier == "deep":
            yield 3 * block + 5, f"several tiles of {block} and a part"
    yield 2, "two elements"
    yield 3, "three elements"
    if tier == "deep":
        for prime in (5, 17, 67, 257, 1031):
            yield prime, "a prime"
        yield 4 * native + 3, "long"


def _together(
    axes: Sequence[_Axis], marks: Sequence[int], small: Mapping[str, int], study: Study
) -> Iterator[tuple[tuple[_Axis, ...], dict[str, int], str, str]]:
    """Variations of all axes at once."""
    sizes = [axis for axis in axes if axis.head.kind == "size"]
    if not sizes:
        return

    def joint(
        values: Iterable[int], label: str, reason: str
    ) -> tuple[tuple[_Axis, ...], dict[str, int], str, str]:
        chosen = dict(small)
        for axis, value in zip(sizes, values, strict=True):
            near = value if value <= 1 and legal(axis.head, value) else nearest(axis.head, value)
            chosen.update(dict.fromkeys(axis.names, near))
        return tuple(sizes), chosen, f"all={label}", reason

    primes = (13, 7, 11, 5, 17, 3, 19, 23)
    yield joint((primes[i % 8] for i in range(len(sizes))), "primes", "no size aligned with any block")
    yield from _long(sizes, small)
    yield joint((1 for _ in sizes), "1", "every size one")
    block = marks[0]
    yield joint(
        (min(axis.head.native, block) + 1 for axis in sizes), "block+1", f"every size past block {block}"
    )
    yield joint(
        (_power_below(min(axis.head.native, 64)) for axis in sizes), "powers", "every size a power of two"
    )
    yield joint((2 + i % 2 for i in range(len(sizes))), "2-3", "every size two or three")


def _long(
    sizes: Sequence[_Axis], small: Mapping[str, int]
) -> Iterator[tuple[tuple[_Axis, ...], dict[str, int], str, str]]:
    """The longest inner axis so long, and the outer ones so small, that offsets need more than 15 bits."""
    inner = [axis for axis in sizes if not axis.outer]
    if not inner or not 2 <= len(sizes) <= 3:
        return
    axis = max(inner, key=lambda a: a.head.native)
    chosen = dict(small)
    for other in sizes:
        if other is not axis and other.outer:
            chosen.update(dict.fromkeys(other.names, nearest(other.head, 3)))
    value = nearest(axis.head, OFFSETS // 3 + 5)
    if legal(axis.head, value):
        chosen.update(dict.fromkeys(axis.names, value))
        yield tuple(sizes), chosen, "all=long", "offsets of more than 15 bits"


def _chosen(
    study: Study,
    candidates: Iterable[tuple[tuple[_Axis, ...], dict[str, int], str, str]],
    budget: int,
    count: int,
) -> list[SizeVariant]:
    """The first ``count`` candidates within the budget, without repetitions."""
    native = study.native()
    plan: list[SizeVariant] = []
    seen: set[tuple[tuple[str, int], ...]] = set()
    for axes, sizes, name, reason in candidates:
        changed = {key: value for key, value in sizes.items() if native.get(key) != value}
        key = tuple(sorted(changed.items()))
        elements = sum(study.elements(sizes))
        if not changed or key in seen or elements > budget:
            continue
        seen.add(key)
        names = tuple(name for axis in axes for name in axis.names)
        growth = math.prod(value / max(1, native[n]) for n, value in changed.items() if n in native)
        plan.append(SizeVariant(name=name, sizes=changed, reason=reason, axes=names, elements=elements, growth=growth))
        if len(plan) == count:
            break
    return plan


def _power_below(value: int) -> int:
    return 1 << max(0, max(1, value).bit_length() - 1)


def _prime_near(value: int) -> int:
    """The smallest prime not below a value."""
    candidate = max(2, value)
    while any(candidate % d == 0 for d in range(2, math.isqrt(candidate) + 1)):
        candidate += 1
    return candidate
