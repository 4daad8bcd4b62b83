"""On a real GPU: which Triton kernels were launched, forced configurations, and calls behind a busy stream."""

from __future__ import annotations

import functools
import hashlib
import inspect
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils._python_dispatch import _disable_current_modes

from assay.run.emulation.targets import TARGETS
from assay.run.kernel_times import EventTimes
from assay.run.occupancy import occupancy
from assay.run.stubs import Stubs, asked_for, unoptimised

BUSY_CYCLES = 60_000_000
"""Clock cycles of the sleep queued ahead of a call: about 30 ms at 2 GHz."""
KEPT = 1000
TUNING_MS = 1
"""Milliseconds for warming up and for timing, per configuration."""


@dataclass
class DeviceLaunch:
    """One launch of a Triton kernel."""

    kernel: str
    """Name of the kernel function."""
    grid: tuple[int, ...]
    """Programs along x, y, z; empty where the grid is a function."""
    completed: bool = False
    """Whether the launch was accepted; later errors surface at the next synchronisation."""
    error: str | None = None
    """Type and text of the error of the launch."""


class OnDevice:
    """What a worker on a real GPU records."""

    def __init__(self) -> None:
        self.launches: deque[DeviceLaunch] = deque(maxlen=KEPT)
        self.total = 0
        self.forced: int | None = None
        self.corruption: int | None = None
        self.replaced = 0
        self.times: EventTimes | None = None
        self.spent = {"context": 0, "compile": 0, "stubs": 0}
        """Microseconds for the device's context, Triton's compiler, and the host code that it has a C compiler make."""
        self.tuners: dict[str, int] = {}
        self.kernels: dict[int, Any] = {}
        """Compiled kernels that were launched, by identity."""
        self._taken: dict[int, tuple[Any, dict[str, Any]]] = {}
        """What each took, beside the kernel itself: read once, however many probes launch it."""

    def reset(self) -> None:
        """Forget the launches."""
        self.launches.clear()
        self.kernels.clear()
        self.total = self.replaced = 0

    def took(self) -> dict[str, int]:
        """What was spent since the last question."""
        found = dict(self.spent)
        self.spent = dict.fromkeys(found, 0)
        return found

    def facts(self) -> dict[str, Any]:
        """Launches and configurations as JSON data."""
        return {
            "launches": [{"kernel": x.kernel, "grid": list(x.grid), "completed": x.completed, "error": x.error}
                         for x in list(self.launches)[:100]],
            "launch_count": self.total, "replaced": self.replaced, "configs": dict(sorted(self.tuners.items())),
            "compiled": self.compiled(),
        }

    def compiled(self) -> list[dict[str, Any]]:
        """What each kernel that was launched takes, in the form of the resources gate; nothing where one is unknown."""
        found: list[dict[str, Any]] = []
        for number, kernel in enumerate(list(self.kernels.values())[:100]):
            if id(kernel) not in self._taken:
                if (taken := _taken_by(kernel)) is None:
                    return []
                self._taken[id(kernel)] = kernel, taken
            found.append({**self._taken[id(kernel)][1], "launch": number})
        return found


def _taken_by(kernel: Any) -> dict[str, Any] | None:
    """What a compiled kernel of Triton takes, sizes in bytes; None where it is not of CUDA or has no binary."""
    metadata, binary = kernel.metadata, kernel.asm.get("cubin")
    target = getattr(metadata, "target", None)
    if target is None or target.backend != "cuda" or not isinstance(binary, bytes):
        return None
    chip = TARGETS.get(f"sm_{target.arch}")
    return {
        "occupancy": chip and occupancy(chip, metadata.num_warps, kernel.n_regs, metadata.shared),
        "kernel": str(metadata.name), "target": f"sm_{target.arch}", "config": "", "constexprs": {},
        "error": None, "over": None, "shared": int(metadata.shared),
        "tensor_memory": int(getattr(metadata, "tmem_size", 0) or 0), "warps": int(metadata.num_warps),
        "registers": int(kernel.n_regs), "spilled": 4 * int(kernel.n_spills),
        "sha256": hashlib.sha256(binary).hexdigest()}


def install(stubs: Stubs | None = None) -> OnDevice:
    """Record launches in this process from now on; at once nothing where Triton is missing.

    Args:
        stubs: host code of launches that need not be built; what is built is noted there. None keeps none.
    """
    recorder = OnDevice()
    try:
        import triton
        from triton.runtime.autotuner import Autotuner
        from triton.runtime.jit import JITFunction
    except ImportError:
        return recorder
    # line information names the folder of this worker: without it, one source gives one binary
    triton.knobs.compilation.disable_line_info = True
    launch, tune = JITFunction.run, Autotuner.run
    make = Autotuner.__init__

    def run(self: Any, *args: Any, grid: Any, warmup: bool, **kwargs: Any) -> Any:
        if warmup:
            return launch(self, *args, grid=grid, warmup=warmup, **kwargs)
        programs = tuple(int(n) for n in grid) if isinstance(grid, tuple | list) else ()
        seen = DeviceLaunch(getattr(self.fn, "__name__", "kernel"), programs)
        recorder.launches.append(seen)
        recorder.total += 1
        timed = recorder.times.around("") if recorder.times is not None else nullcontext()
        try:
            if recorder.corruption is None:
                with timed:
                    result = launch(self, *args, grid=grid, warmup=warmup, **kwargs)
            else:
                tensors = [*args, *kwargs.values()]
                with corrupted(recorder.corruption + recorder.total, tensors) as replaced:
                    result = launch(self, *args, grid=grid, warmup=warmup, **kwargs)
                recorder.replaced += replaced[0]
        except Exception as error:
            seen.error = f"{type(error).__name__}: {error}"[:300]
            raise
        seen.completed = True
        if all(hasattr(result, name) for name in ("metadata", "asm", "n_regs", "n_spills")):
            recorder.kernels[id(result)] = result
        return result

    def created(self: Any, *args: Any, **kwargs: Any) -> None:
        make(self, *args, **kwargs)
        recorder.tuners[self.base_fn.__name__] = len(self.configs)

    def tuned(self: Any, *args: Any, **kwargs: Any) -> Any:
        if recorder.forced is None:
            return tune(self, *args, **kwargs)
        every = self.configs
        legal = self.prune_configs(kwargs) if self.early_config_prune or self.perf_model else every
        try:
            self.configs = [legal[recorder.forced % len(legal)]]
            return tune(self, *args, **kwargs)
        finally:
            self.configs = every

    _watch_compiler(recorder, Stubs() if stubs is None else stubs)
    _tune_briefly()
    JITFunction.run = run
    Autotuner.__init__ = created
    Autotuner.run = tuned
    return recorder


