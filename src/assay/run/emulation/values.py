"""Interpreted values: numpy arrays wrapped as Triton tensors, as cheaply as can be.

Triton's interpreter builds a type object, two shape tuples and a validated handle for
every operation. Here types are interned: each distinct (scalar type, shape) is described
once and carries a small integer key, so an operation's plan is a dictionary look-up.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import triton.language as tl

from .formats import Array, numpy_dtype

tensor = tl.core.tensor
_new = object.__new__
_keys: dict[tuple[Any, ...], int] = {}
_blocks: dict[tuple[Any, ...], Any] = {}


class Handle:
    """The data behind a tensor: an array whose shape is the tensor's, or (1,) for a scalar."""

    __slots__ = ("_attr", "data", "dtype")

    def __init__(self, data: Array, dtype: tl.dtype, attr: dict[str, Any] | None = None) -> None:
        self.data = data
        self.dtype = dtype
        self._attr = attr

    @property
    def attr(self) -> dict[str, Any]:
        """Hints set by `tl.multiple_of` and its kin; they change nothing."""
        if self._attr is None:
            self._attr = {}
        return self._attr

    def __bool__(self) -> bool:
        return bool(self.data.all())

    def get_element_ty(self) -> tl.dtype:
        """The scalar type at the end of a chain of pointer and block types."""
        dtype = self.dtype
        while hasattr(dtype, "element_ty"):
            dtype = dtype.element_ty
        return dtype

    def clone(self) -> Handle:
        """A handle on a copy of the data."""
        return Handle(self.data.copy(), self.dtype)

    def set_attr(self, key: str, value: Any) -> None:
        """Remember a hint."""
        self.attr[key] = value


def describe(ty: Any) -> int:
    """Intern a type: give it its key and the parts that every tensor of it shares."""
    scalar = ty.scalar
    shape: tuple[int, ...] | None = tuple(ty.shape) if ty.is_block() else None
    # A pointer to a block is a block pointer: it has no numpy data of its own.
    name = (scalar.name, getattr(scalar, "address_space", 0), getattr(scalar, "const", False), shape)
    key = _keys.setdefault(name, len(_keys))
    ty._assay_scalar = scalar
    ty._assay_shape = tl.core.tuple([tl.constexpr(s) for s in shape or ()])
    ty._assay_numel = tl.constexpr(math.prod(shape) if shape else 1)
    ty._assay_key = key
    return key


def key_of(ty: Any) -> int:
    """The type's key: equal for equal types."""
    try:
        key: int = ty._assay_key
    except AttributeError:
        return describe(ty)
    return key


def block_of(scalar: Any, shape: tuple[int, ...]) -> Any:
    """The type of a block; the scalar type itself for the empty shape."""
    if not shape:
        return scalar
    name = (key_of(scalar), shape)
    found = _blocks.get(name)
    if found is None:
        found = _blocks[name] = tl.core.block_type(scalar, list(shape))
        describe(found)
    return found


def make(data: Array, ty: Any) -> Any:
    """A Triton tensor of type `ty` on `data`."""
    try:
        scalar = ty._assay_scalar
    except AttributeError:
        describe(ty)
        scalar = ty._assay_scalar
    t = _new(tensor)
    t.handle = Handle(data, scalar)
    t.shape = ty._assay_shape
    t.numel = ty._assay_numel
    t.type = ty
    t.dtype = scalar
    return t


def initialise(self: Any, handle: Any, ty: Any) -> None:
    """`tensor.__init__` over interned types, for the parts of Triton that construct tensors."""
    try:
        dtype = ty._assay_scalar
    except AttributeError:
        describe(ty)
        dtype = ty._assay_scalar
    self.handle = handle
    self.shape = ty._assay_shape
    self.numel = ty._assay_numel
    self.type = ty
    self.dtype = dtype


def scalar(value: Any, dtype: tl.dtype) -> Any:
    """A scalar tensor of a number, for types that numpy has."""
    return make(np.array([value], dtype=numpy_dtype(dtype)), dtype)


def shape_of(t: Any) -> tuple[int, ...]:
    """Shape as plain integers."""
    return tuple(t.type.shape) if t.type.is_block() else ()
