"""From what a candidate passes to a launch to what the kernel sees."""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import triton.language as tl
from triton._utils import type_canonicalisation_dict
from triton.runtime import interpreter
from triton.runtime.jit import TensorWrapper, _normalize_ty
from triton.tools.tensor_descriptor import TensorDescriptor

from .builder import Builder
from .memory import Buffer, Memory, _real_data_ptr
from .semantic import Semantic
from .tensors import _real_device, on_host
from .values import make

try:
    from triton._utils import _tuple_create
except ImportError:  # before it moved there
    from triton.runtime.interpreter import _tuple_create

_DTYPES = {
    torch.float16: tl.float16,
    torch.bfloat16: tl.bfloat16,
    torch.float32: tl.float32,
    torch.float64: tl.float64,
    torch.int8: tl.int8,
    torch.int16: tl.int16,
    torch.int32: tl.int32,
    torch.int64: tl.int64,
    torch.uint8: tl.uint8,
    torch.uint16: tl.uint16,
    torch.uint32: tl.uint32,
    torch.uint64: tl.uint64,
    torch.bool: tl.int1,
    torch.float8_e5m2: tl.float8e5,
    torch.float8_e4m3fn: tl.float8e4nv,
    torch.float8_e4m3fnuz: tl.float8e4b8,
    torch.float8_e5m2fnuz: tl.float8e5b16,
}


_pointers: dict[tuple[Any, bool], Any] = {}


def pointer_type(dtype: Any, const: bool) -> Any:
    """Pointer to elements of a torch or Triton dtype.

    Raises:
        TypeError: for a dtype that Triton does not have.
    """
    key = (dtype, const)
    found = _pointers.get(key)
    if found is None:
        element = dtype if isinstance(dtype, tl.dtype) else _DTYPES.get(dtype)
        if element is None:
            raise TypeError(f"failed to specialize argument of type: torch.Tensor of {dtype}")
        found = _pointers[key] = tl.pointer_type(element, const=const)
    return found


@dataclass(frozen=True)
class Parameter:
    """A parameter of a kernel, and what its annotation says."""

    name: str
    constexpr: bool
    const: bool
    dtype: Any
    default: Any
    specialize: bool


