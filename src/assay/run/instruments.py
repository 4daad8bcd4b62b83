"""What a probe's conditions switch on around the candidate's own code, in the candidate's worker."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from contextlib import ExitStack
from typing import Any

import torch

from assay.run.kernel_times import EventTimes, KernelTimes
from assay.run.poison import FreshMemory
from assay.run.scratch import Scratch
from assay.run.work import Corruption, KernelWork, LibraryWork, affine_of, digest, digests_of

SETTLED = 0x3F
"""Byte that fresh memory is filled with under emulation where a probe asks for none: ordinary numbers."""


class Instruments:
    """Fresh-memory fills, fences, counting of work, corruption of kernels and tuning, as asked for.

    Enter it round each stretch in which the candidate runs; outside, nothing is changed.

    Args:
        conditions: by name: `fresh` (byte in hexadecimal that uninitialised memory is filled with; `none` leaves
            it as it is; without it, `SETTLED` under emulation, so that what a kernel that reads it gives is the
            same every time), `fence` (byte of red zones round each allocation), `work` (count operations),
            `corrupt` (seed with which kernels' stores are replaced), `tune` (every configuration runs at the
            first call), `profile` (time of each kernel on a GPU), `events` (time of launches and operations on a
            GPU), `scratch` (bytes held beyond inputs and outputs).
        emulation: the emulated device; None on a GPU.
        on_device: what records launches on a GPU; None under emulation.
    """

    def __init__(self, conditions: dict[str, str], emulation: Any, on_device: Any = None) -> None:
        self._emulation, self._on_device = emulation, on_device
        self._recorder = emulation.recorder if emulation is not None else on_device
        self._times = KernelTimes() if "profile" in conditions and on_device is not None else None
        self._events = EventTimes() if "events" in conditions and on_device is not None else None
        if on_device is not None:
            on_device.times = self._events
            on_device.corruption = int(conditions["corrupt"]) if "corrupt" in conditions else None
        fill = fill_of(conditions, emulated=emulation is not None)
        fence = int(conditions["fence"], 16) if "fence" in conditions else None
        self._asked = "fence" in conditions or conditions.get("fresh", "none") != "none"
        self._fresh = FreshMemory(fill, fence) if fill is not None or fence is not None else None
        counts = "work" in conditions or "corrupt" in conditions
        self._library = LibraryWork(self._events) if counts else None
        self._kernels = KernelWork() if counts and emulation is not None else None
        self._corruption = Corruption(int(conditions["corrupt"])) if "corrupt" in conditions else None
        self._scratch = Scratch() if "scratch" in conditions else None
        self._stack: ExitStack | None = None
        self.calls: list[dict[str, Any]] = []
        if emulation is not None:
            emulation.tune_on_first_call("tune" in conditions)

    def __enter__(self) -> Instruments:
        stack = ExitStack()
        if self._emulation is not None:
            memory, builder = self._emulation.memory, _builder()
            for tool in (self._kernels, self._corruption):
                if tool is not None:
                    stack.enter_context(tool.attached(memory, builder))
        # a program is not compiled by torch inside a mode that nobody asked for
        fresh = self._fresh if self._asked or "torch._dynamo" not in sys.modules else None
        # outside the others, so that none counts what it fills
        for mode in (fresh, self._library, self._times, self._scratch):
            if mode is not None:
                stack.enter_context(mode)
        self._stack = stack
        return self

    def __exit__(self, *exc: object) -> None:
        assert self._stack is not None
        self._stack.close()
        self._stack = None

    def before_call(self) -> None:
        """Forget what earlier stretches did."""
        if self._library is not None:
            self._library.reset()
        if self._kernels is not None:
            self._kernels.operations = 0
        if self._scratch is not None:
            self._scratch.reset()
        self._launched = self._recorder.total if self._recorder is not None else 0

    def after_call(self, outputs: list[torch.Tensor]) -> None:
        """Write down what one call did."""
        seen: dict[str, Any] = {}
        if self._recorder is not None:
            seen["launches"] = self._recorder.total - self._launched
        if self._times is not None:
            seen["kernels"] = self._times.kernels
        if self._events is not None:
            seen["own_ns"], seen["library_ns"] = self._events.take()
        if self._library is not None:
            seen["library"] = dict(self._library.operations.most_common(20))
            seen["results"] = digests_of(list(self._library.results), outputs)
            seen["affine"] = affine_of(list(self._library.results), outputs)
            seen["outputs"] = [digest(t) for t in outputs]
        if self._scratch is not None:
            seen["scratch"] = self._scratch.peak(outputs)
        if self._kernels is not None:
            seen["own"] = self._kernels.operations
        self.calls.append(seen)

    def hold(self, held: int, descriptors: int) -> None:
        """Write down what the process holds after the last call, beside what is kept of its results."""
        if self._library is not None:
            self._library.results.clear()
        self.calls[-1] |= {"held": held, "descriptors": descriptors}

    def facts(self, device_lost: bool = False) -> dict[str, Any]:
        """What was seen, as JSON data; without what is read from a device that was lost."""
        facts: dict[str, Any] = {"per_call": self.calls}
        if self._fresh is not None and self._asked and not device_lost:
            facts["fences"] = self._fresh.broken()
            facts["fenced"] = self._fresh.fenced
        return facts


def fill_of(conditions: Mapping[str, str], *, emulated: bool) -> int | None:
    """Byte that a probe's fresh memory is filled with; None where it is left as it is."""
    if "fresh" in conditions:
        return None if conditions["fresh"] == "none" else int(conditions["fresh"], 16)
    return SETTLED if emulated else None


def _builder() -> Any:
    """The builder that interpreted kernels call."""
    from triton.runtime import interpreter

    return interpreter.interpreter_builder
