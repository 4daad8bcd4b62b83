"""How many judges a machine takes."""

from __future__ import annotations

import os
import subprocess

import torch

from assay.environment import free_bytes

JUDGE_BYTES = 2 << 30
"""Host memory that a judge takes with its processes, about."""
JUDGE_GPU_BYTES = 4 << 30
"""GPU memory that a judge takes: contexts of a reference and of two candidates, and their tensors."""


def judges(device: str, gpus: int = 0) -> int:
    """Judges for this machine: see `fitting`.

    Args:
        device: `cpu`, `cuda`, or `auto` for a GPU where there is one.
        gpus: GPUs that the judges take in turn; 0 for the one that the environment leaves.
    """
    processors, free = len(os.sched_getaffinity(0)), free_bytes()
    if device == "cpu" or torch.cuda.device_count() == 0:
        return fitting(processors, free)
    return fitting(processors, free, max(1, gpus), _gpu_bytes())


def fitting(processors: int, free: int, gpus: int = 0, gpu_bytes: int = 0) -> int:
    """One judge for two processors, or on GPUs for each processor, as far as memory goes; one for each GPU at least.

    Under emulation a verdict keeps two processes busy; on a GPU it waits much of the time for contexts and kernels.

    Args:
        processors: that may be used.
        free: host memory, bytes.
        gpus: GPUs that judges are on; 0 for emulation.
        gpu_bytes: memory of each GPU; 0 where it is not known.
    """
    room = max(1, free // JUDGE_BYTES)
    if gpus == 0:
        return max(1, min(processors // 2, room))
    on_gpus = gpus * max(1, gpu_bytes // JUDGE_GPU_BYTES) if gpu_bytes else processors
    return max(gpus, min(processors, room, on_gpus))


def _gpu_bytes() -> int:
    """Memory of the smallest GPU, bytes; 0 where the driver's tool does not say. Starts no context."""
    try:
        told = subprocess.run(["nvidia-smi", "--query-gpu=memory.total", "--format=csv,noheader,nounits"],
                              capture_output=True, text=True, timeout=20, check=True).stdout
        return min(int(line) for line in told.split()) << 20
    except (OSError, ValueError, subprocess.SubprocessError):
        return 0
