"""Triton's language modules made to work on interpreted values, once for the process.

Triton's interpreter patches its language modules at every launch and every device
function call, and undoes it afterwards, which costs more than most kernels. A worker under
emulation never compiles, so here they are changed for good.
"""

from __future__ import annotations

import functools
import importlib
import inspect
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

import triton
import triton.language as tl
from triton.runtime.jit import JITFunction

from .reduce import Reductions
from .values import initialise, make, tensor

_unwrap = tl.core._unwrap_if_constexpr


def _bind(member: Callable[..., Any], semantic: Any) -> Callable[..., Any]:
    """A builtin with its semantic argument filled in."""
    inner = getattr(member, "__wrapped__", member)

    @functools.wraps(inner)
    def bound(*args: Any, **kwargs: Any) -> Any:
        kwargs["_semantic"] = semantic
        return inner(*args, **kwargs)

    bound._assay_bound = True  # type: ignore[attr-defined]
    setattr(bound, tl.core.TRITON_BUILTIN, True)
    return bound


def _bind_builtins(owner: Any, semantic: Any) -> None:
    for name, member in inspect.getmembers(owner):
        if tl.core.is_builtin(member) and not getattr(member, "_assay_bound", False):
            setattr(owner, name, _bind(member, semantic))


def _modules() -> list[ModuleType]:
    prefix = "triton.language"
    return [
        module
        for name, module in sorted(sys.modules.items())
        if (name == prefix or name.startswith(prefix + ".")) and isinstance(module, ModuleType)
    ]


def _replace_jitted(make_kernel: Callable[[Any], Any]) -> None:
    """Jitted functions of the standard library, compiled or interpreted, become ours."""
    stock = triton.runtime.interpreter.InterpretedFunction
    made: dict[int, Any] = {}

    def ours(function: Any) -> Any:
        key = id(function.fn)
        if key not in made:
            made[key] = make_kernel(function.fn)
        return made[key]

    for module in _modules():
        for name, value in list(vars(module).items()):
            if isinstance(value, (JITFunction, stock)) and not getattr(value, "_assay_kernel", False):
                setattr(module, name, ours(value))

    for name, value in list(vars(tensor).items()):
        if isinstance(value, (JITFunction, stock)):
            setattr(tensor, name, _method(ours(value)))
        elif callable(value) and not tl.core.is_builtin(value):
            # Interpreted at import: the member is a wrapper around the interpreted function.
            replacement = getattr(tl.standard, name, None)
            if getattr(replacement, "_assay_kernel", False):
                setattr(tensor, name, _method(replacement))


def _method(kernel: Any) -> Callable[..., Any]:
    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        return kernel(self, *args, **kwargs)

    method.__name__ = kernel.__name__
    return method


def _operators(semantic: Any) -> dict[str, Callable[..., Any]]:
    """The operator methods of a tensor, straight to the semantic layer."""

    def forward(name: str) -> Callable[..., Any]:
        def operator(self: Any, other: Any) -> Any:
            return semantic._binary(name, self, other)

        return operator

    def backward(name: str) -> Callable[..., Any]:
        def operator(self: Any, other: Any) -> Any:
            return semantic._binary(name, other, self)

        return operator

    methods: dict[str, Callable[..., Any]] = {}
    for python, ours in {
        "add": "add",
        "sub": "sub",
        "mul": "mul",
        "truediv": "truediv",
        "floordiv": "floordiv",
        "mod": "mod",
        "and": "and_",
        "or": "or_",
        "xor": "xor_",
    }.items():
        methods[f"__{python}__"] = forward(ours)
        methods[f"__r{python}__"] = backward(ours)
    for python, ours in {
        "lt": "less_than",
        "le": "less_equal",
        "gt": "greater_than",
        "ge": "greater_equal",
        "eq": "equal",
        "ne": "not_equal",
    }.items():
        methods[f"__{python}__"] = forward(ours)
    return methods


_COMBINERS = {"sum": "_sum_combine", "max": "_elementwise_max", "min": "_elementwise_min"}
_UNARY = ("exp", "exp2", "log", "log2", "sin", "cos", "sqrt", "rsqrt", "erf", "floor", "ceil")
_WIDE = frozenset({"fp32", "fp64", "int32", "uint32", "int64", "uint64"})


def _quick_reduction(kernel: Any, reductions: Reductions, combine_fn: Any) -> Callable[..., Any]:
    """`kernel`, a reduction of Triton's library, without its promotions where there are none."""

    @functools.wraps(kernel.fn)
    def quick(input: Any, axis: Any = None, *args: Any, **kwargs: Any) -> Any:
        if not args and isinstance(input, tensor) and input.dtype.name in _WIDE:
            keep_dims = kwargs.get("keep_dims", False)
            if len(kwargs) == ("keep_dims" in kwargs):
                return reductions.reduce(input, axis, combine_fn, keep_dims)
        return kernel(input, axis, *args, **kwargs)

    quick._assay_kernel = True  # type: ignore[attr-defined]
    quick.fn = kernel.fn  # type: ignore[attr-defined]
    return quick


