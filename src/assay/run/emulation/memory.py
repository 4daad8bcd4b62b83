"""Checked memory: each active lane of each access must lie inside a buffer of its launch.

A launch may touch the storages of the tensors passed to it, and storages whose
`data_ptr()` the candidate took (tables of pointers). A lane outside is written down once
per kernel, source line and direction; its store is dropped and its load answers with a
poison, so the process survives and later launches are still seen.
"""

from __future__ import annotations

import ctypes
import os
import sys
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
import triton
from torch.multiprocessing import reductions
from triton._C.libtriton import interpreter as _native

from .formats import Array
from .orders import MOST_CONFLICTS, Conflict, Order

_HERE = os.path.dirname(os.path.abspath(__file__))
_TRITON = os.path.dirname(os.path.abspath(triton.__file__))
_MAX_TAKEN = 4096
_MAX_FAULTS = 256
_SHIFT = {1: 0, 2: 1, 4: 2, 8: 3}

_weak: Any = reductions.StorageWeakRef
_real_data_ptr = torch.Tensor.data_ptr


@dataclass(frozen=True)
class AccessFault:
    """An access outside every buffer of its launch."""

    kernel: str
    """Name of the launched kernel."""
    file: str
    """Source file of the access."""
    line: int
    """Source line of the access."""
    kind: str
    """``read``, ``write``, ``atomic``, or ``misaligned`` for an address no GPU accepts for its type."""
    distance: int
    """Bytes from the nearest legal byte: negative before a buffer's start, positive past its end."""
    argument: int | None
    """Index of the argument whose buffer is nearest; None for a storage known by `data_ptr()`."""
    argument_name: str | None
    """Name of that argument."""
    lanes: int
    """Lanes outside, over all such accesses at this line."""
    launch: int
    """Index of the launch that did it first."""
    program: tuple[int, int, int]
    """Program ids of the first such access."""


class Buffer:
    """Legal bytes [start, end) and the argument they came with."""

    __slots__ = ("_views", "argument", "end", "name", "start")

    def __init__(self, start: int, end: int, argument: int | None = None, name: str | None = None) -> None:
        self.start = start
        self.end = end
        self.argument = argument
        self.name = name
        self._views: dict[np.dtype[Any], Array] = {}

    def view(self, dtype: np.dtype[Any]) -> Array:
        """The bytes as an array of `dtype`."""
        found = self._views.get(dtype)
        if found is None:
            raw: Any = (ctypes.c_uint8 * (self.end - self.start)).from_address(self.start)
            count = (self.end - self.start) // dtype.itemsize
            found = self._views[dtype] = np.frombuffer(raw, dtype=dtype, count=count)
        return found


