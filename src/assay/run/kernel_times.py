"""Which kernels a GPU ran and for how long, from the profiler."""

from __future__ import annotations

from typing import Any

import torch

MOST = 40
class KernelTimes:
    """Profiles a stretch of work. Where the profiler does not reach the device, nothing is seen."""

    def __init__(self) -> None:
        self._profile: Any = None
        self.kernels: list[list[Any]] | None = None

    def __enter__(self) -> KernelTimes:
        self.kernels = None
        torch.cuda.synchronize()
        try:
            self._profile = torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA])
            self._profile.__enter__()
        except Exception:
            self._profile = None
        return self

    def __exit__(self, *exc: object) -> None:
        profile, self._profile = self._profile, None
        if profile is None:
            return
        try:
            torch.cuda.synchronize()
        finally:
            profile.__exit__(None, None, None)
        times: dict[str, int] = {}
        for event in profile.events():
            if str(event.device_type).endswith("CUDA"):
                nanoseconds = round(1000 * float(event.device_time_total))
                times[event.name[:200]] = times.get(event.name[:200], 0) + nanoseconds
        self.kernels = [[name, spent] for name, spent in sorted(times.items(), key=lambda item: -item[1])[:MOST]]
