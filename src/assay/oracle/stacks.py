"""Perturbed versions of tensors, kept storage by storage: k copies beside every storage that a rounding reached."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch.multiprocessing.reductions import StorageWeakRef

from assay.oracle.arithmetic import is_real_or_complex

_PURGE_BYTES = 1 << 27


class NeedsSerial(BaseException):
    """The reference reads a rounded value back into Python, so perturbed runs must go one at a time.

    Derives from BaseException so that a reference which catches Exception does not swallow it.
    """


@dataclasses.dataclass
class Ranking:
    """How an index tensor was chosen: which keys an operator ranked, along which dimension."""

    keys: torch.Tensor
    """Exact float64 or integer keys, the operator's input."""
    stack: torch.Tensor | None
    """Perturbed keys, shape (k, *keys.shape), or None when they are exact."""
    dim: int
    """Ranked dimension; -1 with flat keys where the operator ranks the flattened tensor."""
    first: bool
    """Whether the operator documents that the first of equal entries is returned."""
    descending: bool
    """Whether larger keys come first."""
    shape: torch.Size
    """Shape of the index tensor as the operator returned it, with the ranked dimension kept."""
    nominal: torch.dtype
    """Dtype in which a native kernel holds the keys."""


@dataclasses.dataclass
class Pending:
    """Noise that a fresh tensor is due, drawn when its versions are first asked for: those of an output never are."""

    out: torch.Tensor
    """The tensor, equal in all runs until then; an alias of its own, because views may be taken in place."""
    amount: float
    """Standard deviation relative to each element, or 0."""
    deviation: torch.Tensor | None
    """Standard deviation of each element, broadcastable, or None for a relative one."""


class Record:
    """What the replay knows of one storage."""

    __slots__ = ("entries", "nominal", "pending", "ranking", "ref", "stack", "stored", "tiled", "unrounded")

    def __init__(self, storage: torch.UntypedStorage) -> None:
        self.ref: Any = StorageWeakRef(storage)  # type: ignore[no-untyped-call]
        self.stack: torch.Tensor | None = None
        self.nominal: torch.dtype | None = None
        self.ranking: Ranking | None = None
        self.unrounded: torch.Tensor | None = None
        self.stored: str | None = None
        self.entries: torch.Tensor | None = None
        self.pending: Pending | None = None
        self.tiled: torch.Tensor | None = None


def tensors_in(values: Iterable[Any]) -> Iterable[torch.Tensor]:
    """Tensors among arguments, lists of arguments included."""
    for value in values:
        if isinstance(value, torch.Tensor):
            yield value
        elif isinstance(value, list | tuple):
            for item in value:
                if isinstance(item, torch.Tensor):
                    yield item


def map_tensors(value: Any, fn: Callable[[torch.Tensor], Any]) -> Any:
    """Apply `fn` to tensors in an argument, lists and tuples included."""
    if isinstance(value, torch.Tensor):
        return fn(value)
    if isinstance(value, list | tuple):
        items = [fn(v) if isinstance(v, torch.Tensor) else v for v in value]
        return type(value)(*items) if hasattr(value, "_fields") else type(value)(items)
    return value


def storage_key(t: torch.Tensor) -> int:
    """What names the storage of a tensor, as long as it lives."""
    return int(t.untyped_storage()._cdata)


def is_narrow(t: torch.Tensor) -> bool:
    """Whether a tensor is floating or complex and not of double precision."""
    return is_real_or_complex(t.dtype) and t.dtype not in (torch.float64, torch.complex128)


class Stacks:
    """What is known of each storage, its perturbed versions above all."""

    def __init__(self, runs: int) -> None:
        """Keep `runs` versions."""
        self.runs = runs
        self.table: dict[int, Record] = {}
        self._bytes = 0

    def record(self, t: torch.Tensor) -> Record:
        """The record of the storage of `t`, made if missing."""
        key = storage_key(t)
        found = self.table.get(key)
        if found is None:
            found = self.table[key] = Record(t.untyped_storage())
        return found

    def has_stack(self, t: torch.Tensor) -> bool:
        """Whether the perturbed runs hold other values of `t` than the exact run."""
        found = self.table.get(storage_key(t))
        return found is not None and found.stack is not None

    def stack(self, t: torch.Tensor, rank: int | None = None) -> torch.Tensor | None:
        """Perturbed versions of `t`, shape (k, *t.shape), or None where they are all equal to `t`.

        With `rank`, leading dimensions of size 1 are inserted after k so that stacks of different ranks
        broadcast as the tensors themselves do. The result is a live view: writing to it writes the runs.
        """
        found = self.table.get(storage_key(t))
        if found is None or found.stack is None:
            return None
        buffer = found.stack
        if buffer.dtype != t.dtype:
            buffer = buffer.view(t.dtype)
        pad = (rank - t.dim()) if rank is not None else 0
        size = (buffer.shape[0], *(1,) * pad, *t.shape)
        stride = (buffer.shape[1], *(0,) * pad, *t.stride())
        view = buffer.as_strided(size, stride, t.storage_offset())
        if t.is_conj():
            view = view.conj()
        return torch._neg_view(view) if t.is_neg() else view

    def attach(self, t: torch.Tensor, stacked: torch.Tensor) -> None:
        """Make `stacked`, shape (k, *t.shape), the perturbed versions of the fresh tensor `t`."""
        found = self.record(t)
        found.pending = None
        elements = t.untyped_storage().nbytes() // max(1, t.element_size())
        fresh = t.is_contiguous() and elements == t.numel() and t.storage_offset() == 0
        if fresh and stacked.is_contiguous() and stacked.dtype == t.dtype:
            found.stack = stacked.view(stacked.shape[0], elements)
        else:
            buffer = torch.zeros((stacked.shape[0], elements), dtype=t.dtype, device=t.device)
            shape, stride = (stacked.shape[0], *t.shape), (elements, *t.stride())
            buffer.as_strided(shape, stride, t.storage_offset()).copy_(stacked)
            found.stack = buffer
        self._bytes += found.stack.numel() * found.stack.element_size()
        if self._bytes > _PURGE_BYTES:
            self._purge()

    def materialise(self, t: torch.Tensor) -> torch.Tensor:
        """Stack of `t`, made of equal copies if it had none, so that the runs can be written separately."""
        if not self.has_stack(t):
            found = self.record(t)
            elements = t.untyped_storage().nbytes() // max(1, t.element_size())
            flat = t.as_strided((elements,), (1,), 0)
            found.stack = flat.expand(self.runs, elements).clone()
        view = self.stack(t)
        assert view is not None
        return view

    def forget(self, t: torch.Tensor) -> None:
        """Drop what was known of the values in the storage of `t`, which has been overwritten."""
        found = self.table.get(storage_key(t))
        if found is not None:
            found.stack = None
            found.pending = None
            found.ranking = None
            found.unrounded = None
            found.stored = None

    def _purge(self) -> None:
        dead = [key for key, found in self.table.items() if found.ref.expired()]
        for key in dead:
            del self.table[key]
        self._bytes = sum(
            found.stack.numel() * found.stack.element_size()
            for found in self.table.values()
            if found.stack is not None
        )
