"""Other orders in which a GPU may run the programs of one launch, for kernels that do not order them themselves.

Programs of a launch run at the same time, so that without atomics nothing orders what one of them stores and another
loads or stores at the same place. Two orders show what depends on that:

- `reverse`: the last program first, and of one store the last lane first;
- `snapshot`: every program sees memory as it was at the start of the launch, and what it has stored itself.

Both are among what a GPU may do. A kernel whose results differ in them has a race.
"""

from __future__ import annotations

import ast
import inspect
import textwrap
from dataclasses import dataclass
from types import CodeType, FunctionType
from typing import Any, Protocol

import numpy as np

from .formats import Array

ORDERS = ("reverse", "snapshot")
MOST_CONFLICTS = 20
MOST_BYTES = 1 << 24
"""Bytes of one buffer up to which it is watched."""
MOST_KEPT = 1 << 28
"""Bytes that may be kept for all launches of a probe; what is launched after that runs in the usual order."""


@dataclass(frozen=True)
class Conflict:
    """Two programs at one place, at least one of them storing, that nothing orders."""

    kernel: str
    """Name of the launched kernel."""
    line: int
    """Source line of the later access."""
    kind: str
    """`read` of what another program stores, or `write` of another value than it stored."""
    program: tuple[int, int, int]
    """Program ids of the later access."""


class Bytes(Protocol):
    """Where the bytes of a buffer are."""

    start: int
    end: int

    def view(self, dtype: np.dtype[Any]) -> Array:
        """The bytes as an array of `dtype`."""


class _Watched:
    """One buffer's bytes at the start of a launch, and the program that stored each last."""

    def __init__(self, buffer: Bytes) -> None:
        self.before = buffer.view(np.dtype(np.uint8)).copy()
        self.owner = np.full(self.before.size, -1, np.int32)

    def old(self, dtype: np.dtype[Any]) -> Array:
        return np.frombuffer(self.before, dtype=dtype, count=self.before.size // dtype.itemsize)

    def owners(self, size: int) -> Array:
        """Per element of some size the owners of its bytes, shape (elements, size)."""
        count = self.owner.size // size
        return self.owner[: count * size].reshape(count, size)


class Order:
    """The order of one launch's programs.

    Args:
        name: one of `ORDERS`.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.turn = 0
        """Number of the program that runs, from 0 in the grid's own order."""
        self.bytes = 0
        """Bytes that were kept of buffers."""
        self._watched: dict[int, _Watched | None] = {}

    def _written(self, buffer: Bytes) -> _Watched | None:
        """What is known of a buffer that is about to be stored into: the first time it is as the launch found it."""
        if buffer.start not in self._watched:
            size = buffer.end - buffer.start
            self._watched[buffer.start] = _Watched(buffer) if size <= MOST_BYTES else None
            self.bytes += min(size, MOST_BYTES)
        return self._watched[buffer.start]

    def loaded(self, buffer: Bytes, indices: Array, mask: Array | None, found: Array) -> tuple[Array, bool]:
        """What a load brings in this order, and whether others' stores changed what is there, where the mask is.

        `found` is what memory holds now.
        """
        watched = self._watched.get(buffer.start)
        if watched is None:
            return found, False
        dtype = found.dtype
        old = watched.old(dtype).take(indices, mode="clip")
        mine = watched.owners(dtype.itemsize).take(indices, axis=0, mode="clip")[..., 0] == self.turn
        bits = np.dtype(f"u{dtype.itemsize}")
        differs = ~mine & (old.view(bits) != np.ascontiguousarray(found).view(bits))
        if mask is not None:
            differs &= mask
        return np.where(mine, found, old) if self.name == "snapshot" else found, bool(differs.any())

    def stored(self, buffer: Bytes, indices: Array, values: Array) -> bool:
        """Note the lanes that are about to be stored; whether other programs stored other values there."""
        watched = self._written(buffer)
        if watched is None:
            return False
        size = values.dtype.itemsize
        owners = watched.owners(size)
        before = owners[indices][..., 0]
        others = (before >= 0) & (before != self.turn)
        clash = False
        if others.any():
            bits = np.dtype(f"u{size}")
            held = np.ascontiguousarray(buffer.view(values.dtype)[indices]).view(bits)
            clash = bool((others & (held != np.ascontiguousarray(values).view(bits))).any())
        owners[indices] = self.turn
        return clash


    def scattered(self, buffers: list[Any], pointers: Array, mask: Array, size: int) -> None:
        """Note a store whose lanes lie in several buffers."""
        for buffer in buffers:
            inside = mask & (pointers >= np.uint64(buffer.start)) & (pointers <= np.uint64(buffer.end - size))
            watched = self._written(buffer) if inside.any() else None
            if watched is not None:
                offsets = (pointers[inside] - np.uint64(buffer.start)).astype(np.int64)
                for byte in range(size):
                    watched.owner[offsets + byte] = self.turn


def orders_itself(kernel: Any, is_kernel: Any) -> bool:
    """Whether a kernel, or one that it calls, may make its programs wait for one another.

    Atomics, volatile and uncached loads, loads in a `while` loop and inline assembly can; without them nothing in
    Triton does. A kernel whose code cannot be seen counts as one that does.

    Args:
        kernel: the jitted function.
        is_kernel: whether a value is a jitted function too.
    """
    seen: set[int] = set()
    waiting = [kernel]
    while waiting:
        function = getattr(waiting.pop(), "fn", None)
        if not isinstance(function, FunctionType):
            return True
        if id(function) in seen:
            continue
        seen.add(id(function))
        names: set[str] = set()
        if _orders(function.__code__, names) or _waits(function):
            return True
        held = dict(function.__globals__)
        for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=False):
            try:
                held[name] = cell.cell_contents
            except ValueError:
                continue
        for name in names & set(held):
            value = held[name]
            if is_kernel(value):
                waiting.append(value)
            elif type(value).__name__ == "module":
                waiting += [v for n, v in vars(value).items() if n in names and is_kernel(v)]
    return False


def _orders(code: CodeType, names: set[str]) -> bool:
    names |= {*code.co_names, *code.co_freevars}
    if any(name.startswith("atomic_") or name.startswith("inline_asm") for name in code.co_names):
        return True
    for constant in code.co_consts:
        if isinstance(constant, CodeType) and _orders(constant, names):
            return True
        # names of keyword arguments stand there as a tuple, cache modifiers as text
        if (isinstance(constant, tuple) and "volatile" in constant) or constant in (".cv", ".cg"):
            return True
    return False


def _waits(function: FunctionType) -> bool:
    """Whether it loads in a `while` loop, as for what another program is to store."""
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
    except (OSError, TypeError, SyntaxError):
        return True
    loops = (node for node in ast.walk(tree) if isinstance(node, ast.While))
    return any(isinstance(n, ast.Attribute) and n.attr == "load" for loop in loops for n in ast.walk(loop))
