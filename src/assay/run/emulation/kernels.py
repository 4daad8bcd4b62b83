"""Jitted kernels as candidates hold them: launch, warm up, introspect."""

from __future__ import annotations

import dataclasses
import functools
import inspect
import threading
from collections import defaultdict
from collections.abc import Callable
from types import FunctionType, SimpleNamespace
from typing import Any

import numpy as np
import torch
import triton
import triton.language as tl
from triton._utils import type_canonicalisation_dict
from triton.runtime import interpreter
from triton.runtime.jit import JITFunction, TensorWrapper, _normalize_ty
from triton.tools.tensor_descriptor import TensorDescriptor

from . import cuda
from .builder import Builder
from .errors import NeedsGpu
from .graphs import capture_launch
from .launches import Launch, Recorder
from .memory import Buffer, Memory, _real_data_ptr
from .rewrite import helpers_for, rewrite
from .semantic import Semantic
from .tensors import _real_device, on_host
from .values import make

try:
    from triton._utils import _tuple_create
except ImportError:  # before it moved there
    from triton.runtime.interpreter import _tuple_create

_GRID_LIMITS = (2**31 - 1, 65535, 65535)
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


class Machine:
    """Everything that interpreted kernels of this process share."""

    def __init__(self) -> None:
        self.memory = Memory()
        self.builder = Builder(self.memory)
        self.semantic = Semantic(self.builder, self.memory)
        self.recorder = Recorder()
        self.helpers = helpers_for(self.semantic)
        self.lock = threading.RLock()
        self._pointers: dict[tuple[Any, bool], Any] = {}

    @functools.cached_property
    def options(self) -> frozenset[str]:
        """Launch options that the compiler for NVIDIA GPUs knows."""
        from triton.backends.nvidia.compiler import CUDAOptions

        names = {field.name for field in dataclasses.fields(CUDAOptions)}
        return frozenset(names | {"device", "device_type", "stream", "debug", "instrumentation_mode"})

    def pointer_type(self, dtype: Any, const: bool) -> Any:
        """Pointer to elements of a torch or Triton dtype."""
        key = (dtype, const)
        found = self._pointers.get(key)
        if found is None:
            element = dtype if isinstance(dtype, tl.dtype) else _DTYPES.get(dtype)
            if element is None:
                raise TypeError(f"failed to specialize argument of type: torch.Tensor of {dtype}")
            found = self._pointers[key] = tl.pointer_type(element, const=const)
        return found


@dataclasses.dataclass(frozen=True)
class _Parameter:
    name: str
    constexpr: bool
    const: bool
    dtype: Any
    default: Any
    specialize: bool


