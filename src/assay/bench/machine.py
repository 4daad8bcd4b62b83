"""The device while it is timed: clocks, temperature, throttling, and the size of its last cache."""

from __future__ import annotations

import ctypes
import os

from assay.environment import DeviceState, visible_gpu

QUERY = ("clocks.sm", "clocks.mem", "temperature.gpu", "power.draw", "clocks_throttle_reasons.active")
_SM, _MEMORY = 1, 2
DRIFT = 0.05
"""Drift of a fixed kernel's time beyond which a run is called unsteady."""


def clocks() -> dict[str, str]:
    """Clocks, temperature, power and throttling of the GPU at hand, by nvidia-smi's names; empty where nobody says."""
    found = _from_library()
    return _from_program() if found is None else found


def _from_library() -> dict[str, str] | None:
    """What the management library says, which takes no process of its own; None where it says nothing."""
    try:
        nvml = ctypes.CDLL("libnvidia-ml.so.1")
        if nvml.nvmlInit_v2() != 0:
            return None
    except (OSError, AttributeError):
        return None
    try:
        device = ctypes.c_void_p()
        gpu = visible_gpu()
        if (nvml.nvmlDeviceGetHandleByIndex_v2(int(gpu), ctypes.byref(device)) if gpu.isdecimal()
                else nvml.nvmlDeviceGetHandleByUUID(os.fsencode(gpu), ctypes.byref(device))) != 0:
            return None
        sm, memory, degrees, milliwatts = (ctypes.c_uint() for _ in range(4))
        reasons = ctypes.c_ulonglong()
        failed = (
            nvml.nvmlDeviceGetClockInfo(device, _SM, ctypes.byref(sm)),
            nvml.nvmlDeviceGetClockInfo(device, _MEMORY, ctypes.byref(memory)),
            nvml.nvmlDeviceGetTemperature(device, 0, ctypes.byref(degrees)),
            nvml.nvmlDeviceGetPowerUsage(device, ctypes.byref(milliwatts)),
            nvml.nvmlDeviceGetCurrentClocksThrottleReasons(device, ctypes.byref(reasons)),
        )
        told = (f"{sm.value} MHz", f"{memory.value} MHz", str(degrees.value), f"{milliwatts.value / 1000:.2f} W",
                f"{reasons.value:#018x}")
        return {name: text for name, text, code in zip(QUERY, told, failed, strict=True) if code == 0} or None
    except AttributeError:
        return None
    finally:
        nvml.nvmlShutdown()


def _from_program() -> dict[str, str]:
    """What nvidia-smi says; empty where it says nothing."""
    return DeviceState("cuda", QUERY).read(20.0)


def cache_bytes(device: str) -> int:
    """Bytes of the last cache of the GPU at hand; 0 on a CPU."""
    if device != "cuda":
        return 0
    import torch

    return int(torch.cuda.get_device_properties(0).L2_cache_size)
