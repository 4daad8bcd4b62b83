"""Study a task: run its reference a few times and write down what was learnt.

Runs the task's own code, so it belongs in the reference worker; what it returns is plain data.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from assay.probe.beside import BESIDE, beside, varying
from assay.probe.structure import ENOUGH_ELEMENTS, Structure, infer
from assay.task import callables, integers
from assay.task.axes import Axis, fit
from assay.task.behaviour import Behaviour, observe, weaknesses
from assay.task.facts import (
    Cost,
    InputLeaf,
    Layout,
    LeafKind,
    OutputLeaf,
    ParameterFact,
    SizeKind,
    Study,
    TaskSize,
    Weakness,
)
from assay.task.integers import TaskInteger
from assay.task.model import Task, TaskError
from assay.task.sizing import Explored, explore, reduce, weight
from assay.task.tree import Path, leaves
from assay.task.trial import Lab, Trial, forward, state_of

NATIVE_ELEMENTS = 1 << 21
"""Inputs and parameters of at most this many elements are made at the native sizes."""
SMALL_ELEMENTS = 1 << 14
"""What reduced sizes aim at."""
CHEAP_SECONDS = 3e-3
"""A forward up to this is repeated at its own sizes rather than at reduced ones."""
SLOW_SECONDS = 0.4
"""A native forward expected to take longer is not run."""


def study(
    task: Task, *, seeds: Sequence[int] = (0, 1, 2), budget_s: float = 1.5, max_elements: int = 1 << 28
) -> Study:
    """Run a task a few times and describe it.

    Args:
        task: the task.
        seeds: seeds of the inputs whose structure is inferred; at least two.
        budget_s: seconds after which no further sizes are tried.
        max_elements: most elements made where the sizes cannot be reduced.

    Raises:
        TaskError: the file cannot be executed, ``get_inputs`` or ``get_init_inputs`` raises, or the
            constructor does not take its arguments. A reference whose forward raises is described instead.
    """
    lab = Lab(task, budget_s, NATIVE_ELEMENTS)
    found = (
        callables.integers_of(task) if task.format == "callable" else integers.find(task.source, task.entry)
    )
    free = [integer for integer in found if integer.status == "free" and integer.value is not None]
    native = {integer.name: integer.value for integer in free if integer.value is not None}
    base, small = _choose(lab, native, max_elements)
    lab.extend(budget_s / 2)
    lab.ceiling = max(lab.ceiling, 4 * weight(small))
    if base.instance is None or base.inputs is None:
        raise TaskError(f"too large to run: {base.error}", task.shown, "give it smaller sizes")
    values = {**native, **small.sizes}
    explored = explore(lab, small, free, values) if small.accepted else {}
    samples = _draw(base, seeds)
    structures = [infer(group) for group in samples]
    structures = _tie_ranges(lab, small, structures, free, values)
    seen = _observe(small, seeds[0])
    axes = _Axes(small, base, explored, native)
    outputs = _outputs(small, axes, seen)
    weak, seconds = _weak(lab, base, small, sum(math.prod(leaf.shape) for leaf in outputs), seeds)
    facts = Study(
        task=task.digest,
        inputs=_inputs(base, axes, structures),
        outputs=outputs,
        parameters=_parameters(small, axes),
        init_tensors=tuple(
            ".".join(map(str, path))
            for path, value in base.instance.init.leaves()
            if isinstance(value, Tensor)
        ),
        sizes=base.sizes,
        small=small.sizes,
        random=seen.random if seen else False,
        stateful=seen.stateful if seen else (),
        training=bool(getattr(small.model, "training", False)),
        mode_matters=_mode_matters(small.model),
        mutates=seen.mutates if seen else (),
        weak=weak,
        raises=None if small.accepted else small.error,
        notes=("the time budget ended before every size was tried",) if lab.out_of_time else (),
    )
    ranges = {s.high_axis: position for position, s in enumerate(structures) if s.high_axis is not None}
    described = tuple(_size(integer, base, explored, small, facts, axes, ranges) for integer in found)
    facts = facts.model_copy(update={"integers": described})
    facts = facts.model_copy(update={"cost": _cost(facts, seconds)})
    return facts.model_copy(update={"beside": _beside(lab, facts) if small.accepted else {}})


def _choose(lab: Lab, native: Mapping[str, int], max_elements: int) -> tuple[Trial, Trial]:
    """The trial whose inputs are described (native where it fits) and a cheap accepted trial."""
    made = lab.run({}, upto="model", ceiling=NATIVE_ELEMENTS)
    if made.error and not made.too_large:
        raise _as_error(lab.task, made)
    small: Trial | None = None
    if made.too_large:
        small = reduce(lab, native, elements=SMALL_ELEMENTS)
        if small is not None:
            return small, small
        made = lab.run({}, upto="model", ceiling=max_elements)
        if made.error:
            return made, made
    weight = sum(t.numel() for t in made.inputs.tensors()) if made.inputs else 0
    weight += sum(t.numel() for _, t in state_of(made.model))
    if weight > 2 * SMALL_ELEMENTS:
        small = reduce(lab, native, elements=SMALL_ELEMENTS)
        if small is not None:
            return made, small
    full = lab.run({}, ceiling=max_elements)
    if full.accepted and full.seconds > CHEAP_SECONDS:
        small = reduce(lab, native, elements=SMALL_ELEMENTS)
        if small is not None and small.seconds > full.seconds / 2:
            small = None
    return full, small or full


def _as_error(task: Task, trial: Trial) -> Exception:
    """The exception that stopped a trial, to be raised."""
    if trial.fault is not None:
        return trial.fault
    return TaskError(trial.error, task.shown, "correct it")


def _draw(base: Trial, seeds: Sequence[int]) -> list[list[Tensor]]:
    """Samples of every tensor input; more seeds while the inputs are too few to say anything."""
    assert base.instance is not None
    assert base.inputs is not None
    drawn = [base.instance.inputs(seed) for seed in seeds]
    counts = [tensor.numel() for tensor in drawn[0].tensors()]
    extra = seeds[-1] + 1
    while (
        counts and min(counts) * len(drawn) < 4 * ENOUGH_ELEMENTS and len(drawn) < 8 and sum(counts) < 1 << 17
    ):
        drawn.append(base.instance.inputs(extra))
        extra += 1
    return [list(group) for group in zip(*(inputs.tensors() for inputs in drawn), strict=False)]


def _tie_ranges(
    lab: Lab,
    small: Trial,
    structures: list[Structure],
    free: Sequence[TaskInteger],
    values: Mapping[str, int],
) -> list[Structure]:
    """Structures of index inputs, with the size that ends their range where one does.

    An index range is tied to a size when the largest index is that size less one at two other values of it.
    """
    tied = list(structures)
    for position, structure in enumerate(structures):
        if structure.kind != "integer" or structure.has("constant") or structure.low is None:
            continue
        if structure.low < 0 or structure.high is None:
            continue
        for integer in free:
            if integer.value is None or not structure.high < max(integer.value, values[integer.name]) + 1:
                continue
            ends = [_largest(lab, small, integer.name, value, position) for value in (3, 5)]
            offsets = {end - value for end, value in zip(ends, (3, 5), strict=True) if end is not None}
            if None not in ends and len(offsets) == 1 and -1 <= (offset := offsets.pop()) <= 0:
                tied[position] = structure.model_copy(
                    update={
                        "high_axis": integer.name,
                        "high_offset": offset,
                        "high": float(integer.value + offset),
                    }
                )
                break
    return tied


def _largest(lab: Lab, small: Trial, name: str, value: int, position: int) -> int | None:
    """Largest value of an input over a few seeds with one integer changed; None if it cannot be made."""
    trial = lab.run({**small.sizes, name: value}, upto="inputs")
    if trial.instance is None or trial.inputs is None:
        return None
    ends = []
    for seed in range(6):
        try:
            tensors = trial.instance.inputs(seed).tensors()
        except (TaskError, MemoryError):
            return None
        if position >= len(tensors) or not tensors[position].numel():
            return None
        ends.append(int(tensors[position].max()))
    return max(ends)


def _observe(small: Trial, seed: int) -> Behaviour | None:
    """How the reference behaves; None where it does not run, or only without gradients."""
    if not small.accepted or small.instance is None:
        return None
    try:
        return observe(small.instance, small.instance.inputs(seed))
    except (TaskError, MemoryError):
        return None


def _weak(
    lab: Lab, base: Trial, small: Trial, outputs: int, seeds: Sequence[int]
) -> tuple[tuple[Weakness, ...], float | None]:
    """Weaknesses, at the native sizes where that is cheap enough, and the native forward's seconds.

    Args:
        outputs: elements of the native outputs, as the axes foretell.
    """
    if not small.accepted:
        return (), None
    at = small
    affordable = small is not base and not base.sizes and outputs <= 2 * NATIVE_ELEMENTS
    if affordable and small.seconds * _growth(small, base, outputs) < SLOW_SECONDS:
        at = lab.run({}, ceiling=0)
    if not at.accepted or at.instance is None:
        return (), None
    if at.seconds > SLOW_SECONDS:
        return (), None if at.sizes else at.seconds
    with torch.no_grad():
        model = at.instance.build()
        one = forward(at.instance, model, at.instance.inputs(seeds[0]))
        two = forward(at.instance, model, at.instance.inputs(seeds[1]))
    return weaknesses(one, two, at.instance.inputs(seeds[0])), None if at.sizes else at.seconds


def _growth(small: Trial, base: Trial, outputs: int) -> float:
    """How much longer a native forward may take; that of a product grows with the root of its output too."""

    def grown(before: Sequence[Tensor], after: Sequence[Tensor]) -> float:
        return max(1.0, sum(t.numel() for t in after) / max(1, sum(t.numel() for t in before)))

    assert small.inputs is not None
    assert base.inputs is not None
    inputs = grown(small.inputs.tensors(), base.inputs.tensors())
    parameters = grown([t for _, t in state_of(small.model)], [t for _, t in state_of(base.model)])
    made = sum(value.numel() for _, value in leaves(small.outputs) if isinstance(value, Tensor))
    return inputs * parameters * math.sqrt(max(1.0, outputs / max(1, made)))


class _Axes:
    """Dimensions of a trial's tensors as formulas, with their native extents."""

    def __init__(
        self, small: Trial, base: Trial, explored: Mapping[str, Explored], native: Mapping[str, int]
    ) -> None:
        self.values = {**native, **small.sizes}
        self.native = native
        self.extents = small.extents()
        self.exact = base.extents() if not base.sizes else {}
        self.moves: dict[str, list[tuple[Mapping[str, int], dict[Any, int]]]] = {}
        for record in {id(record): record for record in explored.values()}.values():
            for trial in record.moved[:1]:
                sizes = {**self.values, **trial.sizes}
                self.moves[record.group[0]] = [(sizes, trial.extents())]

    def of(self, group: str, path: Path, dims: int) -> tuple[Axis, ...]:
        """Axes of one tensor."""
        axes = []
        for dim in range(dims):
            key = (group, path, dim)
            extent = self.extents.get(key, self.exact.get(key, 0))
            moves = [
                (sizes, extents[key])
                for observed in self.moves.values()
                for sizes, extents in observed
                if key in extents
            ]
            axis = fit(extent, self.values, moves)
            whole = self.exact.get(key)
            if whole is None:
                whole = axis.at({**self.values, **self.native})
            axes.append(axis.model_copy(update={"extent": whole}))
        return tuple(axes)

    def names_moved(self, name: str) -> list[str]:
        """What changed with one integer, in words."""
        words = []
        for _, extents in self.moves.get(name, ()):
            for key, extent in self.extents.items():
                if key in extents and extents[key] != extent:
                    group, path, dim = key
                    words.append(f"{group} {'.'.join(map(str, path)) or '0'} dim {dim}")
            groups = {group for group, _, _ in extents}
            gone = {key for key in self.extents if key[0] in groups and key not in extents}
            come = {key for key in extents if key not in self.extents}
            words += sorted({f"{group} count" for group, _, _ in gone | come})
        return words


