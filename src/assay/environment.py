"""What a verdict was decided on: machine, versions, device."""

from __future__ import annotations

import platform
from importlib import metadata
from typing import Any


def describe(device: str, target: str) -> dict[str, Any]:
    """Versions and device, as JSON data; the same on the same machine."""
    found: dict[str, Any] = {
        "assay": _version("assay"), "python": platform.python_version(), "torch": _version("torch"),
        "triton": _version("triton"), "numpy": _version("numpy"), "machine": platform.machine(),
        "system": platform.system(), "device": device,
    }
    if device == "cpu":
        found["emulated_target"] = target
    else:
        import torch

        properties = torch.cuda.get_device_properties(0)
        found["gpu"] = properties.name
        found["compute_capability"] = f"{properties.major}.{properties.minor}"
        found["cuda"] = torch.version.cuda
        found["driver"] = driver_version()
    return found


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "not installed"


def driver_version() -> str | None:
    """Version of the NVIDIA driver, from the kernel module; None without one."""
    try:
        with open("/proc/driver/nvidia/version", encoding="utf-8") as file:
            words = file.readline().split()
    except OSError:
        return None
    return next((word for word in words if word[:1].isdigit() and "." in word), None)


def free_bytes() -> int:
    """Memory that is available now, bytes."""
    try:
        with open("/proc/meminfo", encoding="ascii") as file:
            for line in file:
                if line.startswith("MemAvailable:"):
                    return int(line.split()[1]) * 1024
    except OSError:
        pass
    return 4 << 30
