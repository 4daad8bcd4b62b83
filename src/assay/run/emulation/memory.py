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
from torch.multiprocessing.reductions import StorageWeakRef
from triton._C.libtriton import interpreter as _native

from .formats import Array

_HERE = os.path.dirname(os.path.abspath(__file__))
_TRITON = os.path.dirname(os.path.abspath(triton.__file__))
_MAX_TAKEN = 4096
_MAX_FAULTS = 256

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
    """``read``, ``write`` or ``atomic``."""
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


@dataclass(frozen=True)
class Buffer:
    """Legal bytes [start, end) and the argument they came with."""

    start: int
    end: int
    argument: int | None = None
    name: str | None = None


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
        self._buffers: list[Buffer] = []
        self._low = self._high = 0
        self._faults: dict[tuple[str, str, int, str], AccessFault] = {}
        self._taken: dict[int, tuple[int, StorageWeakRef]] = {}
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
            self._taken[start] = (start + storage.nbytes(), StorageWeakRef(storage))

    def begin(self, kernel: str, launch: int, buffers: list[Buffer]) -> None:
        """A launch starts: from now on `buffers` may be touched."""
        self.kernel, self.launch = kernel, launch
        for start, (end, alive) in list(self._taken.items()):
            if alive.expired():
                del self._taken[start]
            else:
                buffers.append(Buffer(*self._extents.get(start, (start, end))))
        self._buffers = buffers
        self._low = self._high = 0

    # -- checking

    def _outside(self, pointers: Array, mask: Array | None, size: int, kind: str) -> Array | None:
        """Lanes that are active and outside, or None when there are none."""
        active = pointers
        if mask is not None:
            active = pointers[mask]
            if active.size == 0:
                return None
        if active.size == 1:
            low = high = int(active.item())
        else:
            low = int(np.minimum.reduce(active, axis=None))
            high = int(np.maximum.reduce(active, axis=None))
        if self._low <= low and high + size <= self._high:
            return None
        for buffer in self._buffers:
            if buffer.start <= low and high + size <= buffer.end:
                self._low, self._high = buffer.start, buffer.end
                return None
        legal = np.zeros(pointers.shape, dtype=np.bool_)
        for buffer in self._buffers:
            if buffer.end - buffer.start >= size:
                legal |= (pointers >= np.uint64(buffer.start)) & (pointers <= np.uint64(buffer.end - size))
        outside = ~legal if mask is None else mask & ~legal
        if not outside.any():
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
        """Forget what was found; declared extents and taken addresses stay."""
        self._faults.clear()

    # -- access

    def load(self, pointers: Array, mask: Array | None, other: Array | None, dtype: np.dtype[Any]) -> Array:
        """Values at `pointers` where `mask`; `other`, or zero, elsewhere."""
        outside = self._outside(pointers, mask, dtype.itemsize, "read")
        if other is None:
            if self.undefined and mask is not None:
                other = _filled(pointers.shape, dtype, self.undefined)
            else:
                other = np.zeros(pointers.shape, dtype=dtype)
        if mask is None:
            mask = np.ones(pointers.shape, dtype=np.bool_)
        if outside is not None:
            mask = mask & ~outside
            poison = _filled(pointers.shape, dtype, self.poison)
            other = np.where(outside, poison, other)
        result: Array = _native.load(pointers, mask, other, dtype)
        return result

    def store(self, pointers: Array, values: Array, mask: Array | None) -> None:
        """Write `values` to `pointers` where `mask`."""
        outside = self._outside(pointers, mask, values.dtype.itemsize, "write")
        if mask is None:
            mask = np.ones(pointers.shape, dtype=np.bool_)
        if outside is not None:
            mask = mask & ~outside
        _native.store(pointers, values, mask)

    def legal_lanes(self, pointers: Array, mask: Array, size: int) -> Array:
        """The mask of an atomic access without the lanes that are outside."""
        outside = self._outside(pointers, mask, size, "atomic")
        return mask if outside is None else mask & ~outside


def _filled(shape: tuple[int, ...], dtype: np.dtype[Any], byte: int) -> Array:
    count = int(np.prod(shape)) * dtype.itemsize
    if dtype == np.bool_:
        return np.full(shape, bool(byte))
    return np.frombuffer(bytes([byte]) * count, dtype=dtype).reshape(shape)


def view_at(address: int, dtype: np.dtype[Any]) -> Array:
    """The one element at an address that was found legal."""
    return np.frombuffer((ctypes.c_uint8 * dtype.itemsize).from_address(address), dtype=dtype)


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

    torch.Tensor.data_ptr = data_ptr  # type: ignore[method-assign]