def _tune_briefly() -> None:
    """Let autotuning time each configuration for a millisecond or two: whichever it picks, the results are owed.

    Each configuration still runs some ten times, into the same memory, as when it is tuned for longer.
    """
    from triton import testing

    bench = testing.do_bench

    @functools.wraps(bench)
    def brief(fn: Any, warmup: float = TUNING_MS, rep: float = TUNING_MS, *args: Any, **kwargs: Any) -> Any:
        return bench(fn, min(warmup, TUNING_MS), min(rep, TUNING_MS), *args, **kwargs)

    testing.do_bench = brief


def _watch_compiler(recorder: OnDevice, stubs: Stubs) -> None:
    """Add up what compiling takes in this process; a Triton without these hooks leaves it at zero.

    The host code that launches a kernel is taken from what is kept, or not optimised: a verdict launches it a few
    times, and compiling it well takes longer than compiling the kernel.
    """
    from triton import knobs
    from triton.runtime import build

    def compiled(*, times: Any, cache_hit: bool, **_: Any) -> None:
        recorder.spent["compile"] += 0 if cache_hit else int(times.total)

    signature, make = inspect.signature(build._build), unoptimised(build._build)

    def made(*args: Any, **kwargs: Any) -> Any:
        began = time.perf_counter()
        try:
            given = signature.bind(*args, **kwargs).arguments
            wanted = asked_for(given)
            if wanted is None:
                return make(**given)
            if (kept := stubs.find(wanted, given["srcdir"])) is not None:
                return kept
            path = make(**given)
            stubs.built(wanted)
            return path
        finally:
            recorder.spent["stubs"] += round(1e6 * (time.perf_counter() - began))

    knobs.compilation.listener = compiled
    build._build = made


@contextmanager
def corrupted(seed: int, arguments: Sequence[Any]) -> Iterator[list[int]]:
    """Replace what a launch stores in its tensors by other values of the same kind; yields how many, in a list.

    Floating values become noise of the tensor's own size; integers, which may be indices, change places. What was
    there before with the same value cannot be told from what was not stored: memory is to be filled beforehand.

    Args:
        seed: of the noise.
        arguments: of the launch; its tensors, of any shape, stride and dtype, are changed in place.
    """
    tensors = [t for t in arguments if isinstance(t, torch.Tensor) and t.numel()]
    with _disable_current_modes():
        before = [t.detach().clone() for t in tensors]
    replaced = [0]
    yield replaced
    source = torch.Generator(tensors[0].device if tensors else "cpu").manual_seed(seed)
    # what is computed here is not work of the candidate's, which a mode may be counting
    with _disable_current_modes(), torch.no_grad():
        for tensor, old in zip(tensors, before, strict=True):
            now = tensor.detach()
            stored = ~((now == old) | ((now != now) & (old != old)))
            replaced[0] += int(stored.sum())
            if tensor.is_floating_point():
                size = torch.nan_to_num(now.abs().float(), nan=1.0, posinf=1.0).mean() + 1.0
                noise = torch.randn(now.shape, generator=source, device=now.device) * size
                now.copy_(torch.where(stored, noise.to(now.dtype), now))
            else:
                now.copy_(torch.where(stored, now.flatten().roll(1).reshape(now.shape), now))


class DeviceHung(RuntimeError):
    """The device did not finish what it was given."""


def settle(seconds: float) -> None:
    """Wait until the device is idle. Raises DeviceHung where the current stream is not done in this many seconds.

    A judge that waits for an answer cannot tell compiling from a kernel that never ends; here, all is launched.
    """
    stream, end, pause = torch.cuda.current_stream(), time.monotonic() + seconds, 0.0
    while not stream.query():
        if time.monotonic() > end:
            raise DeviceHung(f"the device was not done {seconds:.0f} s after the call had returned")
        time.sleep(pause)
        pause = min(0.01, pause + 0.0002)
    torch.cuda.synchronize()


def behind_busy_stream(update: Callable[[], None], call: Callable[[], Any],
                       leaves: Callable[[Any], list[torch.Tensor]],
                       cycles: int = BUSY_CYCLES) -> tuple[Any, list[torch.Tensor]]:
    """Queue a long sleep and an update of the inputs on a stream, call on it, and copy the outputs there.

    Only that stream is waited for. A call that works on another stream reads inputs before they are written,
    or its outputs are copied before they exist.

    Returns: what the call returned, and copies of its tensors made on the stream.
    """
    torch.cuda.synchronize()
    stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
    with torch.cuda.stream(stream):
        torch.cuda._sleep(cycles)  # type: ignore[no-untyped-call]
        update()
        outputs = call()
        copies = [t.detach().clone() for t in leaves(outputs)]
    stream.synchronize()
    return outputs, copies