def _inputs(base: Trial, axes: _Axes, structures: Sequence[Structure]) -> tuple[InputLeaf, ...]:
    assert base.inputs is not None
    described = []
    position = 0
    for path, value in base.inputs.leaves():
        kind = kind_of(value)
        if not isinstance(value, Tensor):
            described.append(InputLeaf(path=path, kind=kind, value=_plain(value)))
            continue
        described.append(
            InputLeaf(
                path=path,
                kind=kind,
                position=position,
                dtype=_dtype(value),
                axes=axes.of("input", path, value.dim()),
                layout=layout_of(value),
                requires_grad=value.requires_grad,
                structure=structures[position] if position < len(structures) else None,
            )
        )
        position += 1
    return tuple(described)


def _outputs(small: Trial, axes: _Axes, seen: Behaviour | None) -> tuple[OutputLeaf, ...]:
    if not small.accepted:
        return ()
    described = []
    for index, (path, value) in enumerate(leaves(small.outputs)):
        tensor = isinstance(value, Tensor)
        described.append(
            OutputLeaf(
                path=path,
                kind=kind_of(value),
                dtype=_dtype(value) if tensor else "",
                axes=axes.of("output", path, value.dim()) if tensor else (),
                layout=layout_of(value) if tensor else "contiguous",
                requires_grad=bool(seen and index < len(seen.requires_grad) and seen.requires_grad[index]),
                shares=seen.shares[index] if seen and index < len(seen.shares) else (),
                nonfinite=tensor and not bool(torch.isfinite(value).all()),
            )
        )
    return tuple(described)


