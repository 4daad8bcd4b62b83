"""`torch.autocast("cuda")`, its gradient scaler and custom function decorators, on CPU tensors.

CPU autocast with the dtype asked for stands for CUDA autocast; the two differ in a few
operations only (see `LIMITS`).
"""

from __future__ import annotations

import functools
from typing import Any

import torch
from torch.amp import autocast_mode

_gpu_dtype: list[torch.dtype] = [torch.float16]


def _map(device_type: Any) -> Any:
    return "cpu" if device_type == "cuda" else device_type


def install_mixed_precision() -> None:
    """Make every name under which torch offers CUDA autocast work on CPU tensors."""
    original = torch.autocast

    class autocast(original):  # type: ignore[misc,valid-type]
        """Autocast that also accepts ``cuda``."""

        def __init__(
            self,
            device_type: str,
            dtype: torch.dtype | None = None,
            enabled: bool = True,
            cache_enabled: bool | None = None,
        ) -> None:
            if device_type == "cuda" and dtype is None:
                dtype = _gpu_dtype[0]
            super().__init__(_map(device_type), dtype=dtype, enabled=enabled, cache_enabled=cache_enabled)

    class cuda_autocast(autocast):
        """`torch.cuda.amp.autocast`."""

        def __init__(
            self, enabled: bool = True, dtype: torch.dtype = torch.float16, cache_enabled: bool = True
        ) -> None:
            super().__init__("cuda", dtype=dtype, enabled=enabled, cache_enabled=cache_enabled)

    autocast.__name__ = autocast.__qualname__ = "autocast"
    cuda_autocast.__name__ = cuda_autocast.__qualname__ = "autocast"
    torch.autocast = torch.amp.autocast = autocast_mode.autocast = autocast  # type: ignore[misc]
    torch.cuda.amp.autocast = cuda_autocast  # type: ignore[misc]

    original_fwd, original_bwd = torch.amp.custom_fwd, torch.amp.custom_bwd

    @functools.wraps(original_fwd)
    def custom_fwd(fwd: Any = None, *, device_type: str = "cuda", cast_inputs: Any = None) -> Any:
        return original_fwd(fwd, device_type=_map(device_type), cast_inputs=cast_inputs)

    @functools.wraps(original_bwd)
    def custom_bwd(bwd: Any = None, *, device_type: str = "cuda") -> Any:
        return original_bwd(bwd, device_type=_map(device_type))

    torch.amp.custom_fwd = torch.cuda.amp.custom_fwd = custom_fwd
    torch.amp.custom_bwd = torch.cuda.amp.custom_bwd = custom_bwd

    enabled_now, dtype_now = torch.is_autocast_enabled, torch.get_autocast_dtype

    def is_autocast_enabled(device_type: str = "cuda") -> bool:
        return bool(enabled_now(_map(device_type)))

    def get_autocast_dtype(device_type: str) -> torch.dtype:
        if device_type == "cuda" and not enabled_now("cpu"):
            return _gpu_dtype[0]
        return dtype_now(_map(device_type))

    def set_autocast_gpu_dtype(dtype: torch.dtype) -> None:
        _gpu_dtype[0] = dtype

    torch.is_autocast_enabled = is_autocast_enabled
    torch.get_autocast_dtype = get_autocast_dtype
    torch.get_autocast_gpu_dtype = lambda: get_autocast_dtype("cuda")
    torch.set_autocast_gpu_dtype = set_autocast_gpu_dtype

    scaler = torch.amp.GradScaler

    class GradScaler(scaler):  # type: ignore[misc,valid-type]
        """Gradient scaler that also accepts ``cuda``."""

        def __init__(self, device: str = "cuda", *args: Any, **kwargs: Any) -> None:
            super().__init__(_map(device), *args, **kwargs)

    torch.amp.GradScaler = torch.GradScaler = GradScaler  # type: ignore[misc]
    torch.cuda.amp.GradScaler = functools.partial(GradScaler, "cuda")  # type: ignore[misc,assignment]
