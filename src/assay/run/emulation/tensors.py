"""Tensors that say they lie on the GPU.

All memory is host memory. A tensor counts as a GPU tensor unless the candidate itself put
it on the host (`.cpu()`, `.to("cpu")`, `device="cpu"`, `.pin_memory()`): such a tensor is
marked, copies are made where a GPU would copy, and launching a kernel on it fails as it
would there. A tensor made without naming a device counts as a GPU tensor, because its
maker (a module's constructor, say) may be moved as a whole later.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import Any

import torch

from .callers import from_library

_CUDA = torch.device("cuda", 0)
_CPU = torch.device("cpu")
_HOST_MARK = "_assay_on_host"

_NEW_METHODS = ("new_empty", "new_zeros", "new_ones", "new_full", "new_tensor", "new_empty_strided")
_LIKE_FUNCTIONS = (
    "empty_like",
    "zeros_like",
    "ones_like",
    "full_like",
    "rand_like",
    "randn_like",
    "randint_like",
    "normal",
    "frombuffer",
    "empty_permuted",
    "complex",
    "eye",
)

_tensor: Any = torch.Tensor
_real_device = torch._C.TensorBase.device.__get__


def on_host(tensor: torch.Tensor) -> bool:
    """Whether a candidate put this tensor on the host explicitly."""
    return _HOST_MARK in getattr(tensor, "__dict__", ())


def device_of(tensor: torch.Tensor) -> torch.device:
    """The device a GPU run would give for `tensor`: ``cuda:0``, or the true one for host and meta."""
    real: torch.device = _real_device(tensor)
    return _CUDA if real.type == "cpu" and not on_host(tensor) else real


def map_device(device: Any) -> Any:
    """The device to hand to torch instead of `device`; None stays None.

    Raises:
        RuntimeError: for a GPU index other than 0, as the driver would.
    """
    if device is None or isinstance(device, bool):
        return device
    parsed = torch.device("cuda", device) if isinstance(device, int) else torch.device(device)
    if parsed.type != "cuda":
        return parsed
    if parsed.index not in (None, 0):
        raise RuntimeError(f"CUDA error: invalid device ordinal {parsed.index} (one device is emulated)")
    return _CPU


def _mark(result: Any, host: bool) -> Any:
    if isinstance(result, torch.Tensor):
        if host:
            result.__dict__[_HOST_MARK] = True
        else:
            result.__dict__.pop(_HOST_MARK, None)
    return result


def _asks_for_host(device: Any, frame: Any) -> bool:
    if device is None or isinstance(device, int):
        return False
    return torch.device(device).type == "cpu" and not from_library(frame)


def _wrap_factory(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def factory(*args: Any, **kwargs: Any) -> Any:
        device = kwargs.get("device")
        if device is None:
            return original(*args, **kwargs)
        kwargs["device"] = map_device(device)
        result = original(*args, **kwargs)
        if _asks_for_host(device, sys._getframe(1)):
            if any(result is a for a in args):
                result = result.clone()
            _mark(result, True)
        return result

    return factory


def _install_factories() -> None:
    from torch.jit import _builtins
    from torch.utils import _device

    # The device context decides by identity of the original functions: let it take its list first.
    constructors = _device._device_constructors()
    names = {f.__name__ for f in constructors} | set(_LIKE_FUNCTIONS)
    jit: Any = _builtins
    table = jit._get_builtin_table()
    for name in sorted(names):
        owner, attribute = (torch.fft, name[4:]) if name.startswith("fft_") else (torch, name)
        original = getattr(owner, attribute, None)
        if original is None:
            continue
        wrapped = _wrap_factory(original)
        builtin = jit._find_builtin(original)
        if builtin is not None:
            table[id(wrapped)] = builtin
        setattr(owner, attribute, wrapped)
    for name in _NEW_METHODS:
        setattr(torch.Tensor, name, _wrap_factory(getattr(torch.Tensor, name)))


def _install_properties() -> None:
    def is_cuda(self: torch.Tensor) -> bool:
        real: torch.device = _real_device(self)
        if real.type != "cpu" or from_library(sys._getframe(1)):
            return real.type == "cuda"
        return _HOST_MARK not in self.__dict__

    def is_cpu(self: torch.Tensor) -> bool:
        real: torch.device = _real_device(self)
        if real.type != "cpu" or from_library(sys._getframe(1)):
            return real.type == "cpu"
        return _HOST_MARK in self.__dict__

    def device(self: torch.Tensor) -> torch.device:
        real: torch.device = _real_device(self)
        if real.type != "cpu" or from_library(sys._getframe(1)) or _HOST_MARK in self.__dict__:
            return real
        return _CUDA

    def get_device(self: torch.Tensor) -> int:
        return 0 if device_of(self).type == "cuda" else -1

    _tensor.is_cuda = property(is_cuda)
    _tensor.is_cpu = property(is_cpu)
    _tensor.device = property(device)
    _tensor.get_device = get_device


def _install_moves() -> None:
    original_to = torch.Tensor.to
    original_cpu = torch.Tensor.cpu
    original_type = torch.Tensor.type

    @functools.wraps(original_to)
    def to(self: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        wanted = kwargs.get("device")
        position = None
        if wanted is None and args:
            first = args[0]
            if isinstance(first, (str, torch.device)) or type(first) is int:
                wanted, position = first, 0
            elif isinstance(first, torch.Tensor):
                wanted = device_of(first)
                args = (first.dtype, *args[1:])
        if wanted is None:
            result = original_to(self, *args, **kwargs)
            return _mark(result, on_host(self)) if result is not self else result
        target = map_device(wanted)
        to_host = target.type == "cpu" and type(wanted) is not int and torch.device(wanted).type == "cpu"
        if position is not None:
            args = (target, *args[1:])
        elif "device" in kwargs:
            kwargs["device"] = target
        result = original_to(self, *args, **kwargs)
        if target.type != "cpu":
            return result
        if to_host and from_library(sys._getframe(1)):
            return result
        if to_host != on_host(self):
            # Such a move copies on a GPU, so the result may share no memory with its source.
            if result is self or result.data_ptr() == self.data_ptr():
                result = result.clone()
            return _mark(result, to_host)
        return _mark(result, to_host) if result is not self else result

    @functools.wraps(torch.Tensor.cuda)
    def cuda(self: torch.Tensor, device: Any = None, non_blocking: bool = False, **kwargs: Any) -> Any:
        return to(self, _CUDA if device is None else device, non_blocking=non_blocking, **kwargs)

    @functools.wraps(original_cpu)
    def cpu(self: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        result = original_cpu(self, *args, **kwargs)
        if from_library(sys._getframe(1)) or on_host(self):
            return result
        return _mark(result.clone() if result is self else result, True)

    @functools.wraps(torch.Tensor.pin_memory)
    def pin_memory(self: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        return _mark(self.clone(), True)

    @functools.wraps(original_type)
    def type_(self: torch.Tensor, dtype: Any = None, non_blocking: bool = False, **kwargs: Any) -> Any:
        if isinstance(dtype, str):
            dtype = dtype.replace("torch.cuda.", "torch.")
        result = original_type(self, dtype, non_blocking, **kwargs)
        if dtype is None and not from_library(sys._getframe(1)) and device_of(self).type == "cuda":
            return result.replace("torch.", "torch.cuda.", 1)
        return result

    def record_stream(self: torch.Tensor, stream: Any) -> None:
        return None

    _tensor.to = to
    _tensor.cuda = cuda
    _tensor.cpu = cpu
    _tensor.pin_memory = pin_memory
    _tensor.type = type_
    _tensor.record_stream = record_stream


def _install_contexts() -> None:
    from torch.utils import _device

    original_init = _device.DeviceContext.__init__

    def __init__(self: Any, device: Any) -> None:
        original_init(self, map_device(device))

    context: Any = _device.DeviceContext
    context.__init__ = __init__

    chosen: list[torch.device | None] = [None]
    original_set, original_get = torch.set_default_device, torch.get_default_device

    @functools.wraps(original_set)
    def set_default_device(device: Any) -> None:
        original_set(map_device(device))
        parsed = None if device is None else torch.device(device)
        chosen[0] = _CUDA if parsed is not None and parsed.type == "cuda" else None

    @functools.wraps(original_get)
    def get_default_device() -> torch.device:
        return chosen[0] or original_get()

    whole: Any = torch
    whole.set_default_device = set_default_device
    whole.get_default_device = get_default_device

    original_load = torch.load

    @functools.wraps(original_load)
    def load(f: Any, map_location: Any = None, *args: Any, **kwargs: Any) -> Any:
        if isinstance(map_location, (str, torch.device)):
            map_location = map_device(map_location)
        return original_load(f, map_location, *args, **kwargs)

    whole.load = load

    class AnyGenerator(type(torch._C.Generator)):  # type: ignore[misc]
        def __instancecheck__(cls, instance: object) -> bool:
            return isinstance(instance, torch._C.Generator)

    base: Any = torch._C.Generator

    class Generator(base, metaclass=AnyGenerator):  # type: ignore[misc]
        """A CPU generator that also accepts the GPU's name."""

        def __new__(cls, device: Any = None) -> Generator:
            made: Generator = super().__new__(cls, map_device(device) or _CPU)
            return made

        @property
        def device(self) -> torch.device:
            return _CPU if from_library(sys._getframe(1)) else _CUDA

    Generator.__name__ = Generator.__qualname__ = "Generator"
    whole.Generator = Generator


def install_tensors() -> None:
    """Make every tensor of this process answer as a GPU tensor would (once per process)."""
    _install_factories()
    _install_properties()
    _install_moves()
    _install_contexts()
