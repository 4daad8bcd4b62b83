"""Which values each integer of a task may take, and what moves with it: found by trying."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import Any

import torch

from assay.task.facts import Attempt
from assay.task.integers import TaskInteger
from assay.task.tree import leaves
from assay.task.trial import Lab, Trial

_FLOORS = (16, 8, 4)
"""Integers up to the floor stay as they are when sizes are reduced; lower ones follow where needed."""
_HEAVY = 1 << 28
"""Most elements of inputs and parameters that are made where nothing smaller will do."""
_FARTHEST = 64
"""Growth of one size beyond which it is not tried: intermediate tensors may grow with its square."""


@dataclass
class Explored:
    """What trying an integer's values gave."""

    group: tuple[str, ...]
    """The integer, and those tied to it."""
    value: int
    """Its value where the exploration started."""
    attempts: dict[int, Attempt] = field(default_factory=dict)
    moved: list[Trial] = field(default_factory=list)
    """Trials with only this group changed, the one that moved farthest first."""
    multiple_of: int = 1
    minimum: int = 1
    bounded_above: bool = False
    """Whether values above the one at the start were rejected and smaller ones were not."""


def reduce(lab: Lab, native: Mapping[str, int], *, elements: int) -> Trial | None:
    """A trial that the reference accepts, with few elements; None if none was found.

    The native sizes serve where they are small. Else all integers are halved together, so that divisibility
    between them lives as long as it can. Where the reference rejects that (an image too small for its
    layers), some are put back.

    Args:
        lab: runs the trials.
        native: the integers that may vary, with their native values.
        elements: inputs and parameters to aim at; up to four times as many will do.
    """
    rungs: list[dict[str, int]] = [{}, *_ladder(native)]
    low = lab.run(rungs[-1], ceiling=_HEAVY)
    # weights that are many at any size leave nothing to weigh
    heavy = weight(low) > elements * 4
    best = low if low.accepted else None
    if heavy and best is not None:
        return best
    growth = _growth(lab, rungs)
    smallest: dict[str, int] | None = None
    for sizes in [] if heavy else rungs:
        made = lab.run(sizes, upto="model", ceiling=elements * 16)
        if made.too_large or weight(made) > elements * 4:
            continue
        if growth is not None and growth(weight(made)) > elements * 16:
            continue
        smallest = sizes if smallest is None else smallest
        trial = None if made.error else lab.run(sizes)
        if trial is None or not trial.accepted:
            break
        best = trial
        if weight(made) <= elements or lab.out_of_time:
            break
    if best is None and smallest != {}:
        # from the smallest sizes of all a raise costs least; they may be too small in several ways at once
        for start in (rungs[-1], smallest or rungs[-1]):
            best = best or _put_back(lab, native, start, elements)
    return best


def _growth(lab: Lab, rungs: Sequence[Mapping[str, int]]) -> Callable[[int], float] | None:
    """Elements of the outputs as a power of those that go in, from two small trials; None if they fail.

    The output of an outer product is the square of its inputs: what is cheap to make may be ruinous to run.
    """
    if not rungs:
        return None
    low, high = (lab.run(rungs[max(0, len(rungs) - back)]) for back in (1, 4))
    if not (low.accepted and high.accepted):
        return None
    weights = weight(low), weight(high)
    made = max(1, _outputs(low)), max(1, _outputs(high))
    if weights[1] <= weights[0] or weights[0] == 0:
        return None
    power = max(0.0, math.log(made[1] / made[0]) / math.log(weights[1] / weights[0]))
    return lambda elements: made[1] * (elements / weights[1]) ** power


