"""How a worker tells time: stamps of the processor's clock, or events of the device.

Bound before any candidate is imported, so that replacing what they are called by elsewhere changes nothing here.
"""

from __future__ import annotations

import time
from typing import Any

import torch

_now = time.perf_counter_ns
_EVENT: Any = getattr(torch._C, "_CudaEventBase", None)
_new_event = getattr(_EVENT, "__new__", None)
_record, _elapsed = getattr(_EVENT, "record", None), getattr(_EVENT, "elapsed_time", None)
_wait_event = getattr(_EVENT, "synchronize", None)
_synchronize: Any = getattr(torch._C, "_cuda_synchronize", None)
_stream: Any = torch.cuda.current_stream
_sleep: Any = torch.cuda._sleep
BUSY_CYCLES = 1_000_000
"""Clock cycles of the device that a stream is kept busy for."""


class HostClock:
    """Stamps of the processor's clock, for a device whose calls end when they return."""

    def stamp(self) -> Any:
        """A point in time."""
        return _now()

    def seconds(self, first: Any, second: Any) -> float:
        """Seconds between two of them."""
        return float(second - first) / 1e9

    def wait(self, stamp: Any) -> None:
        """Nothing: what was called has ended."""

    def settle(self) -> None:
        """Nothing, as `wait`."""

    def occupy(self) -> None:
        """Nothing: there is one line of work."""


class DeviceClock:
    """CUDA events on the current stream, and a wait for all streams of the device."""

    def stamp(self) -> Any:
        """An event, recorded."""
        event = _new_event(_EVENT, enable_timing=True)  # type: ignore[misc]
        _record(event, _stream())  # type: ignore[misc]
        return event

    def seconds(self, first: Any, second: Any) -> float:
        """Seconds between two events that the device has passed."""
        return float(_elapsed(first, second)) / 1e3  # type: ignore[misc]

    def wait(self, stamp: Any) -> None:
        """Until the device has passed an event, and so the stream that it was recorded on."""
        _wait_event(stamp)  # type: ignore[misc]

    def settle(self) -> None:
        """Until every stream of the device is idle."""
        _synchronize()

    def occupy(self) -> None:
        """Give the current stream something to do for about half a millisecond."""
        _sleep(BUSY_CYCLES)
