"""Facts about a task from its trials: leaves with their dimensions, parameters, sizes and cost."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from assay.probe.structure import Structure
from assay.task.axes import Axis, fit
from assay.task.behaviour import Behaviour
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
)
from assay.task.integers import TaskInteger
from assay.task.sizing import Explored
from assay.task.tree import Path, leaves
from assay.task.trial import Trial, state_of


class Axes:
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


def describe_inputs(base: Trial, axes: Axes, structures: Sequence[Structure]) -> tuple[InputLeaf, ...]:
    """Every leaf of the inputs, with the structure of the tensors among them."""
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


def describe_outputs(small: Trial, axes: Axes, seen: Behaviour | None) -> tuple[OutputLeaf, ...]:
    """Every leaf of the outputs; none where the reference raises."""
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


def describe_parameters(small: Trial, axes: Axes) -> tuple[ParameterFact, ...]:
    """Parameters and buffers; none for a plain function."""
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


def describe_size(
    integer: TaskInteger,
    base: Trial,
    explored: Mapping[str, Explored],
    small: Trial,
    facts: Study,
    axes: Axes,
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


def cost_of(facts: Study, seconds: float | None) -> Cost:
    """Elements and bytes of one native forward, and its seconds where it was run."""
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


def mode_matters(model: Any) -> bool:
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