def _parameters(small: Trial, axes: _Axes) -> tuple[ParameterFact, ...]:
    if not isinstance(small.model, torch.nn.Module):
        return ()
    trained = dict(small.model.named_parameters())
    return tuple(
        ParameterFact(
            name=name,
            dtype=_dtype(tensor),
            axes=axes.of("parameter", (name,), tensor.dim()),
            requires_grad=tensor.requires_grad,
            buffer=name not in trained,
        )
        for name, tensor in state_of(small.model)
    )


def _size(
    integer: TaskInteger,
    base: Trial,
    explored: Mapping[str, Explored],
    small: Trial,
    facts: Study,
    axes: _Axes,
    ranges: Mapping[str, int],
) -> TaskSize:
    """One integer as the study describes it."""
    value = integer.value
    if value is None and base.instance is not None:
        value = base.instance.integers.get(integer.name)
    record = explored.get(integer.name)
    described = TaskSize(
        name=integer.name, native=value or 0, line=integer.line, status=integer.status, why=integer.why
    )
    if record is None:
        return described
    moves = axes.names_moved(record.group[0])
    moves += _init_moves(small, record)
    if integer.name in ranges:
        moves.append(f"values of input {ranges[integer.name]}")
    at_native = small.sizes.get(integer.name, value) == value
    return described.model_copy(
        update={
            "kind": _kind(record.group[0], value or 0, moves, facts),
            "moves": tuple(moves),
            "tied": tuple(name for name in record.group if name != integer.name),
            "minimum": record.minimum,
            "multiple_of": record.multiple_of,
            "maximum": value if record.bounded_above and at_native else None,
            "zero": bool(record.attempts.get(0) and record.attempts[0].accepted and record.value != 0),
            "tried": tuple(record.attempts[v] for v in sorted(record.attempts)),
        }
    )