class Memory:
    """All accesses of interpreted kernels go through here."""

    def __init__(self) -> None:
        self.kernel = ""
        self.launch = 0
        self.program = (0, 0, 0)
        self.poison = 0xFF
        """Byte with which a load outside answers; 0xFF gives NaN for floats, -1 for integers."""
        self.undefined = 0x00
        """Byte for lanes that a masked load without `other` leaves undefined (0 on NVIDIA GPUs)."""
        self.wanted: str | None = None
        """Order of programs that launches run in (see `orders`) where they do not order them themselves; None for
        one program after another."""
        self.order: Order | None = None
        """The order of the launch that runs, if it is another."""
        self.reordered = 0
        """Launches of several programs that ran in the order wanted."""
        self.kept = 0
        """Bytes that were kept for them."""
        self._conflicts: dict[tuple[str, int, str], Conflict] = {}
        self._buffers: list[Buffer] = []
        self._faults: dict[tuple[str, str, int, str], AccessFault] = {}
        self._taken: dict[int, tuple[int, Any]] = {}
        self._extents: dict[int, tuple[int, int]] = {}

    # -- what may be touched

    def declare(self, tensor: torch.Tensor) -> None:
        """From now on only the bytes that `tensor` spans count as legal in its storage."""
        if tensor.numel() == 0:
            return
        size = tensor.element_size()
        start = _real_data_ptr(tensor)
        span = sum((n - 1) * s for n, s in zip(tensor.shape, tensor.stride(), strict=True)) + 1
        self._extents[tensor.untyped_storage().data_ptr()] = (start, start + span * size)

    def forget(self, tensor: torch.Tensor) -> None:
        """Undo `declare` for the tensor's storage."""
        self._extents.pop(tensor.untyped_storage().data_ptr(), None)

    def buffer(self, tensor: torch.Tensor, argument: int | None, name: str | None) -> Buffer:
        """The legal bytes that come with an argument."""
        storage = tensor.untyped_storage()
        start = storage.data_ptr()
        legal = self._extents.get(start)
        if legal is not None:
            return Buffer(*legal, argument, name)
        return Buffer(start, start + storage.nbytes(), argument, name)

    def take(self, tensor: torch.Tensor) -> None:
        """The candidate asked for this tensor's address: kernels may follow it while it lives."""
        storage = tensor.untyped_storage()
        if len(self._taken) >= _MAX_TAKEN:
            self._taken = {k: v for k, v in self._taken.items() if not v[1].expired()}
        if len(self._taken) < _MAX_TAKEN:
            start = storage.data_ptr()
            self._taken[start] = (start + storage.nbytes(), _weak(storage))

    def taken(self) -> list[Buffer]:
        """The storages whose address the candidate took and that still live."""
        buffers = []
        for start, (end, alive) in list(self._taken.items()):
            if alive.expired():
                del self._taken[start]
            else:
                buffers.append(Buffer(*self._extents.get(start, (start, end))))
        return buffers

    def begin(self, kernel: str, launch: int, buffers: list[Buffer], order: Order | None = None) -> None:
        """A launch starts: from now on `buffers` may be touched, by programs in this order."""
        self.kernel, self.launch = kernel, launch
        self._buffers = buffers + self.taken()
        self.order = order
        self.reordered += order is not None

    def end(self) -> None:
        """The launch is over."""
        if self.order is not None:
            self.kept += self.order.bytes
            self.order = None

    # -- checking

    def _place(self, pointers: Array, mask: Array | None, size: int) -> tuple[Buffer, Array] | None:
        """The one buffer that holds every active lane, and the lanes' element indices in it.

        None if there is no such buffer, or if an element is not aligned to its size. Indices
        of inactive lanes mean nothing.
        """
        first = pointers.item(0)
        holder = None
        for buffer in self._buffers:
            if buffer.start <= first < buffer.end:
                holder = buffer
                break
        else:
            if mask is None or not mask.any():
                return None
            first = pointers[mask].item(0)
            for buffer in self._buffers:
                if buffer.start <= first < buffer.end:
                    holder = buffer
                    break
            else:
                return None
        span = holder.end - holder.start - size
        if span < 0 or holder.start % size:
            return None
        # Unsigned: an offset before the start wraps to a huge one.
        offsets = pointers - np.uint64(holder.start)
        if mask is None:
            if np.maximum.reduce(offsets, axis=None) > span:
                return None
        else:
            beyond = offsets > np.uint64(span)
            beyond &= mask
            if beyond.any():
                return None
        if size > 1:
            crooked = np.bitwise_or.reduce(offsets if mask is None else offsets[mask], axis=None)
            if int(crooked) & (size - 1):
                return None
            offsets >>= np.uint64(_SHIFT[size])
        return holder, offsets.view(np.int64)

    def _outside(self, pointers: Array, mask: Array | None, size: int, kind: str) -> Array | None:
        """Lanes that are active and outside, or None when there are none."""
        legal = np.zeros(pointers.shape, dtype=np.bool_)
        for buffer in self._buffers:
            if buffer.end - buffer.start >= size:
                legal |= (pointers >= np.uint64(buffer.start)) & (pointers <= np.uint64(buffer.end - size))
        outside = ~legal if mask is None else mask & ~legal
        if not outside.any():
            crooked = (pointers & np.uint64(size - 1)) != 0
            if mask is not None:
                crooked &= mask
            if crooked.any():
                self._record(pointers[crooked], size, "misaligned")
            return None
        self._record(pointers[outside], size, kind)
        return outside

    def _record(self, pointers: Array, size: int, kind: str) -> None:
        file, line = _candidate_line()
        key = (self.kernel, file, line, kind)
        known = self._faults.get(key)
        if known is not None:
            self._faults[key] = replace(known, lanes=known.lanes + int(pointers.size))
            return
        if len(self._faults) >= _MAX_FAULTS:
            return
        address = int(pointers.reshape(-1)[0])
        best: tuple[int, int, Buffer] | None = None
        for buffer in self._buffers:
            before = address - buffer.start
            past = address + size - buffer.end
            distance = before if before < 0 else max(past, 0)
            if best is None or abs(distance) < best[0]:
                best = (abs(distance), distance, buffer)
        self._faults[key] = AccessFault(
            kernel=self.kernel,
            file=file,
            line=line,
            kind=kind,
            distance=best[1] if best else address,
            argument=best[2].argument if best else None,
            argument_name=best[2].name if best else None,
            lanes=int(pointers.size),
            launch=self.launch,
            program=self.program,
        )

    def faults(self) -> list[AccessFault]:
        """What was found so far, in order of appearance."""
        return list(self._faults.values())

    def reset(self) -> None:
        """Forget what was found, and the order wanted; declared extents and taken addresses stay."""
        self._faults.clear()
        self._conflicts.clear()
        self.wanted, self.order, self.reordered, self.kept = None, None, 0, 0

    def conflicts(self) -> list[Conflict]:
        """Accesses of two programs to one place that nothing orders, once per kernel, line and direction."""
        return list(self._conflicts.values())

    def _conflict(self, kind: str) -> None:
        _, line = _candidate_line()
        key = (self.kernel, line, kind)
        if key not in self._conflicts and len(self._conflicts) < MOST_CONFLICTS:
            self._conflicts[key] = Conflict(self.kernel, line, kind, self.program)

    # -- access

    def load(self, pointers: Array, mask: Array | None, other: Array | None, dtype: np.dtype[Any]) -> Array:
        """Values at `pointers` where `mask`; `other`, or zero, elsewhere."""
        if mask is not None and not mask.any():
            return self._default(pointers.shape, other, dtype)
        place = self._place(pointers, mask, dtype.itemsize)
        if place is not None:
            buffer, indices = place
            found = buffer.view(dtype).take(indices, mode="clip")
            if self.order is not None:
                found, differs = self.order.loaded(buffer, indices, mask, found)
                if differs:
                    self._conflict("read")
            if mask is None:
                return found
            if other is None:
                other = self._default(pointers.shape, None, dtype)
            return np.where(mask, found, other)
        outside = self._outside(pointers, mask, dtype.itemsize, "read")
        other = self._default(pointers.shape, other, dtype)
        if mask is None:
            mask = np.ones(pointers.shape, dtype=np.bool_)
        if outside is not None:
            mask = mask & ~outside
            other = np.where(outside, _filled(pointers.shape, dtype, self.poison), other)
        result: Array = _native.load(pointers, mask, other, dtype)
        return result

    def _default(self, shape: tuple[int, ...], other: Array | None, dtype: np.dtype[Any]) -> Array:
        if other is not None:
            return other
        if self.undefined:
            return _filled(shape, dtype, self.undefined)
        return np.zeros(shape, dtype=dtype)

    def store(self, pointers: Array, values: Array, mask: Array | None) -> None:
        """Write `values` to `pointers` where `mask`."""
        if mask is not None and not mask.any():
            return
        dtype = values.dtype
        place = self._place(pointers, mask, dtype.itemsize)
        if place is not None:
            buffer, indices = place
            if self.order is not None:
                indices = indices.reshape(-1) if mask is None else indices[mask]
                values = values.reshape(-1) if mask is None else values[mask]
                if self.order.stored(buffer, indices, values):
                    self._conflict("write")
                turned = slice(None, None, -1 if self.order.name == "reverse" else 1)
                buffer.view(dtype)[indices[turned]] = values[turned]
            elif mask is None:
                buffer.view(dtype)[indices] = values
            else:
                buffer.view(dtype)[indices[mask]] = values[mask]
            return
        outside = self._outside(pointers, mask, dtype.itemsize, "write")
        if mask is None:
            mask = np.ones(pointers.shape, dtype=np.bool_)
        if outside is not None:
            mask = mask & ~outside
        if self.order is not None:
            self.order.scattered(self._buffers, pointers, mask, dtype.itemsize)
        _native.store(pointers if pointers.flags.writeable else pointers.copy(), values, mask)

    def legal_lanes(self, pointers: Array, mask: Array, size: int) -> Array:
        """The mask of an atomic access without the lanes that are outside."""
        if not mask.any() or self._place(pointers, mask, size) is not None:
            return mask
        outside = self._outside(pointers, mask, size, "atomic")
        return mask if outside is None else mask & ~outside


