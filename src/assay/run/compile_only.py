"""Compiling a candidate's Triton kernels for a target without running them, on any machine.

In a worker prepared here every launch compiles the kernel as Triton itself would for these very arguments,
records what the compiler says, and runs nothing. Outputs are therefore meaningless and are not looked at.
"""

from __future__ import annotations

import functools
import hashlib
import inspect
import os
import re
import subprocess
import tempfile
import time
from dataclasses import asdict, dataclass
from typing import Any

import torch

from assay.run import builds, extension_resources
from assay.run.emulation import Target
from assay.run.emulation.extensions import EXTENSION, after_import
from assay.run.emulation.targets import COMPILED_TARGETS
from assay.run.occupancy import occupancy

_METADATA = re.compile(
    r"^\s*(?:- )?\.(vgpr_count|sgpr_count|vgpr_spill_count|sgpr_spill_count|private_segment_fixed_size|"
    r"group_segment_fixed_size):\s*(\d+)", re.MULTILINE)
_USAGE = re.compile(r"REG:(\d+)|STACK:(\d+)|LOCAL:(\d+)")


@dataclass(frozen=True)
class Compiled:
    """What the compiler says of one kernel for one target; sizes in bytes."""

    kernel: str
    """Name of the kernel."""
    target: str
    """Target, such as `sm_90`."""
    config: str
    """Autotune configuration, as text; empty without one."""
    constexprs: dict[str, str]
    """Compile-time arguments."""
    seconds: float
    """Compilation time."""
    launch: int = 0
    """Number of the launch; the configurations tried for one launch share it."""
    error: str | None = None
    """Compiler error, first lines."""
    error_type: str | None = None
    """Class of the error."""
    shared: int = 0
    """Dynamic shared memory of a block."""
    tensor_memory: int = 0
    """Tensor-memory columns."""
    warps: int = 0
    """Warps of a block."""
    registers: int | None = None
    """32-bit registers of a thread (vector registers on chips of AMD); None where no disassembler said."""
    stack: int | None = None
    """Stack frame of a thread."""
    spilled: int | None = None
    """Local memory of a thread, which holds spills; on chips of AMD four for each register spilled."""
    sha256: str | None = None
    """SHA-256 of the binary; None where the compiler gave none."""
    scalar_registers: int | None = None
    """Scalar registers of a wave, on chips of AMD."""


class CompileOnly:
    """Stands in for the emulation of a worker: same questions, no execution."""

    def __init__(self, target: Target) -> None:
        self.target = target
        self.compiled: list[Compiled] = []
        self.extensions: list[Compiled] = []
        """Kernels of extensions, which are built once and called by every probe."""
        self.pretended = False
        """Whether an extension was called, which gave back what it was passed."""

    def reset(self) -> None:
        """Forget what was compiled."""
        self.compiled.clear()
        self.pretended = False

    def facts(self) -> list[dict[str, Any]]:
        """The compilations as JSON data."""
        return [{**asdict(c), "over": fits(c, self.target),
                 "occupancy": occupancy(self.target, c.warps, c.registers, c.shared)}
                for c in [*self.compiled[:100], *self.extensions[:100]]]