def _ladder(native: Mapping[str, int]) -> Iterator[dict[str, int]]:
    """Sizes ever smaller: halved together down to one floor, then to the next."""
    sizes = dict(native)
    for floor in _FLOORS:
        while any(value > floor for value in sizes.values()):
            sizes = {
                name: max(value // 2, floor // 2) if value > floor else value for name, value in sizes.items()
            }
            yield sizes


def _put_back(lab: Lab, native: Mapping[str, int], small: Mapping[str, int], elements: int) -> Trial | None:
    """Raise few integers from ``small`` until the reference accepts, then lower those again."""
    changed = [name for name in native if native[name] != small[name]]
    heavy = weight(lab.run(small, upto="model", ceiling=_HEAVY)) > elements * 4
    groups: list[tuple[str, ...]] = [(name,) for name in changed]
    groups += [
        group
        for value in dict.fromkeys(native[name] for name in changed)
        if len(group := tuple(name for name in changed if native[name] == value)) > 1
    ]
    groups += list(combinations(changed, 2))[:20]
    # last, all but one: what remains reduced is often only the batch
    groups += [tuple(name for name in changed if name != kept) for kept in changed]
    for group in dict.fromkeys(groups):
        if lab.out_of_time:
            return None
        sizes = {**small, **{name: native[name] for name in group}}
        trial = lab.run(sizes, ceiling=_HEAVY if heavy else elements * 128)
        if not trial.accepted:
            continue
        for name in sorted(group, key=lambda name: -native[name]):
            while sizes[name] // 2 >= small[name] and not lab.out_of_time and weight(trial) > elements:
                lower = lab.run(
                    {**sizes, name: sizes[name] // 2}, ceiling=_HEAVY if heavy else elements * 128
                )
                if not lower.accepted:
                    break
                trial, sizes = lower, lower.sizes
        return trial
    return None


def weight(trial: Trial) -> int:
    """Elements of a trial's inputs and parameters."""
    extents: dict[Any, int] = {}
    for (group, path, _), extent in trial.extents().items():
        if group != "output":
            extents[group, path] = extents.get((group, path), 1) * extent
    return sum(extents.values())


def explore(
    lab: Lab, start: Trial, free: Sequence[TaskInteger], values: Mapping[str, int]
) -> dict[str, Explored]:
    """Try values of every free integer around an accepted trial.

    Rounds go over all integers, the most telling question first, so that a spent budget leaves each with as
    much as the others: what moves with it, whether any value goes, 1, and 0.

    Args:
        lab: runs the trials.
        start: an accepted trial.
        free: the integers to vary.
        values: their values in ``start``.

    Returns:
        By name; tied integers share one record.
    """
    found: dict[str, Explored] = {}
    for integer in free:
        if integer.name not in found and values[integer.name] >= 0:
            record = _first_move(lab, start, integer, free, values)
            for name in record.group:
                found[name] = record
    records = list({id(record): record for record in found.values()}.values())
    shaping = [record for record in records if changes_shapes(start, record)]
    for question in (_any_value, _smallest, _zero):
        for record in shaping:
            if not lab.out_of_time:
                question(lab, start, record, record.value)
    for record in shaping:
        native = next(integer.value or 0 for integer in free if integer.name == record.group[0])
        if not lab.out_of_time and native > record.value and 2 * native not in record.attempts:
            _beyond(lab, start, record, native)
    return found


def changes_shapes(start: Trial, record: Explored) -> bool:
    """Whether changing the group changed any extent, any count of tensors, or a value range."""
    before = start.extents()
    return any(trial.extents() != _same_groups(before, trial) for trial in record.moved)


def _same_groups(extents: dict[Any, int], trial: Trial) -> dict[Any, int]:
    """Of the start's extents, the groups that a trial got far enough to show."""
    groups = {"input"} | ({"parameter"} if trial.model is not None else set())
    groups |= {"output"} if trial.accepted else set()
    return {key: extent for key, extent in extents.items() if key[0] in groups}


def _first_move(
    lab: Lab, start: Trial, integer: TaskInteger, free: Sequence[TaskInteger], values: Mapping[str, int]
) -> Explored:
    """Find one other value that is accepted, with tied integers if it takes them."""
    name, value = integer.name, values[integer.name]
    record = Explored((name,), value)
    _note(record, value, start, start)
    choices = [v for v in dict.fromkeys((2 * value, value + 1, value // 2, value + 2, 3 * value)) if v > 0]
    for choice in [v for v in choices if v != value]:
        if lab.out_of_time:
            break
        if _try(lab, start, record, choice).accepted:
            return record
        if choice == 2 * value or value == 0:
            twins = [
                other.name
                for other in free
                if other.name != name and other.value == integer.value and values[other.name] == value
            ]
            if twins and value > 1:
                tied = _tied(lab, start, (name, *twins), value, choice)
                if tied is not None:
                    _note(tied, value, start, start)
                    return tied
    return record


def _tied(lab: Lab, start: Trial, names: tuple[str, ...], value: int, choice: int) -> Explored | None:
    """A group of integers accepted at ``choice`` together, as small as can be; None if they are not."""
    group = list(names)
    if not lab.run({**start.sizes, **dict.fromkeys(group, choice)}).accepted:
        return None
    for name in names[1:]:
        fewer = [other for other in group if other != name]
        if len(fewer) > 1 and lab.run({**start.sizes, **dict.fromkeys(fewer, choice)}).accepted:
            group = fewer
    record = Explored(tuple(group), value)
    _try(lab, start, record, choice)
    return record


def _try(lab: Lab, start: Trial, record: Explored, value: int) -> Trial:
    """Run with the group at ``value`` and note what came of it."""
    trial = lab.run({**start.sizes, **dict.fromkeys(record.group, value)})
    if trial.too_large:
        return trial
    _note(record, value, trial, start)
    if trial.inputs is not None:
        record.moved.append(trial)
        name = record.group[0]
        record.moved.sort(key=lambda t: (not t.accepted, -abs(t.sizes[name] - record.value)))
    return trial


def _note(record: Explored, value: int, trial: Trial, start: Trial) -> None:
    note = trial.error if not trial.accepted else ""
    if trial.accepted and trial is not start and not _finite(trial.outputs) and _finite(start.outputs):
        note = "nonfinite"
    record.attempts[value] = Attempt(value=value, accepted=trial.accepted, note=note)


def _finite(outputs: Any) -> bool:
    return all(
        bool(torch.isfinite(value).all())
        for _, value in leaves(outputs)
        if isinstance(value, torch.Tensor) and (value.is_floating_point() or value.is_complex())
    )


def _any_value(lab: Lab, start: Trial, record: Explored, value: int) -> None:
    """Whether the next value is accepted; else what the values must be a multiple of."""
    if not any(attempt.accepted for v, attempt in record.attempts.items() if v != value):
        return
    if _try(lab, start, record, value + 1).accepted:
        return
    larger = [v for v, attempt in record.attempts.items() if v > value and attempt.accepted]
    if not larger:
        record.bounded_above = True
        if value > 1 and _try(lab, start, record, value - 1).accepted:
            return
    sign = -1 if record.bounded_above else 1
    record.multiple_of = value
    for divisor in (d for d in range(2, value) if value % d == 0):
        if lab.out_of_time:
            return
        if value + sign * divisor > 0 and _try(lab, start, record, value + sign * divisor).accepted:
            record.multiple_of = divisor
            return


def _smallest(lab: Lab, start: Trial, record: Explored, value: int) -> None:
    """The smallest accepted multiple, by bisection: a reference that takes n takes more than n."""
    if not any(attempt.accepted for v, attempt in record.attempts.items() if v != value):
        record.minimum = value
        return
    step = record.multiple_of
    low, high = 1, max(1, value // step)
    while low < high and not lab.out_of_time:
        middle = low if low == 1 and step not in record.attempts else (low + high) // 2
        if _try(lab, start, record, middle * step).accepted:
            high = middle
        else:
            low = middle + 1
    record.minimum = min(high * step, value)


def _zero(lab: Lab, start: Trial, record: Explored, value: int) -> None:
    if value > 0 and record.minimum == record.multiple_of:
        _try(lab, start, record, 0)


def _beyond(lab: Lab, start: Trial, record: Explored, native: int) -> None:
    """Whether twice the native value is accepted while the other sizes are small (a table may end there)."""
    growth = 2 * native / max(1, record.value)
    if (
        growth > _FARTHEST
        or not record.moved
        or _outputs(start) * growth ** _output_dims(start, record) > 1 << 22
    ):
        return
    trial = lab.run({**start.sizes, **dict.fromkeys(record.group, 2 * native)})
    if trial.too_large:
        return
    _note(record, 2 * native, trial, start)
    record.bounded_above = not trial.accepted and _try(lab, start, record, native).accepted


def _outputs(trial: Trial) -> int:
    """Elements of a trial's outputs."""
    return sum(value.numel() for _, value in leaves(trial.outputs) if isinstance(value, torch.Tensor))


def _output_dims(start: Trial, record: Explored) -> int:
    """Most dimensions of one output that move with the group."""
    after = record.moved[0].extents()
    moved = Counter(
        path
        for (group, path, dim), extent in start.extents().items()
        if group == "output" and after.get((group, path, dim), extent) != extent
    )
    return max(moved.values(), default=0)
