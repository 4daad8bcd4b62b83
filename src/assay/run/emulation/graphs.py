"""CUDA graphs: what is captured runs once, is written down, and runs again at each replay."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten


class _Recording(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Writes down each operation, with its arguments and the tensors it made."""

    def __init__(self, steps: list[Callable[[], None]]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.steps = steps

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        # wrapping the mode would import the compiler
        return False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        out = func(*args, **kwargs)
        known = {
            t.untyped_storage().data_ptr()
            for t in tree_flatten((args, kwargs))[0]
            if isinstance(t, torch.Tensor)
        }
        made = [t for t in tree_flatten(out)[0] if isinstance(t, torch.Tensor)]
        fresh = [t.untyped_storage().data_ptr() not in known for t in made]
        mutates = func._schema.is_mutable
        if mutates or any(fresh):

            def again() -> None:
                with torch.no_grad():
                    values = [
                        t for t in tree_flatten(func(*args, **kwargs))[0] if isinstance(t, torch.Tensor)
                    ]
                    for old, new, is_fresh in zip(made, values, fresh, strict=True):
                        if is_fresh:
                            old.copy_(new)

            self.steps.append(again)
        return out


class CUDAGraph:
    """A captured piece of work."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self._steps: list[Callable[[], None]] = []
        self._context: Any = None

    def capture_begin(self, *args: Any, **kwargs: Any) -> None:
        """Start capturing."""
        self._context = graph(self)
        self._context.__enter__()

    def capture_end(self) -> None:
        """Stop capturing."""
        self._context.__exit__(None, None, None)

    def replay(self) -> None:
        """Do the captured work again, on the tensors it was captured with."""
        for step in self._steps:
            step()

    def reset(self) -> None:
        """Forget the captured work."""
        self._steps = []

    def pool(self) -> tuple[int, int]:
        """The memory pool's handle."""
        return (0, 0)

    def instantiate(self) -> None:
        """Nothing to prepare."""

    def enable_debug_mode(self) -> None:
        """Nothing to switch on."""


class graph:
    """`with torch.cuda.graph(g)`: capture into `g` what runs inside."""

    capturing: list[Callable[[], None]] | None = None

    def __init__(self, cuda_graph: CUDAGraph, *args: Any, **kwargs: Any) -> None:
        self.cuda_graph = cuda_graph
        self._recording: Any = _Recording(cuda_graph._steps)

    def __enter__(self) -> None:
        self.cuda_graph.reset()
        self._recording.steps = self.cuda_graph._steps
        graph.capturing = self.cuda_graph._steps
        self._recording.__enter__()

    def __exit__(self, *exc: Any) -> None:
        self._recording.__exit__(*exc)
        graph.capturing = None


def capture_launch(step: Callable[[], None]) -> None:
    """Add a kernel launch to the graph being captured, if one is."""
    if graph.capturing is not None:
        graph.capturing.append(step)


def make_graphed_callables(callables: Any, sample_args: Any = None, *args: Any, **kwargs: Any) -> Any:
    """The callables themselves: run eagerly they compute what their graphs would."""
    return callables