def _filled(shape: tuple[int, ...], dtype: np.dtype[Any], byte: int) -> Array:
    count = int(np.prod(shape)) * dtype.itemsize
    if dtype == np.bool_:
        return np.full(shape, bool(byte))
    return np.frombuffer(bytes([byte]) * count, dtype=dtype).reshape(shape)


def view_at(address: int, dtype: np.dtype[Any]) -> Array:
    """The one element at an address that was found legal."""
    raw: Any = (ctypes.c_uint8 * dtype.itemsize).from_address(address)
    return np.frombuffer(raw, dtype=dtype)


def _candidate_line() -> tuple[str, int]:
    """File and line of the innermost frame that is neither Triton's nor ours."""
    frame = sys._getframe(1)
    while frame is not None:
        file = frame.f_code.co_filename
        if not (file.startswith((_HERE, _TRITON)) or file.startswith("<")):
            return file, frame.f_lineno
        frame = frame.f_back  # type: ignore[assignment]
    return "<unknown>", 0


def install_data_ptr(memory: Memory) -> None:
    """Let `memory` know which addresses the candidate takes."""
    from .callers import from_library

    def data_ptr(self: torch.Tensor) -> int:
        if not from_library(sys._getframe(1)):
            memory.take(self)
        return _real_data_ptr(self)

    tensor_class: Any = torch.Tensor
    tensor_class.data_ptr = data_ptr