class Arguments:
    """Arguments of one launch on their way to the kernel."""

    def __init__(self, semantic: Semantic, builder: Builder, memory: Memory) -> None:
        self.semantic = semantic
        self.builder = builder
        self.memory = memory
        self.buffers: list[Buffer] = []
        self.values: dict[str, Any] = {}
        self.signature: dict[str, str] = {}
        self.constexprs: dict[str, Any] = {}

    def add(self, index: int, parameter: Parameter, value: Any) -> None:
        """Take the next argument.

        Raises:
            TypeError, ValueError, OverflowError: as Triton does for what it cannot pass.
        """
        if parameter.constexpr:
            while isinstance(value, tl.constexpr):
                value = value.value
            self.values[parameter.name] = value
            self.constexprs[parameter.name] = plain(value)
            return
        converted, signature = self._convert(value, parameter, index)
        self.values[parameter.name] = converted
        self.signature[parameter.name] = signature
        if signature == "constexpr":
            self.constexprs[parameter.name] = plain(converted)

    def _convert(self, value: Any, parameter: Parameter, index: int) -> tuple[Any, str]:
        if isinstance(value, torch.Tensor):
            return self._pointer(value, value.dtype, parameter, index)
        if isinstance(value, TensorWrapper):
            dtype = value.dtype
            return self._pointer(value.base, dtype, parameter, index)
        if isinstance(value, bool):
            dtype = parameter.dtype or tl.int1
            return self.semantic.scalar_constant(value, dtype), "u1"
        if isinstance(value, int):
            if value == 1 and parameter.specialize:
                # The compiler takes the integer 1 for a constant; it has no methods then.
                return 1, "constexpr"
            dtype = parameter.dtype or _int_type(value)
            return self.semantic.scalar_constant(value, dtype), short_name(dtype)
        if isinstance(value, float):
            dtype = parameter.dtype or tl.float32
            return self.semantic.scalar_constant(value, dtype), short_name(dtype)
        if value is None:
            return None, "constexpr"
        if isinstance(value, tuple):
            pairs = [self._convert(v, parameter, index) for v in value]
            return _tuple_create(value, [p[0] for p in pairs]), f"({', '.join(p[1] for p in pairs)})"
        if isinstance(value, TensorDescriptor):
            return self._descriptor(value, parameter, index)
        if isinstance(value, tl.constexpr):
            return value.value, "constexpr"
        if isinstance(value, (tl.dtype, interpreter.InterpretedFunction, str)):
            return value, "constexpr"
        if hasattr(value, "data_ptr") and hasattr(value, "dtype"):
            # Triton takes anything with an address; the address is legal once a tensor gave it.
            pointer = pointer_type(value.dtype, parameter.const)
            address = np.array([value.data_ptr()], dtype=np.uint64)
            return make(address, pointer), f"*{short_name(pointer.element_ty)}"
        raise TypeError(f"failed to specialize argument of type: {type(value).__name__}")

    def _pointer(self, value: torch.Tensor, dtype: Any, parameter: Parameter, index: int) -> tuple[Any, str]:
        if on_host(value) or _real_device(value).type != "cpu":
            raise ValueError(f"Pointer argument (at {index}) cannot be accessed from Triton (cpu tensor?)")
        pointer = pointer_type(dtype, parameter.const)
        self.buffers.append(self.memory.buffer(value, index, parameter.name))
        data = np.array([_real_data_ptr(value)], dtype=np.uint64)
        return make(data, pointer), f"*{short_name(pointer.element_ty)}"

    def _descriptor(self, value: Any, parameter: Parameter, index: int) -> tuple[Any, str]:
        base, signature = self._convert(value.base, parameter, index)
        semantic = self.semantic
        strides = [semantic.to_tensor(int(s)) for s in value.strides]
        strides[-1] = tl.constexpr(1)
        builder = self.builder
        in_memory, builder.descriptors_in_memory = builder.descriptors_in_memory, False
        try:
            descriptor = semantic.make_tensor_descriptor(
                base=base,
                shape=[semantic.to_tensor(int(s)) for s in value.shape],
                strides=strides,
                block_shape=[tl.constexpr(int(b)) for b in value.block_shape],
                padding_option=getattr(value, "padding", "zero"),
            )
        finally:
            builder.descriptors_in_memory = in_memory
        return descriptor, f"tensordesc<{signature[1:]}{[int(b) for b in value.block_shape]}>"


def _int_type(value: int) -> Any:
    if -(2**31) <= value < 2**31:
        return tl.int32
    if -(2**63) <= value < 2**63:
        return tl.int64
    if value < 2**64:
        return tl.uint64
    raise OverflowError(f"integer argument {value} does not fit 64 bits")


def short_name(dtype: Any) -> str:
    """The dtype as signatures write it: ``i32`` for int32."""
    name = dtype.name
    result: str = {"int1": "i1"}.get(name, name.replace("uint", "u").replace("int", "i"))
    return result


def plain(value: Any) -> Any:
    """A compile-time value as something that can be kept and sent: numbers, strings, text."""
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, (tuple, list)):
        return tuple(plain(v) for v in value)
    if isinstance(value, tl.dtype):
        return value.name
    return getattr(value, "__name__", None) or repr(value)


def parameter_of(parameter: inspect.Parameter, specialize: bool) -> Parameter:
    """What a kernel's signature says of one parameter."""
    annotation = parameter.annotation
    text = "" if annotation is inspect.Parameter.empty else _normalize_ty(annotation)
    constexpr = "constexpr" in text
    const = not constexpr and ("const" in text or text.startswith("*k"))
    canonical = type_canonicalisation_dict.get(text, text)
    dtype = None
    if not constexpr and canonical in set(type_canonicalisation_dict.values()):
        try:
            dtype = tl.str_to_ty(canonical, None)
        except TypeError:  # one argument in older releases
            dtype = tl.str_to_ty(canonical)
        except Exception:
            dtype = None
    specialize = specialize and dtype is None
    return Parameter(parameter.name, constexpr, const, dtype, parameter.default, specialize)