class _Bound:
    """Arguments of one launch on their way to the kernel."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.buffers: list[Buffer] = []
        self.values: dict[str, Any] = {}
        self.signature: dict[str, str] = {}
        self.constexprs: dict[str, Any] = {}

    def add(self, index: int, parameter: _Parameter, value: Any) -> None:
        if parameter.constexpr:
            while isinstance(value, tl.constexpr):
                value = value.value
            self.values[parameter.name] = value
            self.constexprs[parameter.name] = _plain(value)
            return
        converted, signature = self._convert(value, parameter, index)
        self.values[parameter.name] = converted
        self.signature[parameter.name] = signature
        if signature == "constexpr":
            self.constexprs[parameter.name] = _plain(converted)

    def _convert(self, value: Any, parameter: _Parameter, index: int) -> tuple[Any, str]:
        if isinstance(value, torch.Tensor):
            return self._pointer(value, value.dtype, parameter, index)
        if isinstance(value, TensorWrapper):
            dtype = value.dtype
            return self._pointer(value.base, dtype, parameter, index)
        if isinstance(value, bool):
            dtype = parameter.dtype or tl.int1
            return self.machine.semantic.scalar_constant(value, dtype), "u1"
        if isinstance(value, int):
            if value == 1 and parameter.specialize:
                # The compiler takes the integer 1 for a constant; it has no methods then.
                return 1, "constexpr"
            dtype = parameter.dtype or _int_type(value)
            return self.machine.semantic.scalar_constant(value, dtype), _short(dtype)
        if isinstance(value, float):
            dtype = parameter.dtype or tl.float32
            return self.machine.semantic.scalar_constant(value, dtype), _short(dtype)
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
            pointer = self.machine.pointer_type(value.dtype, parameter.const)
            address = np.array([value.data_ptr()], dtype=np.uint64)
            return make(address, pointer), f"*{_short(pointer.element_ty)}"
        raise TypeError(f"failed to specialize argument of type: {type(value).__name__}")

    def _pointer(self, value: torch.Tensor, dtype: Any, parameter: _Parameter, index: int) -> tuple[Any, str]:
        if on_host(value) or _real_device(value).type != "cpu":
            raise ValueError(f"Pointer argument (at {index}) cannot be accessed from Triton (cpu tensor?)")
        pointer = self.machine.pointer_type(dtype, parameter.const)
        self.buffers.append(self.machine.memory.buffer(value, index, parameter.name))
        data = np.array([_real_data_ptr(value)], dtype=np.uint64)
        return make(data, pointer), f"*{_short(pointer.element_ty)}"

    def _descriptor(self, value: Any, parameter: _Parameter, index: int) -> tuple[Any, str]:
        base, signature = self._convert(value.base, parameter, index)
        semantic = self.machine.semantic
        strides = [semantic.to_tensor(int(s)) for s in value.strides]
        strides[-1] = tl.constexpr(1)
        builder = self.machine.builder
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


def _short(dtype: Any) -> str:
    name = dtype.name
    result: str = {"int1": "i1"}.get(name, name.replace("uint", "u").replace("int", "i"))
    return result


def _plain(value: Any) -> Any:
    """A compile-time value as something that can be kept and sent: numbers, strings, text."""
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, (tuple, list)):
        return tuple(_plain(v) for v in value)
    if isinstance(value, tl.dtype):
        return value.name
    return getattr(value, "__name__", None) or repr(value)


class CompiledKernel:
    """Stands for what a launch or a warm-up returns on a GPU.

    Registers and shared memory are placeholders: nothing was compiled. Launching it again
    with another grid works as there.
    """

    def __init__(self, kernel: Any, constexprs: dict[str, Any], options: dict[str, Any]) -> None:
        self._kernel = kernel
        self._constexprs = constexprs
        self._options = options
        self.name = kernel.__name__
        self.n_regs = 32
        self.n_spills = 0
        self.n_max_threads = 1024
        self.metadata = SimpleNamespace(
            name=kernel.__name__,
            shared=1024,
            num_warps=options.get("num_warps", 4),
            num_stages=options.get("num_stages", 3),
            num_ctas=options.get("num_ctas", 1) or 1,
            target=triton.runtime.driver.active.get_current_target(),
        )
        self.shared = self.metadata.shared
        self.num_warps = self.metadata.num_warps

    def _init_handles(self) -> None:
        """Nothing to load."""

    def result(self) -> CompiledKernel:
        """The kernel itself, as a finished compilation."""
        return self

    @property
    def asm(self) -> Any:
        """Raise: nothing was compiled."""
        raise NeedsGpu("the assembly of a compiled kernel")

    def __getitem__(self, grid: Any) -> Callable[..., Any]:
        def launch(*args: Any, **kwargs: Any) -> Any:
            missing = {k: v for k, v in self._constexprs.items() if k not in kwargs}
            names = self._kernel.arg_names
            given = len(args)
            if given < len(names):
                missing = {k: v for k, v in missing.items() if names.index(k) >= given}
            else:
                missing = {}
            return self._kernel.run(*args, grid=grid, warmup=False, **missing, **self._options, **kwargs)

        return launch


def kernel_class(machine: Machine) -> type:
    """The class that `triton.jit` makes under emulation."""

    class Kernel(interpreter.InterpretedFunction):  # type: ignore[misc]
        """A jitted function."""

        _assay_kernel = True

        def __init__(self, fn: FunctionType, **kwargs: Any) -> None:
            self.fn = fn
            self.kwargs = kwargs
            self.pre_run_hooks: list[Callable[..., Any]] = []
            self.__doc__ = fn.__doc__
            self.__module__ = fn.__module__
            self.__qualname__ = fn.__qualname__
            parameters = inspect.signature(fn).parameters.values()
            self.arg_names = [p.name for p in parameters]
            fixed = set(kwargs.get("do_not_specialize") or ())
            self._parameters = [_parameter(p, not ({i, p.name} & fixed)) for i, p in enumerate(parameters)]
            self.constexprs = [i for i, p in enumerate(self._parameters) if p.constexpr]
            self.cache: dict[int, Any] = defaultdict(dict)
            self.hash = None

        @functools.cached_property
        def device_caches(self) -> Any:
            """No compiled kernels."""
            return defaultdict(lambda: ({}, {}, None, None, None))

        @functools.cached_property
        def _body(self) -> Callable[..., Any]:
            return rewrite(self.fn, machine.helpers)

        @functools.cached_property
        def _compiled_view(self) -> Any:
            return JITFunction(self.fn)

        def __getattr__(self, name: str) -> Any:
            if name.startswith("_"):
                raise AttributeError(name)
            return getattr(self._compiled_view, name)

        @property
        def __name__(self) -> str:
            return self.fn.__name__

        def __call__(self, *args: Any, **kwargs: Any) -> Any:
            kwargs.pop("_semantic", None)
            kwargs.pop("_generator", None)
            return self._body(*args, **kwargs)

        def __getitem__(self, grid: Any) -> Callable[..., Any]:
            return functools.partial(self.run, grid=grid, warmup=False)

        def rewrite(self) -> Callable[..., Any]:
            """The function as interpreted."""
            return self._body

        def run(self, *args: Any, grid: Any, warmup: bool, **kwargs: Any) -> Any:
            """Launch on `grid`, or only pretend to compile.

            Raises:
                ValueError, TypeError, KeyError: as Triton does for arguments it cannot take.
            """
            given, options = self._bind(args, kwargs)
            if warmup:
                constexprs = {
                    p.name: given[p.name] for p in self._parameters if p.constexpr and p.name in given
                }
                return CompiledKernel(self, constexprs, options)
            for hook in self.pre_run_hooks:
                hook(*args, **kwargs)
            with machine.lock:
                self._launch(given, options, grid)
            capture_launch(functools.partial(self._launch, given, options, grid))
            return CompiledKernel(self, {}, options)

        def _bind(
            self, args: tuple[Any, ...], kwargs: dict[str, Any]
        ) -> tuple[dict[str, Any], dict[str, Any]]:
            names = self.arg_names
            if len(args) > len(names):
                raise TypeError(
                    f"dynamic_func() takes {len(names)} positional arguments but {len(args)} were given"
                )
            given = dict(zip(names, args, strict=False))
            options: dict[str, Any] = {}
            for name, value in kwargs.items():
                if name in names:
                    if name in given:
                        raise TypeError(f"dynamic_func() got multiple values for argument '{name}'")
                    given[name] = value
                elif name in machine.options:
                    options[name] = value
                else:
                    raise KeyError(f"Keyword argument {name} was specified but unrecognised")
            missing = []
            for parameter in self._parameters:
                if parameter.name not in given:
                    if parameter.default is inspect.Parameter.empty:
                        missing.append(parameter.name)
                    else:
                        given[parameter.name] = parameter.default
            if missing:
                raise TypeError(
                    f"dynamic_func() missing {len(missing)} required positional argument"
                    f"{'s' if len(missing) > 1 else ''}: {', '.join(map(repr, missing))}"
                )
            warps = options.get("num_warps")
            if warps is not None and (warps < 1 or warps & (warps - 1)):
                raise AssertionError("num_warps must be a power of 2")
            return {name: given[name] for name in names}, options

        def _launch(self, given: dict[str, Any], options: dict[str, Any], grid: Any) -> None:
            sizes = _grid(grid, given)
            bound = _Bound(machine)
            for index, parameter in enumerate(self._parameters):
                bound.add(index, parameter, given[parameter.name])
            launch = Launch(
                index=machine.recorder.total,
                kernel=self.fn.__name__,
                file=self.fn.__code__.co_filename,
                line=self.fn.__code__.co_firstlineno,
                grid=sizes,
                constexprs=bound.constexprs,
                options={k: _plain(v) for k, v in options.items()},
                signature=bound.signature,
                stream=cuda.current_stream_id(),
            )
            programs = 0
            error: BaseException | None = None
            builder, values, body = machine.builder, bound.values, self._body
            builder.dots.clear()
            machine.memory.begin(launch.kernel, launch.index, bound.buffers)
            builder.set_grid_dim(*sizes)
            object.__setattr__(builder.options, "num_warps", options.get("num_warps") or 4)
            try:
                with np.errstate(all="ignore"):
                    for x in range(sizes[0]):
                        for y in range(sizes[1]):
                            for z in range(sizes[2]):
                                builder.set_program(x, y, z)
                                body(**values)
                                programs += 1
            except BaseException as caught:
                error = caught
                raise
            finally:
                machine.recorder.add(
                    dataclasses.replace(
                        launch,
                        programs=programs,
                        completed=error is None,
                        error=None if error is None else f"{type(error).__name__}: {error}"[:500],
                        dots=tuple((*key, count) for key, count in sorted(builder.dots.items())),
                    )
                )

    return Kernel


def _parameter(parameter: inspect.Parameter, specialize: bool) -> _Parameter:
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
    return _Parameter(parameter.name, constexpr, const, dtype, parameter.default, specialize)


def _grid(grid: Any, given: dict[str, Any]) -> tuple[int, int, int]:
    """The grid as three sizes.

    Raises:
        RuntimeError: if a size is beyond what the driver accepts.
    """
    if callable(grid):
        grid = grid(given)
    sizes = tuple(grid)
    if len(sizes) > 3:
        raise ValueError(f"grid must have at most 3 dimensions, got {len(sizes)}")
    padded = (*sizes, *(1,) * (3 - len(sizes)))
    checked = []
    for size, limit in zip(padded, _GRID_LIMITS, strict=True):
        if not isinstance(size, (int, np.integer)):
            raise TypeError(f"grid sizes must be integers, got {type(size).__name__}")
        if size > limit or size < 0:
            raise RuntimeError("Triton Error [CUDA]: invalid argument")
        checked.append(int(size))
    return checked[0], checked[1], checked[2]


def map_scalars(machine: Machine, function: Any, args: Any, pack: int) -> Any:
    """`tl.map_elementwise`: `function` on each element, `pack` elements a call."""
    semantic = machine.semantic
    inputs = semantic.broadcast_tensors(*args)
    shape = inputs[0].handle.data.shape
    flat = [np.ascontiguousarray(t.handle.data).reshape(-1) for t in inputs]
    outputs: list[Any] = []
    dtypes: list[Any] = []
    single = True
    for start in range(0, flat[0].size, pack):
        scalars = [
            make(data[start + j : start + j + 1], t.dtype)
            for data, t in zip(flat, inputs, strict=True)
            for j in range(pack)
        ]
        results = function(*scalars)
        single = not isinstance(results, (tuple, list, tl.core.tuple))
        results = [semantic.to_tensor(r) for r in ([results] if single else results)]
        if not outputs:
            dtypes = [r.dtype for r in results[::pack]]
            outputs = [np.empty(flat[0].size, dtype=r.handle.data.dtype) for r in results[::pack]]
        for k, result in enumerate(results):
            outputs[k // pack][start + k % pack] = result.handle.data[0]
    from .values import block_of

    sizes = tuple(inputs[0].type.shape) if inputs[0].type.is_block() else ()
    made = [make(o.reshape(shape), block_of(d, sizes)) for o, d in zip(outputs, dtypes, strict=True)]
    return made[0] if single else tuple(made)
