"""Device emulation: Triton code written for CUDA runs on CPU tensors in this process.

`install` changes torch and triton for the whole process and cannot be undone; it belongs
in a worker that runs nothing else. Install it before the candidate is imported.
"""

from __future__ import annotations

import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.backends.nvidia.compiler import min_dot_size

from .autotune import Schedules, install_autotune
from .cuda import install_cuda
from .driver import install_driver
from .errors import NeedsGpu
from .extensions import install_extensions
from .kernels import Machine, kernel_class, map_scalars
from .language import install_language
from .launches import Launch, Recorder
from .limits import LIMITS
from .memory import AccessFault, Memory, install_data_ptr
from .mixed_precision import install_mixed_precision
from .orders import Conflict
from .targets import DEFAULT_TARGET, TARGETS, Target
from .tensors import device_of, install_tensors, map_device, on_host

__all__ = [
    "DEFAULT_TARGET",
    "LIMITS",
    "TARGETS",
    "AccessFault",
    "Emulation",
    "Launch",
    "NeedsGpu",
    "Recorder",
    "Target",
    "install",
]


class Emulation:
    """The emulated device of this process."""

    def __init__(self, target: Target, machine: Machine, schedules: Schedules) -> None:
        self.target = target
        self._machine = machine
        self._schedules = schedules

    @property
    def recorder(self) -> Recorder:
        """Kernel launches since the last reset."""
        return self._machine.recorder

    @property
    def memory(self) -> Memory:
        """Checked memory: poison, declared extents and faults."""
        return self._machine.memory

    def force_config(self, index: int | None) -> None:
        """Make every autotuned kernel use its `index`-th configuration, modulo their number.

        Configurations that the kernel's own pruning removes are not counted. None returns to
        the default, the first.
        """
        self._schedules.forced = index

    def tune_on_first_call(self, enabled: bool) -> None:
        """Run every configuration once at a kernel's first call with a new key, as tuning does.

        Off by default. Shows kernels that accumulate into their output while being tuned.
        """
        self._schedules.tune_on_first_call = enabled
        self._schedules.forget_choices()

    def configs(self) -> dict[str, int]:
        """Number of configurations of each autotuned kernel defined so far."""
        return self._schedules.configs()

    def access_faults(self) -> list[AccessFault]:
        """Accesses outside every buffer, once per kernel, line and direction."""
        return self._machine.memory.faults()

    def run_in_order(self, name: str | None) -> None:
        """Until `reset`, run programs of a launch that order nothing themselves in another order (see `orders`)."""
        self._machine.memory.wanted = name

    def reordered(self) -> int:
        """Launches since `reset` whose programs ran in another order."""
        return self._machine.memory.reordered

    def conflicts(self) -> list[Conflict]:
        """Accesses of two programs to one place that nothing orders, seen in another order."""
        return self._machine.memory.conflicts()

    def reset(self) -> None:
        """Forget launches, access faults, conflicts and the order of programs."""
        self._machine.recorder.reset()
        self._machine.memory.reset()

    def device_of(self, tensor: torch.Tensor) -> torch.device:
        """The device that `tensor` would be on: `cpu` only if the candidate put it there itself."""
        return device_of(tensor)

    def is_host(self, tensor: torch.Tensor) -> bool:
        """Whether the candidate put `tensor` on the host explicitly."""
        return on_host(tensor)


_installed: list[Emulation] = []


def install(target: str = DEFAULT_TARGET) -> Emulation:
    """Emulate `target` in this process from now on; a second call returns the same emulation.

    Raises:
        KeyError: for an unknown target.
        RuntimeError: if another target is already emulated here.
    """
    chosen = TARGETS[target]
    if _installed:
        if _installed[0].target is not chosen:
            raise RuntimeError(f"this process already emulates {_installed[0].target.key}")
        return _installed[0]

    from triton.runtime import interpreter

    from .values import Handle

    triton.knobs.runtime.interpret = True
    machine = Machine()
    interpreter.TensorHandle = Handle
    interpreter.interpreter_builder = machine.builder
    interpreter.interpreter_semantic = machine.semantic
    # The bulk copy engine of sm_90 reads descriptors from memory; before it they are plain arithmetic.
    machine.builder.descriptors_in_memory = chosen.capability >= (9, 0)
    machine.builder.tf32 = chosen.capability >= (8, 0)
    machine.builder.codegen_fns["min_dot_size"] = min_dot_size(GPUTarget("cuda", chosen.arch, 32))
    machine.semantic.map_scalars = lambda function, args, pack: map_scalars(machine, function, args, pack)
    kernel = kernel_class(machine)
    install_language(machine.semantic, kernel, machine.helpers["range"])
    interpreter.InterpretedFunction = kernel

    schedules = Schedules()
    install_autotune(schedules)
    install_tensors()
    install_data_ptr(machine.memory)
    install_cuda(chosen)
    install_mixed_precision()
    install_driver(chosen)
    install_extensions()
    _install_compile()
    emulation = Emulation(chosen, machine, schedules)
    _installed.append(emulation)
    return emulation


def _install_compile() -> None:
    """`torch.compile` returns its argument: run eagerly, it computes the same."""

    def compile(model: object = None, **kwargs: object) -> object:
        if model is None:
            return lambda function: function
        return model

    torch.compile = compile  # type: ignore[assignment]


del map_device
