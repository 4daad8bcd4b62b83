"""The judges of one machine, as many as it has GPUs, processors and memory for."""

from __future__ import annotations

from assay.pool import Pool


def local_pool(workers: int | None, sandbox: str, device: str) -> Pool:
    """A pool of warm judges, as many as the machine takes where no number is given; they take GPUs in turn."""
    gpus = None if device == "cpu" else visible_gpus()
    return Pool(workers, sandbox=sandbox, gpus=gpus, device=device)


def visible_gpus() -> list[str] | None:
    """Values of `CUDA_VISIBLE_DEVICES` that each show one GPU; None where there is at most one."""
    import os

    import torch

    count = torch.cuda.device_count()
    if count <= 1:
        return None
    named = os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")
    return named if len(named) == count else [str(n) for n in range(count)]
