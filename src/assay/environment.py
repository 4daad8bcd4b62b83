"""What a verdict was decided on: machine, versions, device."""

from __future__ import annotations

import contextlib
import os
import platform
import subprocess
from collections.abc import Sequence
from importlib import metadata
from typing import Any

STATE = ("clocks.sm", "clocks.mem", "temperature.gpu")


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
        found["memory_bytes"] = properties.total_memory
        found["multiprocessors"] = properties.multi_processor_count
        found["float32_matmul_precision"] = torch.get_float32_matmul_precision()
        found["cuda"] = torch.version.cuda
        found["driver"] = driver_version()
    return found


def visible_gpu() -> str:
    """The GPU at hand, as `CUDA_VISIBLE_DEVICES` names it: a number, or a UUID."""
    return os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")[0].strip() or "0"


class DeviceState:
    """Clocks and temperature of the GPU at hand, asked for at once and read later, so that nobody waits for them.

    Args:
        device: `cpu` or `cuda`; of a CPU nothing is asked.
        names: what to ask for, by nvidia-smi's names.
    """

    def __init__(self, device: str, names: Sequence[str] = STATE) -> None:
        self._names = names
        self._asked: subprocess.Popen[str] | None = None
        if device == "cpu":
            return
        with contextlib.suppress(OSError):
            self._asked = subprocess.Popen(
                ["nvidia-smi", "-i", visible_gpu(), f"--query-gpu={','.join(names)}", "--format=csv,noheader"],
                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)

    def read(self, patience: float = 1.0) -> dict[str, str]:
        """What was seen, by name, with units; empty where the driver's tool did not answer in so many seconds."""
        asked, self._asked = self._asked, None
        if asked is None:
            return {}
        try:
            told, _ = asked.communicate(timeout=patience)
        except subprocess.TimeoutExpired:
            asked.kill()
            asked.communicate()
            return {}
        parts = [part.strip()[:40] for part in told.partition("\n")[0].split(",")]
        answered = asked.returncode == 0 and len(parts) == len(self._names)
        return dict(zip(self._names, parts, strict=True)) if answered else {}

    def close(self) -> None:
        """End the driver's tool where nobody read what it says."""
        self.read(0.0)


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