def install(name: str) -> CompileOnly:
    """Prepare this process to compile for a target. Raises KeyError for an unknown one."""
    import triton
    from triton.runtime.autotuner import Autotuner
    from triton.runtime.jit import JITFunction

    from assay.run.emulation.cuda import install_cuda
    from assay.run.emulation.driver import install_driver
    from assay.run.emulation.tensors import install_tensors

    target = COMPILED_TARGETS[name]
    triton.knobs.runtime.interpret = False
    # line information names the folder of this worker: without it, one source gives one binary
    triton.knobs.compilation.disable_line_info = True
    if target.backend == "hip":
        # what a candidate asks to know whose chip it is on
        torch.version.hip, torch.version.cuda = "6.4", None
    install_tensors()
    install_cuda(target)
    install_driver(target)
    recorder = CompileOnly(target)
    original = JITFunction.run
    tuned, launches = [""], [0]

    def run(self: Any, *args: Any, grid: Any, warmup: bool, **kwargs: Any) -> Any:
        began = time.perf_counter()
        names = self.arg_names
        values = {**dict(zip(names, args, strict=False)), **kwargs}
        constexprs = {p.name: repr(values[p.name])[:200] for p in self.params
                      if p.is_constexpr and p.name in values}
        if not tuned[0]:
            launches[0] += 1
        common: dict[str, Any] = {"kernel": self.fn.__name__, "target": name, "config": tuned[0],
                                  "constexprs": constexprs, "launch": launches[0]}
        try:
            kernel = original(self, *args, grid=grid, warmup=True, **kwargs)
        except Exception as error:
            # what an extension would have made may be of another dtype or shape
            kind = "ToolchainError" if recorder.pretended else type(error).__name__
            recorder.compiled.append(Compiled(
                **common, seconds=time.perf_counter() - began, error=_short(error), error_type=kind))
            return None
        binary = kernel.asm.get("cubin" if target.backend == "cuda" else "hsaco")
        metadata = kernel.metadata
        usage = _usage(binary) if target.backend == "cuda" else amdgcn_usage(kernel.asm.get("amdgcn"))
        recorder.compiled.append(Compiled(
            **common, seconds=time.perf_counter() - began, shared=int(metadata.shared) + usage.get("shared", 0),
            tensor_memory=int(getattr(metadata, "tmem_size", 0) or 0), warps=int(metadata.num_warps),
            registers=usage.get("registers"), stack=usage.get("stack"), spilled=usage.get("spilled"),
            scalar_registers=usage.get("scalar_registers"),
            sha256=hashlib.sha256(binary).hexdigest() if isinstance(binary, bytes) else None))
        return kernel

    def tune(self: Any, *args: Any, **kwargs: Any) -> Any:
        # a configuration that does not fit is passed over by tuning: the first that fits is what would run
        self.nargs = dict(zip(self.arg_names, args, strict=False))
        result = None
        launches[0] += 1
        for config in self.prune_configs(kwargs):
            before = len(recorder.compiled)
            tuned[0] = str(config)[:300]
            try:
                result = self.fn.run(*args, **{**kwargs, **config.all_kwargs()})
            finally:
                tuned[0] = ""
            new = recorder.compiled[before:]
            if all(c.error is None and fits(c, target) is None for c in new):
                break
        self.nargs = None
        return result

    JITFunction.run = run
    Autotuner.run = tune
    after_import(EXTENSION, lambda module: _watch(module, recorder))
    return recorder


def _watch(module: Any, recorder: CompileOnly) -> None:
    """Make extensions with CUDA sources compile for the target and run nothing; others are built as ever."""
    before: list[Any] = [None]

    def compiled(*args: Any, **kwargs: Any) -> Any:
        given = inspect.signature(before[0]).bind(*args, **kwargs).arguments
        if not any(str(source).endswith((".cu", ".cuh")) for source in given["sources"]):
            return before[0](*args, **kwargs)
        recorder.extensions += _extension(given, module, recorder.target, len(recorder.extensions))
        return Unbuilt(recorder)

    for name in ("load", "load_inline"):
        original = getattr(module, name)

        @functools.wraps(original)
        def watched(*args: Any, original: Any = original, **kwargs: Any) -> Any:
            # whoever else watches builds has put itself in place by now
            if module.__dict__["_jit_compile"] is not compiled:
                before[0] = module.__dict__["_jit_compile"]
                module.__dict__["_jit_compile"] = compiled
            return original(*args, **kwargs)

        setattr(module, name, watched)


class Unbuilt:
    """An extension whose code does not run: its functions give back the first tensor they are passed."""

    def __init__(self, recorder: CompileOnly) -> None:
        self._recorder = recorder

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)

        def pretended(*args: Any, **kwargs: Any) -> Any:
            self._recorder.pretended = True
            return next((a for a in [*args, *kwargs.values()] if isinstance(a, torch.Tensor)), None)

        return pretended


