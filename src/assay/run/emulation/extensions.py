"""Ways to bring kernels into torch that name CUDA: custom operators and C++ extensions."""

from __future__ import annotations

import functools
import importlib.abc
import importlib.machinery
import importlib.util
import inspect
import sys
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any

import torch

from .errors import NeedsGpu

EXTENSION = "torch.utils.cpp_extension"


_ON_CPU = {"CUDA": "CPU", "AutogradCUDA": "AutogradCPU"}
"""Dispatch keys by which the tensors of the emulated device are dispatched."""


def _install_operators() -> None:
    """Have what is registered for CUDA called for the emulated device's tensors, whatever is registered for the CPU.

    All ways to register end in `Library.impl`.
    """
    library: Any = torch.library
    implement = library.Library.impl
    overrides = "allow_override" in inspect.signature(implement).parameters
    taken: set[tuple[str, str, str]] = set()

    @functools.wraps(implement)
    def impl(self: Any, op_name: Any, fn: Any, dispatch_key: str = "", **kwargs: Any) -> Any:
        key = str(dispatch_key or self.dispatch_key)
        name = op_name if isinstance(op_name, str) else f"{op_name._schema.name}.{op_name._schema.overload_name}"
        operator = self.ns, name.split("::")[-1].removesuffix(".")
        if key in _ON_CPU:
            taken.add((*operator, _ON_CPU[key]))
            if overrides:
                # one for the CPU may be there already
                kwargs["allow_override"] = True
            return implement(self, op_name, fn, _ON_CPU[key], **kwargs)
        if (*operator, key) in taken:
            return None
        return implement(self, op_name, fn, dispatch_key, **kwargs)

    begin = library.Library.__init__

    @functools.wraps(begin)
    def made(self: Any, ns: Any, kind: Any, dispatch_key: str = "") -> None:
        begin(self, ns, kind, _ON_CPU.get(dispatch_key, dispatch_key))
        self.dispatch_key = dispatch_key

    library.Library.__init__, library.Library.impl = made, impl
    # Outside tracing these hand back the kernel; with a kernel that is not compiled they would refuse it.
    library.wrap_triton = lambda kernel: kernel


def _refuse_cuda(module: Any) -> None:
    """Make building a CUDA extension say what it needs."""
    load_inline, load = module.load_inline, module.load

    @functools.wraps(load_inline)
    def checked_inline(
        name: str, cpp_sources: Any, cuda_sources: Any = None, *args: Any, **kwargs: Any
    ) -> Any:
        if cuda_sources or kwargs.get("with_cuda"):
            raise NeedsGpu("torch.utils.cpp_extension.load_inline", "its CUDA sources cannot run here")
        return load_inline(name, cpp_sources, cuda_sources, *args, **kwargs)

    @functools.wraps(load)
    def checked_load(name: str, sources: Any, *args: Any, **kwargs: Any) -> Any:
        files = [sources] if isinstance(sources, str) else list(sources)
        if kwargs.get("with_cuda") or any(str(f).endswith((".cu", ".cuh")) for f in files):
            raise NeedsGpu("torch.utils.cpp_extension.load", "its CUDA sources cannot run here")
        return load(name, sources, *args, **kwargs)

    module.load_inline, module.load = checked_inline, checked_load


class _AfterImport(importlib.abc.MetaPathFinder):
    """Changes a module when it is first imported."""

    def __init__(self, name: str, change: Callable[[Any], None]) -> None:
        self._name, self._change = name, change

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """Its ordinary spec, with a loader that changes the module afterwards."""
        if fullname != self._name:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(fullname)
        if spec is not None and spec.loader is not None:
            loader: Any = spec.loader
            execute: Callable[[ModuleType], None] = loader.exec_module

            def exec_module(module: ModuleType) -> None:
                execute(module)
                self._change(module)

            loader.exec_module = exec_module
        return spec


def after_import(name: str, change: Callable[[Any], None]) -> None:
    """Change a module: at once where it is imported, else when it is. Importing it early costs a quarter second."""
    if name in sys.modules:
        change(sys.modules[name])
    else:
        sys.meta_path.insert(0, _AfterImport(name, change))


def install_extensions() -> None:
    """Make operators for CUDA run on CPU tensors, and CUDA extensions say that they need a GPU."""
    _install_operators()
    after_import(EXTENSION, _refuse_cuda)
    guards: Any = torch._C._dynamo.guards
    guards._empty_strided_cuda = lambda size, stride, dtype: torch.empty_strided(size, stride, dtype=dtype)
