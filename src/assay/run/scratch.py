"""Scratch memory: the most bytes that torch held at once for a call, beyond its inputs and its outputs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

MAX_EVENTS = 200_000


class Scratch(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Follows every storage that torch operations make, from the operation that made it until it is freed.

    What one operation of torch takes inside itself, and what a kernel's own shared memory holds, is not seen.
    Memory that outlives a call, such as a buffer kept for the next one, counts in the call that made it.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._live: dict[int, tuple[StorageWeakRef, int, int]] = {}
        self._events: list[tuple[int, int]] = []
        self._number = 0

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        # nothing is compiled here, and wrapping the mode would import the compiler
        return False

    def reset(self) -> None:
        """Forget what earlier calls made."""
        self._live, self._events, self._number = {}, [], 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        given = {_key(t) for t in tree_leaves((args, kwargs)) if _dense(t)}
        out = func(*args, **kwargs)
        if len(self._events) < MAX_EVENTS:
            self._sweep()
            for tensor in tree_leaves(out):
                if _dense(tensor) and (key := _key(tensor)) not in given and key not in self._live:
                    self._add(key, tensor.untyped_storage())
        return out

    def _add(self, key: int, storage: torch.UntypedStorage) -> None:
        self._number += 1
        self._live[key] = (StorageWeakRef(storage), self._number, storage.nbytes())  # type: ignore[no-untyped-call]
        self._events.append((self._number, storage.nbytes()))

    def _sweep(self) -> None:
        """Write down what has been freed since the last operation."""
        gone = [key for key, (ref, _, _) in self._live.items() if ref.expired()]  # type: ignore[no-untyped-call]
        for key in gone:
            _, number, size = self._live.pop(key)
            self._events.append((number, -size))

    def peak(self, outputs: Sequence[torch.Tensor]) -> int:
        """Most bytes held at once since the reset, those of the outputs left out."""
        returned = {_key(t) for t in outputs if _dense(t)}
        kept = {number for key, (_, number, _) in self._live.items() if key in returned}
        held = most = 0
        for number, change in self._events:
            if number not in kept:
                held += change
                most = max(most, held)
        return most


def _key(tensor: torch.Tensor) -> int:
    return int(tensor.untyped_storage()._cdata)


def _dense(value: Any) -> bool:
    """Whether a value is a tensor with memory that can be followed."""
    return (type(value) in (torch.Tensor, torch.nn.Parameter) and value.layout is torch.strided
            and value.device.type in ("cpu", "cuda"))