def _init_moves(small: Trial, record: Explored) -> list[str]:
    """Constructor arguments that change with the group."""
    if small.instance is None or not record.moved or record.moved[0].instance is None:
        return []
    before = dict(small.instance.init.leaves())
    after = dict(record.moved[0].instance.init.leaves())
    return [
        f"init {'.'.join(map(str, path))}"
        for path, value in before.items()
        if type(value) is int and after.get(path) != value
    ]


def _kind(name: str, native: int, moves: Sequence[str], facts: Study) -> SizeKind:
    if any(move.startswith(("input", "values")) for move in moves):
        return "size"
    if not any(move.startswith(("parameter", "output")) for move in moves):
        return "other"
    tensors: list[ParameterFact | OutputLeaf] = [*facts.parameters, *facts.outputs]
    proportional = any(
        axis.constant == 0 and any(name in names and coefficient >= 1 for coefficient, names in axis.terms)
        for tensor in tensors
        for axis in tensor.axes
    )
    shrinks = any(
        name in names and coefficient < 0
        for leaf in facts.outputs
        for axis in leaf.axes
        for coefficient, names in axis.terms
    )
    return "size" if proportional and native >= 8 and not shrinks else "count"


def _beside(lab: Lab, facts: Study) -> dict[str, int]:
    """Small sizes accepted together: all near one value, else one size after the other from accepted ones."""
    for value in (BESIDE, 7, 5, 3):
        sizes = beside(facts, value)
        if sum(facts.elements(sizes)) <= SMALL_ELEMENTS and lab.run(sizes).accepted:
            return sizes
    wanted = beside(facts, 7)
    sizes = dict(facts.small)
    for group in varying(facts, ("size",)):
        attempt = {**sizes, **{name: wanted[name] for name in group}}
        if attempt != sizes and not lab.out_of_time and lab.run(attempt).accepted:
            sizes = attempt
    return sizes


