"""Tasks from live Python callables: a reference function and a maker of inputs, or example inputs.

Nothing is written or read: the callables stay in a registry of this process, and a forked worker inherits it.
Such a task therefore replays only in the process that made it and its forks.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any

import torch

from assay.task.instance import Instance, seed_all, user_code
from assay.task.integers import TaskInteger
from assay.task.model import Task, TaskError
from assay.task.tree import Arguments

_numbers = count(1)
_live: dict[str, _Live] = {}


@dataclass(frozen=True)
class _Live:
    """The objects behind a handle."""

    reference: Callable[..., Any]
    inputs: Callable[..., Any] | None
    example: Arguments | None
    init: Arguments


def task_from_callables(
    reference: Callable[..., Any],
    inputs: Callable[..., Any] | Sequence[Any] | Mapping[str, Any],
    *,
    init: Sequence[Any] = (),
    id: str | None = None,
) -> Task:
    """A Task from live objects.

    Args:
        reference: a function, a ``torch.nn.Module`` instance, or a Module class (constructed with ``init``).
        inputs: a function returning the arguments of one call (its integer parameters with defaults are the
            task's sizes), or example arguments as a sequence or a dict of keywords. Floating tensors of an
            example are shuffled for every seed but 0; all else stays as given.
        init: constructor arguments, when ``reference`` is a class.
        id: readable name; by default the reference's own.

    Raises:
        TaskError: ``reference`` cannot be called, or ``inputs`` is neither callable nor arguments.
    """
    name = id or getattr(reference, "__qualname__", None) or type(reference).__name__
    if not callable(reference):
        raise TaskError(f"a {type(reference).__name__} cannot be called", name, "give a reference function")
    maker: Callable[..., Any] | None = None
    example: Arguments | None = None
    if isinstance(inputs, Mapping):
        example = Arguments(kwargs=dict(inputs))
    elif isinstance(inputs, torch.Tensor):
        example = Arguments((inputs,))
    elif isinstance(inputs, Sequence) and not isinstance(inputs, str):
        example = Arguments(tuple(inputs))
    elif callable(inputs):
        maker = inputs
    else:
        raise TaskError(
            f"inputs is a {type(inputs).__name__}",
            name,
            "give a function that makes inputs, or example arguments",
        )
    handle = f"live-{next(_numbers)}"
    _live[handle] = _Live(reference, maker, example, Arguments(tuple(init)))
    return Task(id=name, format="callable", path=_path_of(reference), entry=name, handle=handle)


def integers_of(task: Task) -> tuple[TaskInteger, ...]:
    """The task's sizes: parameters of its maker of inputs that default to an integer."""
    maker = _lookup(task).inputs
    if maker is None:
        return ()
    line = getattr(getattr(maker, "__code__", None), "co_firstlineno", 1)
    return tuple(
        TaskInteger(
            name=parameter.name,
            value=parameter.default,
            line=line,
            status="free",
            why=f"a parameter of {getattr(maker, '__name__', 'inputs')}",
        )
        for parameter in _parameters(maker)
        if type(parameter.default) is int
    )


def instantiate(task: Task, sizes: dict[str, int], seed: int) -> Instance:
    """Bring live callables to life; see :func:`assay.task.instance.instantiate`."""
    live = _lookup(task)
    native = {integer.name: integer.value for integer in integers_of(task) if integer.value is not None}
    unknown = sorted(set(sizes) - set(native))
    if unknown:
        raise TaskError(
            f"no size named {', '.join(unknown)}; there are: {', '.join(native) or 'none'}",
            task.shown,
            "make it a parameter of the function that makes inputs",
        )

    def make_inputs(input_seed: int) -> Arguments:
        if live.inputs is None:
            assert live.example is not None
            return _resampled(live.example, input_seed)
        seed_all(input_seed)
        with user_code("the function that makes inputs", _file_of(live.inputs), task.shown, "correct it"):
            value = live.inputs(**sizes)
        if isinstance(value, dict):
            return Arguments(kwargs=value)
        return Arguments(tuple(value) if isinstance(value, list | tuple) else (value,))

    def make_model(init: Arguments) -> Any:
        if not inspect.isclass(live.reference):
            return live.reference
        file = _file_of(live.reference)
        with user_code(f"{task.entry}.__init__", file, task.shown, "correct the constructor"):
            return init.call(live.reference)

    return Instance(
        task=task,
        sizes=sizes,
        seed=seed,
        init=live.init,
        make_model=make_model,
        make_inputs=make_inputs,
        integers={**native, **sizes},
    )


def _resampled(example: Arguments, seed: int) -> Arguments:
    """The example itself for seed 0; else with the elements of its floating tensors shuffled."""
    generator = torch.Generator().manual_seed(seed)

    def change(_: int, tensor: torch.Tensor) -> torch.Tensor:
        flat = tensor.detach().reshape(-1)
        if seed == 0 or not tensor.is_floating_point() or flat.numel() < 2:
            return tensor.detach().clone().requires_grad_(tensor.requires_grad)
        order = torch.randperm(flat.numel(), generator=generator).to(tensor.device)
        drawn = torch.empty_like(tensor)
        drawn.copy_(flat[order].reshape(tensor.shape))
        return drawn.requires_grad_(tensor.requires_grad)

    return example.map_tensors(change)


def _lookup(task: Task) -> _Live:
    live = _live.get(task.handle or "")
    if live is None:
        raise TaskError(
            "its live functions are not in this process", task.shown, "verify it in the process that made it"
        )
    return live


def _parameters(function: Callable[..., Any]) -> list[inspect.Parameter]:
    try:
        return list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        return []


def _file_of(function: Callable[..., Any]) -> str:
    try:
        return inspect.getsourcefile(function) or ""
    except TypeError:
        return ""


def _path_of(reference: Callable[..., Any]) -> str:
    """``file`` of the reference where Python knows it, for messages."""
    target = reference if inspect.isfunction(reference) or inspect.isclass(reference) else type(reference)
    return _file_of(target)
