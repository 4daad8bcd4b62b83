"""What a candidate's worker says of itself: errors, replaced functions, launches, threads. Native code can forge it."""

from __future__ import annotations

import dataclasses
import signal
import sys
import traceback
from typing import Any

import torch

from assay.run import bait, traces
from assay.run.candidate_state import State

ERROR_TEXT = 2000


def describe(error: BaseException, phase: str) -> dict[str, Any]:
    """An exception as bounded text: type, message, phase, and where it was raised in the candidate."""
    kind = type(error)
    try:
        message = str(error)[:ERROR_TEXT]
    except BaseException:
        message = "<the exception has no text>"
    place = ""
    try:
        for frame in traceback.extract_tb(error.__traceback__):
            if frame.filename.endswith("candidate.py"):
                place = f"candidate.py:{frame.lineno}"
    except BaseException:
        place = ""
    return {"type": str(kind.__name__)[:200], "message": message, "phase": phase, "place": place,
            "needs_gpu": str(getattr(error, "call", ""))[:200] if kind.__name__ == "NeedsGpu" else None,
            "memory": isinstance(error, MemoryError) or kind.__name__ == "OutOfMemoryError"
            or "can't allocate memory" in message[:400] or "not enough memory" in message[:400]}


def device_lost() -> bool:
    """Whether the device's context is broken, so that every later call fails."""
    try:
        torch.cuda.synchronize()
    except Exception:
        return True
    return False


def facts_of(state: State) -> dict[str, Any]:
    """What this process says of itself after a request."""
    facts: dict[str, Any] = {
        "patched": state.changed(state.watched)[:50],
        "bait": bait.touched(),
        "threads": traces.threads(state.threads, native=state.device == "cpu"),
        "environment": traces.environment(state.environment)[:20],
        "handlers": [s.name for s in (signal.SIGTERM, signal.SIGINT, signal.SIGALRM)
                     if signal.getsignal(s) not in (signal.SIG_DFL, signal.SIG_IGN, None,
                                                    signal.default_int_handler)],
        "traced": sys.gettrace() is not None or sys.getprofile() is not None,
    }
    if state.on_device is not None:
        facts.update(state.on_device.facts())
    if state.compiler is not None:
        facts["compiled"] = state.compiler.facts()
    if state.emulation is not None:
        facts["launches"] = [_launch(launch) for launch in list(state.emulation.recorder.launches)[:100]]
        facts["launch_count"] = state.emulation.recorder.total
        facts["access"] = [dataclasses.asdict(fault) for fault in state.emulation.access_faults()[:50]]
        facts["configs"] = state.emulation.configs()
        facts["reordered"] = state.emulation.reordered()
        facts["conflicts"] = [dataclasses.asdict(one) for one in state.emulation.conflicts()]
    return facts


def _launch(launch: Any) -> dict[str, Any]:
    """A launch as JSON data."""
    return {
        "kernel": launch.kernel, "line": launch.line, "grid": list(launch.grid), "completed": launch.completed,
        "programs": launch.programs, "error": (launch.error or "")[:300] or None, "signature": launch.signature,
        "constexprs": {k: repr(v)[:200] for k, v in launch.constexprs.items()},
        "options": {k: repr(v)[:80] for k, v in launch.options.items()}, "dots": [list(d) for d in launch.dots],
    }
