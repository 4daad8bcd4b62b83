"""Jitted kernels as candidates hold them: launch, warm up, introspect."""

from __future__ import annotations

import dataclasses
import functools
import inspect
import itertools
import math
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator
from types import FunctionType
from typing import Any

import numpy as np
import triton.language as tl
from triton.runtime import interpreter
from triton.runtime.jit import JITFunction

from . import cuda
from .arguments import Arguments, parameter_of, plain
from .builder import Builder
from .compiled import CompiledKernel
from .graphs import capture_launch
from .launches import Launch, Recorder
from .memory import Memory
from .orders import MOST_KEPT, Order, orders_itself
from .rewrite import helpers_for, rewrite
from .semantic import Semantic
from .values import block_of, make

_GRID_LIMITS = (2**31 - 1, 65535, 65535)


class Machine:
    """Everything that interpreted kernels of this process share."""

    def __init__(self) -> None:
        self.memory = Memory()
        self.builder = Builder(self.memory)
        self.semantic = Semantic(self.builder, self.memory)
        self.recorder = Recorder()
        self.helpers = helpers_for(self.semantic)
        self.lock = threading.RLock()

    @functools.cached_property
    def options(self) -> frozenset[str]:
        """Launch options that the compiler for NVIDIA GPUs knows."""
        from triton.backends.nvidia.compiler import CUDAOptions

        names = {field.name for field in dataclasses.fields(CUDAOptions)}
        return frozenset(names | {"device", "device_type", "stream", "debug", "instrumentation_mode"})


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
            self._parameters = [parameter_of(p, not ({i, p.name} & fixed)) for i, p in enumerate(parameters)]
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

        @functools.cached_property
        def _orders_itself(self) -> bool:
            return orders_itself(self, lambda value: isinstance(value, Kernel))

        def _order(self, sizes: tuple[int, int, int], given: dict[str, Any]) -> Order | None:
            """The order wanted, where there are programs to order and they do not wait for one another."""
            wanted = machine.memory.wanted
            if not wanted or math.prod(sizes) < 2 or self._orders_itself or machine.memory.kept > MOST_KEPT:
                return None
            # one that is handed another function may do what that does
            return None if any(isinstance(value, Kernel) for value in given.values()) else Order(wanted)

        def _launch(self, given: dict[str, Any], options: dict[str, Any], grid: Any) -> None:
            sizes = _grid(grid, given)
            bound = Arguments(machine.semantic, machine.builder, machine.memory)
            for index, parameter in enumerate(self._parameters):
                bound.add(index, parameter, given[parameter.name])
            launch = Launch(
                index=machine.recorder.total,
                kernel=self.fn.__name__,
                file=self.fn.__code__.co_filename,
                line=self.fn.__code__.co_firstlineno,
                grid=sizes,
                constexprs=bound.constexprs,
                options={k: plain(v) for k, v in options.items()},
                signature=bound.signature,
                stream=cuda.current_stream_id(),
            )
            programs = 0
            error: BaseException | None = None
            builder, values, body = machine.builder, bound.values, self._body
            builder.dots.clear()
            order = self._order(sizes, given)
            machine.memory.begin(launch.kernel, launch.index, bound.buffers, order)
            builder.set_grid_dim(*sizes)
            object.__setattr__(builder.options, "num_warps", options.get("num_warps") or 4)
            try:
                with np.errstate(all="ignore"):
                    for x, y, z in _programs(sizes, order):
                        builder.set_program(x, y, z)
                        body(**values)
                        programs += 1
            except BaseException as caught:
                error = caught
                raise
            finally:
                machine.memory.end()
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


def _programs(sizes: tuple[int, int, int], order: Order | None) -> Iterator[tuple[int, int, int]]:
    """Ids of the programs, in the order that they run in."""
    grid = itertools.product(range(sizes[0]), range(sizes[1]), range(sizes[2]))
    if order is None:
        yield from grid
        return
    numbered = list(enumerate(grid))
    for number, program in reversed(numbered) if order.name == "reverse" else numbered:
        order.turn = number
        yield program


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
    sizes = tuple(inputs[0].type.shape) if inputs[0].type.is_block() else ()
    made = [make(o.reshape(shape), block_of(d, sizes)) for o, d in zip(outputs, dtypes, strict=True)]
    return made[0] if single else tuple(made)