def _cost(facts: Study, seconds: float | None) -> Cost:
    inputs, parameters, outputs = (
        sum(math.prod(leaf.shape) for leaf in group)
        for group in (
            facts.tensor_inputs(),
            facts.parameters,
            [o for o in facts.outputs if o.kind == "tensor"],
        )
    )
    groups: list[InputLeaf | ParameterFact | OutputLeaf] = [
        *facts.tensor_inputs(),
        *facts.parameters,
        *(leaf for leaf in facts.outputs if leaf.kind == "tensor"),
    ]
    total = sum(math.prod(leaf.shape) * getattr(torch, leaf.dtype).itemsize for leaf in groups)
    return Cost(inputs=inputs, parameters=parameters, outputs=outputs, bytes=total, seconds=seconds)


def kind_of(value: Any) -> LeafKind:
    """Class of a leaf."""
    if isinstance(value, Tensor):
        return "tensor"
    if value is None:
        return "none"
    for kind, types in _KINDS:
        if isinstance(value, types):
            return kind
    return "other"


_KINDS: tuple[tuple[LeafKind, type], ...] = (
    ("bool", bool),
    ("int", int),
    ("float", float),
    ("complex", complex),
    ("str", str),
)


def layout_of(tensor: Tensor) -> Layout:
    """How a tensor lies in memory."""
    if tensor.layout is not torch.strided:
        return "strided"
    if any(stride == 0 and extent > 1 for stride, extent in zip(tensor.stride(), tensor.shape, strict=True)):
        return "expanded"
    if tensor.is_contiguous():
        return "contiguous"
    for dims, form in ((4, torch.channels_last), (5, torch.channels_last_3d)):
        if tensor.dim() == dims and tensor.is_contiguous(memory_format=form):
            return "channels_last"
    return "strided"


def _mode_matters(model: Any) -> bool:
    """Whether a submodule is one that behaves differently in training."""
    if not isinstance(model, torch.nn.Module):
        return False
    kinds = (torch.nn.modules.dropout._DropoutNd, torch.nn.modules.batchnorm._NormBase)
    for module in model.modules():
        if isinstance(module, kinds):
            return True
        if float(getattr(module, "dropout", 0.0) or 0.0) > 0 if _is_number(module) else False:
            return True
    return False


def _is_number(module: Any) -> bool:
    return isinstance(getattr(module, "dropout", None), int | float)


def _dtype(tensor: Tensor) -> str:
    return str(tensor.dtype).removeprefix("torch.")


def _plain(value: Any) -> bool | int | float | str | None:
    return value if value is None or isinstance(value, bool | int | float | str) else repr(value)