def _extension(given: dict[str, Any], module: Any, target: Target, known: int) -> list[Compiled]:
    """What the kernels of one extension take, from its build for the target where that is at hand."""
    if target.backend != "cuda":
        return [Compiled(str(given["name"]), target.key, "", {}, 0.0, -1 - known, "CUDA C++ is not compiled for it",
                         "ToolchainError")]
    key = builds.key_of(given, str(target.capability))
    built = os.path.join(os.getcwd(), "builds", key, f"{given['name']}.so")
    outcome = extension_resources.read_built(built, target.key) if os.path.exists(built) else None
    outcome = outcome or extension_resources.compile_for(given, module, target.key)
    common: dict[str, Any] = {"target": target.key, "config": "", "constexprs": {}, "seconds": outcome.seconds}
    if outcome.error:
        kind = "BuildError" if outcome.refused else "ToolchainError"
        return [Compiled(kernel=str(given["name"]), **common, launch=-1 - known, error=outcome.error, error_type=kind)]
    return [Compiled(kernel=k.kernel, **common, launch=-1 - known - i, shared=k.shared, registers=k.registers,
                     stack=k.stack, spilled=k.spilled) for i, k in enumerate(outcome.taken)]


def fits(compiled: Compiled, target: Target) -> tuple[str, int, int] | None:
    """None when a kernel fits, else (resource, needed, limit)."""
    if compiled.shared > target.shared_per_block_optin:
        return "shared memory bytes", compiled.shared, target.shared_per_block_optin
    if compiled.tensor_memory > target.tensor_memory_columns:
        return "tensor-memory columns", compiled.tensor_memory, target.tensor_memory_columns
    threads = compiled.warps * target.warp_size
    if threads > target.threads_per_block:
        return "threads", threads, target.threads_per_block
    if compiled.registers and compiled.registers * threads > target.registers_per_multiprocessor:
        return "registers", compiled.registers * threads, target.registers_per_multiprocessor
    return None


def _short(error: BaseException) -> str:
    lines = [line for line in str(error).splitlines() if line.strip()]
    return "\n".join(lines[-6:])[:1000]


def amdgcn_usage(assembly: Any) -> dict[str, int]:
    """Registers, spills, scratch and static local data of the one kernel in an assembly for a chip of AMD.

    They stand in the metadata of the code object: LLVM's user guide of the AMDGPU backend, code object V3 and later.
    """
    if not isinstance(assembly, str):
        return {}
    said = {name: int(value) for name, value in _METADATA.findall(assembly)}
    if not said:
        return {}
    spilled = said.get("vgpr_spill_count", 0) + said.get("sgpr_spill_count", 0)
    return {"registers": said.get("vgpr_count", 0), "scalar_registers": said.get("sgpr_count", 0),
            "stack": said.get("private_segment_fixed_size", 0), "spilled": 4 * spilled,
            "shared": said.get("group_segment_fixed_size", 0)}


def _usage(cubin: Any) -> dict[str, int]:
    """Registers, stack and local memory of a cubin, as the disassembler reports them."""
    tool = extension_resources.find("cuobjdump")
    if not isinstance(cubin, bytes) or tool is None:
        return {}
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        try:
            done = subprocess.run([tool, "--dump-resource-usage", file.name], capture_output=True, text=True,
                                  timeout=20, check=False)
        except (OSError, subprocess.TimeoutExpired):
            return {}
    found: dict[str, int] = {}
    for register, stack, local in _USAGE.findall(done.stdout):
        if register:
            found["registers"] = max(found.get("registers", 0), int(register))
        if stack:
            found["stack"] = max(found.get("stack", 0), int(stack))
        if local:
            found["spilled"] = max(found.get("spilled", 0), int(local))
    return found
