"""Trees of inputs and outputs: nested lists, tuples, dicts and their leaves, with a path for each leaf.

Leaves come in the order in which ``assay.run.codec`` numbers tensors: depth first, dicts in their own order.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import torch

Path: TypeAlias = tuple[int | str, ...]


@dataclass(frozen=True)
class Arguments:
    """Positional and keyword arguments of one call."""

    args: tuple[Any, ...] = ()
    kwargs: dict[str, Any] = field(default_factory=dict)

    def call(self, function: Callable[..., Any]) -> Any:
        """``function(*args, **kwargs)``."""
        return function(*self.args, **self.kwargs)

    def leaves(self) -> list[tuple[Path, Any]]:
        """Leaves of the arguments; a path starts with the position or the keyword."""
        return [*leaves(self.args), *leaves(self.kwargs)]

    def tensors(self) -> list[torch.Tensor]:
        """The tensor leaves, in order."""
        return [value for _, value in self.leaves() if isinstance(value, torch.Tensor)]

    def map_tensors(self, change: Callable[[int, torch.Tensor], torch.Tensor]) -> Arguments:
        """The same arguments with each tensor leaf replaced by ``change(position, tensor)``."""
        position = -1

        def visit(value: Any) -> Any:
            nonlocal position
            if not isinstance(value, torch.Tensor):
                return value
            position += 1
            return change(position, value)

        args = tuple(map_leaves(visit, value) for value in self.args)
        return Arguments(args, {key: map_leaves(visit, value) for key, value in self.kwargs.items()})


def leaves(tree: Any, path: Path = ()) -> list[tuple[Path, Any]]:
    """All leaves of a tree with their paths; anything that is no container is a leaf."""
    if isinstance(tree, Mapping):
        items: list[tuple[int | str, Any]] = [
            (key if isinstance(key, int | str) else str(key), value) for key, value in tree.items()
        ]
    elif isinstance(tree, list | tuple) and not isinstance(tree, torch.Size):
        items = list(enumerate(tree))
    else:
        return [(path, tree)]
    return [leaf for key, value in items for leaf in leaves(value, (*path, key))]


def map_leaves(change: Callable[[Any], Any], tree: Any) -> Any:
    """A tree of the same containers, with every leaf replaced by ``change(leaf)``."""
    if isinstance(tree, Mapping):
        mapped = {key: map_leaves(change, value) for key, value in tree.items()}
        if type(tree) is dict:
            return mapped
        try:
            return type(tree)(mapped)  # type: ignore[call-arg]
        except TypeError:
            return mapped
    if isinstance(tree, torch.Size):
        return change(tree)
    if isinstance(tree, tuple):
        items = [map_leaves(change, value) for value in tree]
        if hasattr(tree, "_fields"):
            return type(tree)(*items)
        return tuple(items) if type(tree) is tuple else type(tree)(items)
    if isinstance(tree, list):
        return [map_leaves(change, value) for value in tree]
    return change(tree)


def show_path(path: Path, root: str) -> str:
    """``inputs[0]["mask"]`` for path (0, "mask") under root ``inputs``."""
    return root + "".join(f"[{key!r}]" if isinstance(key, str) else f"[{key}]" for key in path)
