"""The device while it is timed: clocks, temperature, throttling, and the size of its last cache."""

from __future__ import annotations

import subprocess

QUERY = ("clocks.sm", "clocks.mem", "temperature.gpu", "power.draw", "clocks_throttle_reasons.active")
DRIFT = 0.05
"""Drift of a fixed kernel's time beyond which a run is called unsteady."""


def clocks() -> dict[str, str]:
    """What nvidia-smi says of the first GPU, by name; empty where it says nothing."""
    try:
        done = subprocess.run(["nvidia-smi", "-i", "0", f"--query-gpu={','.join(QUERY)}", "--format=csv,noheader"],
                              capture_output=True, text=True, check=True, timeout=20)
    except (OSError, subprocess.SubprocessError):
        return {}
    lines = done.stdout.splitlines()
    return dict(zip(QUERY, (part.strip()[:40] for part in lines[0].split(",")), strict=False)) if lines else {}


def cache_bytes(device: str) -> int:
    """Bytes of the last cache of the GPU at hand; 0 on a CPU."""
    if device != "cuda":
        return 0
    import torch

    return int(torch.cuda.get_device_properties(0).L2_cache_size)
