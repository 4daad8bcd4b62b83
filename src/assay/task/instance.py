"""A task brought to life at given sizes: constructor arguments, the model, and its inputs by seed.

Runs the task's own code, so it belongs in the reference worker.
"""

from __future__ import annotations

import random
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import torch

from assay.task.model import Task, TaskError
from assay.task.tree import Arguments

DEFAULT_SEED = 42


@dataclass(frozen=True)
class Instance:
    """A task at given sizes."""

    task: Task
    sizes: dict[str, int]
    """The integers that were overridden."""
    seed: int
    """Seed set before the constructor's arguments were made, and before each model is."""
    init: Arguments
    """Constructor arguments."""
    make_model: Callable[[Arguments], Any] = field(repr=False)
    make_inputs: Callable[[int], Arguments] = field(repr=False)
    integers: dict[str, int] = field(default_factory=dict)
    """Values that the module-level integers really have here."""

    @property
    def init_args(self) -> tuple[Any, ...]:
        """Positional constructor arguments."""
        return self.init.args

    @property
    def init_kwargs(self) -> dict[str, Any]:
        """Keyword constructor arguments."""
        return self.init.kwargs

    @cached_property
    def model(self) -> Any:
        """The reference, made once, right after its seed was set; see :meth:`build` for a fresh one."""
        return self.build()

    def build(self, seed: int | None = None) -> Any:
        """A fresh reference: the seed is set, then the constructor is called.

        Raises:
            TaskError: the constructor raised, or does not take these arguments.
            MemoryError: it does not fit in memory.
        """
        seed_all(self.seed if seed is None else seed)
        return self.make_model(self.init)

    def inputs(self, seed: int) -> Arguments:
        """Inputs of one forward: the seed is set, then the task's own generator is called.

        Raises:
            TaskError: the generator raised, or returned something that is no list of inputs.
            MemoryError: they do not fit in memory.
        """
        return self.make_inputs(seed)


def instantiate(task: Task, sizes: Mapping[str, int] | None = None, seed: int = DEFAULT_SEED) -> Instance:
    """Bring a task to life, with some of its integers overridden.

    Raises:
        TaskError: the task's code raised, or an integer of that name does not exist.
        MemoryError: it does not fit in memory.
    """
    if task.format == "callable":
        from assay.task.callables import instantiate as load
    else:
        from assay.task.kernelbench import instantiate as load
    return load(task, dict(sizes or {}), seed)


def seed_all(seed: int) -> None:
    """Seed torch (also CUDA where in use), numpy and ``random``."""
    torch.manual_seed(seed)
    random.seed(seed)
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        numpy.random.seed(seed % 2**32)


@contextmanager
def user_code(doing: str, file: str, shown: str, todo: str) -> Iterator[None]:
    """Turn what task code raises into a TaskError that names the line; lets MemoryError through.

    Args:
        doing: name of the function being called, such as ``get_inputs()``.
        file: the file that really ran.
        shown: what to call that file.
        todo: advice to the author.
    """
    try:
        yield
    except (TaskError, MemoryError, KeyboardInterrupt):
        raise
    except BaseException as error:
        if out_of_memory(error):
            raise MemoryError(str(error)) from None
        raise TaskError(
            f"{doing} raised {type(error).__name__}: {str(error).strip() or 'no message'}",
            f"{shown}:{_line_of(error, file)}",
            todo,
        ) from error


def out_of_memory(error: BaseException) -> bool:
    """Whether an exception says that memory ran out."""
    if isinstance(error, MemoryError | torch.OutOfMemoryError):
        return True
    text = str(error).lower()
    return isinstance(error, RuntimeError) and (
        "not enough memory" in text or "can't allocate memory" in text or "out of memory" in text
    )


def _line_of(error: BaseException, file: str) -> int:
    """The deepest line of ``file`` in a traceback, or 1."""
    if isinstance(error, SyntaxError) and error.lineno:
        return error.lineno
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == file]
    return next((line for line in reversed(lines) if line), 1)
