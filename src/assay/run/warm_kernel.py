"""A kernel of our own, launched in a worker before its candidate comes: Triton's compiler is warm then.

So is what probes do on a GPU around a candidate: each operation of torch is loaded there when it is first asked for.
"""

from __future__ import annotations

from functools import partial

import torch
import triton
import triton.language as tl

from assay.run.kernel_times import EventTimes
from assay.run.on_device import behind_busy_stream, corrupted
from assay.run.poison import FreshMemory

LENGTH = 64


@triton.jit  # type: ignore[untyped-decorator]
def _warm(x_ptr, y_ptr, n, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    at = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, mask=at < n, other=0.0)
    tl.store(y_ptr + at, tl.exp(x - tl.max(x, axis=0)), mask=at < n)


def launch() -> None:
    """Compile and launch it on the current device, the way that probes launch a candidate's, and leave nothing."""
    x = torch.zeros(LENGTH, device="cuda")

    times = EventTimes()
    with FreshMemory(0x5A, 0xA5) as memory:
        y = _called(x)
    memory.broken()
    with times.around(""), corrupted(0, [x, y, torch.zeros(LENGTH, dtype=torch.int64, device="cuda")]):
        _called(x)
    behind_busy_stream(lambda: None, partial(_called, x), lambda found: [found], cycles=1)
    x.reshape(8, -1).t().contiguous()
    torch.cuda.synchronize()
    times.take()
    del x, y, memory
    torch.cuda.empty_cache()


def _called(x: torch.Tensor) -> torch.Tensor:
    y = torch.empty_like(x)
    _warm[(1,)](x, y, LENGTH, BLOCK=LENGTH)
    return y
