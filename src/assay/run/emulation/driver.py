"""The Triton driver of a GPU that is not there."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import torch
import triton
from triton.backends.compiler import GPUTarget

from . import cuda
from .errors import NeedsGpu
from .targets import Target


class EmulatedDriver:
    """Answers what candidates and Triton itself ask of `triton.runtime.driver.active`."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self.utils = SimpleNamespace(
            get_device_properties=self._properties,
            load_binary=self._refuse("triton.runtime.driver.active.utils.load_binary"),
            launch=self._refuse("triton.runtime.driver.active.utils.launch"),
            cuOccupancyMaxActiveClusters=self._refuse("cuOccupancyMaxActiveClusters"),
            fill_tma_descriptor_tiled=self._refuse("fill_tma_descriptor_tiled"),
            fill_1d_tma_descriptor=self._refuse("fill_1d_tma_descriptor"),
            fill_2d_tma_descriptor=self._refuse("fill_2d_tma_descriptor"),
            set_printf_fifo_size=lambda size: None,
        )
        self.binary_ext = "cubin" if target.backend == "cuda" else "hsaco"

    @staticmethod
    def _refuse(name: str) -> Any:
        def refuse(*args: Any, **kwargs: Any) -> Any:
            raise NeedsGpu(name)

        return refuse

    def _properties(self, device: int = 0) -> dict[str, int]:
        target = self._target
        return {
            "max_shared_mem": target.shared_per_block_optin,
            "max_num_regs": target.registers_per_multiprocessor,
            "multiprocessor_count": target.multiprocessors,
            "warpSize": target.warp_size,
            "sm_clock_rate": target.clock_khz,
            "mem_clock_rate": target.memory_clock_khz,
            "mem_bus_width": target.memory_bus_bits,
        }

    @property
    def launcher_cls(self) -> Any:
        """Raise: compiled kernels cannot be launched."""
        raise NeedsGpu("launching a compiled kernel")

    @staticmethod
    def is_active() -> bool:
        """True."""
        return True

    def get_current_target(self) -> GPUTarget:
        """The target as Triton's compiler names it."""
        arch: int | str = self._target.arch if self._target.backend == "cuda" else self._target.key
        return GPUTarget(self._target.backend, arch, self._target.warp_size)

    def get_current_device(self) -> int:
        """0, the only device."""
        return 0

    def set_current_device(self, device: int) -> None:
        """Accept the only device."""

    def get_current_stream(self, device: int | None = None) -> int:
        """The current stream's handle."""
        return int(torch.cuda.current_stream().cuda_stream)

    def get_device_capability(self, device: int | None = None) -> tuple[int, int]:
        """Compute capability."""
        return self._target.capability

    def get_active_torch_device(self) -> torch.device:
        """``cuda:0``."""
        return torch.device("cuda", 0)

    def get_device_interface(self) -> Any:
        """`torch.cuda`."""
        return torch.cuda

    def get_benchmarker(self) -> Any:
        """`triton.testing.do_bench`, which measures nothing here."""
        return triton.testing.do_bench

    def get_empty_cache_for_benchmark(self) -> torch.Tensor:
        """A small tensor: there is no cache to flush."""
        return torch.empty(256, dtype=torch.int32)

    def clear_cache(self, cache: torch.Tensor) -> None:
        """Zero the tensor, as the real driver does."""
        cache.zero_()

    def map_python_to_cpp_type(self, ty: str) -> str:
        """Raise: nothing is compiled to C++."""
        raise NeedsGpu("triton.runtime.driver.active.map_python_to_cpp_type")


def _constant_time(
    fn: Any,
    warmup: int = 25,
    rep: int = 100,
    grad_to_none: Any = None,
    quantiles: Any = None,
    return_mode: str = "mean",
    **kwargs: Any,
) -> Any:
    """Run `fn` once and say that it took one millisecond: here time means nothing.

    A candidate that tunes itself then takes its first variant, the same on every machine.
    """
    fn()
    if quantiles is not None:
        times = [1.0] * len(quantiles)
        return times[0] if len(times) == 1 else times
    return [1.0] if return_mode == "all" else 1.0


def install_driver(target: Target) -> None:
    """Make `triton.runtime.driver.active` a driver for `target`, and benchmarking constant."""
    import triton.testing

    driver = EmulatedDriver(target)
    triton.runtime.driver.set_active(driver)
    triton.runtime.driver._default = driver
    triton.testing.do_bench = _constant_time
    triton.testing.do_bench_cudagraph = _constant_time


__all__ = ["EmulatedDriver", "cuda", "install_driver"]
