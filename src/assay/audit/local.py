"""The judges of one machine, as many as it has GPUs or processors for."""

from __future__ import annotations

from assay.pool import Pool


def local_pool(workers: int | None, sandbox: str, device: str) -> Pool:
    """A pool of warm judges. On GPUs one for each where no number is given, and they take the GPUs in turn."""
    gpus = None if device == "cpu" else visible_gpus()
    return Pool(workers or (len(gpus) if gpus else None), sandbox=sandbox, gpus=gpus)


def visible_gpus() -> list[str] | None:
    """Values of `CUDA_VISIBLE_DEVICES` that each show one GPU; None where there is at most one."""
    import os

    import torch

    count = torch.cuda.device_count()
    if count <= 1:
        return None
    named = os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")
    return named if len(named) == count else [str(n) for n in range(count)]
