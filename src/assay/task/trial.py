"""Trials: a task run once at some sizes, to see what it accepts and what moves."""

from __future__ import annotations

import time
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import torch

from assay.task.instance import Instance, instantiate, seed_all, user_code
from assay.task.limit import AllocationLimit, TooLarge
from assay.task.model import Task, TaskError
from assay.task.tree import Arguments, Path, leaves

Stage = Literal["load", "inputs", "model", "forward", "done"]


@dataclass(frozen=True)
class Trial:
    """What one run of the task at given sizes gave."""

    sizes: dict[str, int]
    """Overridden integers."""
    reached: Stage
    """The stage that failed, or ``done``."""
    error: str = ""
    """What was raised, on one line."""
    too_large: bool = False
    """Stopped by the ceiling on allocations, not by the task."""
    instance: Instance | None = None
    inputs: Arguments | None = None
    model: Any = None
    outputs: Any = None
    seconds: float = 0.0
    """Time of the forward."""
    fault: Exception | None = None
    """What was raised."""
    ceiling: int = 0
    """The ceiling it ran under."""

    @property
    def accepted(self) -> bool:
        """Whether the reference took these sizes."""
        return self.reached == "done"

    def extents(self) -> dict[tuple[str, Path, int], int]:
        """Every extent seen, by (``input`` | ``parameter`` | ``output``, path, dimension)."""
        found: dict[tuple[str, Path, int], int] = {}
        groups: list[tuple[str, list[tuple[Path, Any]]]] = []
        if self.inputs is not None:
            groups.append(("input", self.inputs.leaves()))
        if self.model is not None:
            groups.append(("parameter", [((name,), value) for name, value in state_of(self.model)]))
        if self.accepted:
            groups.append(("output", leaves(self.outputs)))
        for group, items in groups:
            for path, value in items:
                if isinstance(value, torch.Tensor):
                    for dim, extent in enumerate(value.shape):
                        found[(group, path, dim)] = int(extent)
        return found


def state_of(model: Any) -> list[tuple[str, torch.Tensor]]:
    """Parameters and buffers of a reference by name; none for a plain function."""
    if not isinstance(model, torch.nn.Module):
        return []
    return [*model.named_parameters(), *model.named_buffers()]


def forward(instance: Instance, model: Any, inputs: Arguments, seed: int = 0) -> Any:
    """Seed, then call the reference.

    Raises:
        TaskError: it raised.
        MemoryError: memory ran out.
    """
    task = instance.task
    seed_all(seed)
    name = f"{task.entry}.forward" if isinstance(model, torch.nn.Module) else task.entry
    file = getattr(getattr(type(model), "forward", model), "__code__", None)
    with user_code(
        name, file.co_filename if file else "", task.shown, "make forward accept what get_inputs returns"
    ):
        return inputs.call(model)


_HEAVY_MODEL = 1 << 20


class Lab:
    """Runs trials of one task and remembers them, until it has used its seconds.

    Seconds of this process's own work, so that a busy machine does not change what is found.
    """

    def __init__(self, task: Task, budget_s: float, ceiling: int) -> None:
        self.task = task
        self.deadline = time.process_time() + budget_s
        self.ceiling = ceiling
        self._models: dict[str, Any] = {}
        self._seen: dict[tuple[tuple[tuple[str, int], ...], Stage], Trial] = {}

    def extend(self, seconds: float) -> None:
        """Allow at least this many more seconds."""
        self.deadline = max(self.deadline, time.process_time() + seconds)

    @property
    def out_of_time(self) -> bool:
        """Whether the budget is spent."""
        return time.process_time() > self.deadline

    def run(
        self,
        sizes: Mapping[str, int],
        *,
        upto: Stage = "done",
        seed: int = 0,
        ceiling: int | None = None,
        again: bool = False,
    ) -> Trial:
        """Run the task at these sizes, without gradients.

        Args:
            sizes: integers to override.
            upto: the last stage to run; ``inputs`` makes inputs only.
            seed: seed of the inputs.
            ceiling: most elements that its makers may ask for (default: the lab's; 0 for no limit).
            again: run even if these sizes were run before.
        """
        key = (tuple(sorted(sizes.items())), upto)
        limit = self.ceiling if ceiling is None else ceiling
        known = self._seen.get(key)
        if known is None or again or (known.too_large and (not limit or limit > known.ceiling)):
            with warnings.catch_warnings():
                # unusual sizes make torch warn; it says nothing about the task as it is
                warnings.simplefilter("ignore")
                self._seen[key] = self._run(dict(sizes), upto, seed, limit)
        return self._seen[key]

    def _model(self, instance: Instance) -> Any:
        """A reference with these constructor arguments; heavy ones are made once and used again.

        The integers that vary are none that the reference reads, so equal arguments make equal references.
        """
        key = repr(instance.init)
        known = self._models.get(key)
        if known is not None:
            return known
        model = instance.build()
        plain = all(isinstance(value, bool | int | float | str | None) for _, value in instance.init.leaves())
        if plain and sum(tensor.numel() for _, tensor in state_of(model)) > _HEAVY_MODEL:
            self._models = {key: model}
        return model

    def _run(self, sizes: dict[str, int], upto: Stage, seed: int, ceiling: int) -> Trial:
        stage: Stage = "load"
        instance: Instance | None = None
        inputs: Arguments | None = None
        model: Any = None
        try:
            with AllocationLimit(ceiling, plain_weights=True), torch.enable_grad():
                instance = instantiate(self.task, sizes)
                stage = "inputs"
                inputs = instance.inputs(seed)
                if upto == "inputs":
                    return Trial(sizes, "inputs", instance=instance, inputs=inputs)
                stage = "model"
                model = self._model(instance)
                if upto == "model":
                    return Trial(sizes, "model", instance=instance, inputs=inputs, model=model)
            stage = "forward"
            with torch.no_grad():
                started = time.perf_counter()
                outputs = forward(instance, model, inputs)
                seconds = time.perf_counter() - started
            return Trial(sizes, "done", "", False, instance, inputs, model, outputs, seconds)
        except (TaskError, MemoryError) as error:
            large = isinstance(error, TooLarge) or isinstance(error.__cause__, TooLarge)
            text = str(error) or type(error).__name__
            return Trial(sizes, stage, text, large, instance, inputs, model, fault=error, ceiling=ceiling)