def _quick_unary(builtin: Any, create: Callable[..., Any]) -> Callable[..., Any]:
    """An elementary function of a float32 or float64 tensor; anything else goes the long way."""

    @functools.wraps(builtin)
    def quick(x: Any, *args: Any, **kwargs: Any) -> Any:
        if type(x) is tensor and x.dtype.name in ("fp32", "fp64"):
            return make(create(x.handle).data, x.type)
        return builtin(x, *args, **kwargs)

    return quick


def _truth(self: Any) -> bool:
    # Triton's own host code asks `if other:` of blocks; rewritten kernel code asks properly.
    data = self.handle.data
    return bool(data.item()) if data.size == 1 else True


def _transpose(self: Any) -> Any:
    return tl.trans(self)


def _static_range(*args: Any, **kwargs: Any) -> range:
    if "step" in kwargs and len(args) < 3:
        args = (args[0], args[1], kwargs["step"]) if len(args) == 2 else (0, args[0], kwargs["step"])
    return range(*(int(_unwrap(a)) for a in args))


def install_language(
    semantic: Any, make_kernel: Callable[[Any], Any], device_range: Callable[..., Any]
) -> None:
    """Change `triton.language` for good (once per process)."""
    portable = importlib.import_module("triton.language.extra.libdevice")
    cuda = importlib.import_module("triton.language.extra.cuda.libdevice")
    for module in _modules():
        if ".extra.hip" not in module.__name__:
            _bind_builtins(module, semantic)
    for owner in (tl.tensor, getattr(tl.core, "tensor_descriptor_base", None)):
        if owner is not None:
            _bind_builtins(owner, semantic)
    semantic._subscript_slowly = tensor.__getitem__
    for name, method in _operators(semantic).items():
        setattr(tensor, name, method)
    tensor.__init__ = initialise
    tensor.__getitem__ = lambda self, slices: semantic.subscript(self, slices)
    tensor.__bool__ = _truth
    tensor.__index__ = lambda self: int(self.handle.data.item())
    tensor.__repr__ = lambda self: repr(self.handle.data)
    tensor.__str__ = lambda self: str(self.handle.data)
    tensor.__hash__ = object.__hash__
    tensor.T = property(_transpose)

    _replace_jitted(make_kernel)

    reductions = Reductions()
    for name in ("sum", "max", "min"):
        quick = _quick_reduction(getattr(tl, name), reductions, getattr(tl.standard, _COMBINERS[name]))
        for owner in (tl, tl.standard, tensor):
            setattr(owner, name, quick)
    for name in _UNARY:
        quick = _quick_unary(getattr(tl.math, name), getattr(semantic.builder, f"create_{name}"))
        for owner in (tl, tl.math, tensor):
            if hasattr(owner, name):
                setattr(owner, name, quick)

    def hint(name: str) -> Callable[..., Any]:
        def give(input: Any, values: Any, **_: Any) -> Any:
            if isinstance(input, tensor):
                values = values if isinstance(values, (list, tuple)) else [values]
                values = [_unwrap(v) for v in values]
                if len(values) != max(1, len(input.shape)):
                    raise ValueError(f"len(values) != len(input.shape) for {name}")
                input.handle.set_attr(name, values)
            return input

        return give

    def static_assert(cond: Any, msg: Any = "", **_: Any) -> None:
        assert _unwrap(cond), _unwrap(msg)

    def static_print(*values: Any, **kwargs: Any) -> None:
        kwargs.pop("_semantic", None)
        print(*values, **kwargs)

    def map_elementwise(scalar_fn: Any, *args: Any, pack: Any = 1, **_: Any) -> Any:
        return semantic.map_scalars(scalar_fn, args, int(_unwrap(pack)))

    replacements = {
        "reduce": reductions.reduce,
        "associative_scan": reductions.scan,
        "range": device_range,
        "static_range": _static_range,
        "static_assert": static_assert,
        "static_print": static_print,
        "multiple_of": hint("tt.divisibility"),
        "max_contiguous": hint("tt.contiguity"),
        "max_constancy": hint("tt.constancy"),
        "map_elementwise": map_elementwise,
    }
    for name, value in replacements.items():
        for module in (tl, tl.core):
            if hasattr(module, name):
                setattr(module, name, value)
    tensor.reduce = lambda self, axis, combine_fn, keep_dims=False: reductions.reduce(
        self, axis, combine_fn, keep_dims
    )
    tensor.associative_scan = lambda self, axis, combine_fn, reverse=False: reductions.scan(
        self, axis, combine_fn, reverse
    )

    for owner in (tl.core.dtype, tl.core.pointer_type, tl.core.block_type):
        owner.to_ir = lambda self, builder: self

    for name in list(vars(portable)):
        replacement = getattr(cuda, name, None)
        if getattr(replacement, "_assay_bound", False):
            setattr(portable, name, replacement)
