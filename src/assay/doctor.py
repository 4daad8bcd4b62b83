"""What this machine can check, found out by trying."""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from importlib import metadata

from assay.environment import driver_version, free_bytes

PYTHON = (3, 11)
TORCH, TRITON = (2, 9), (3, 4)
MEMORY_GIB = 4

_TASK = '''
import torch

class Model(torch.nn.Module):
    def forward(self, x):
        return x + x

N = 100

def get_inputs():
    return [torch.randn(N)]

def get_init_inputs():
    return []
'''

_CANDIDATE = '''
import torch
import triton
import triton.language as tl

@triton.jit
def double_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = at < n
    x = tl.load(x_ptr + at, mask=mask)
    tl.store(y_ptr + at, x + x, mask=mask)

class ModelNew(torch.nn.Module):
    def forward(self, x):
        assert x.is_cuda
        y = torch.empty_like(x)
        double_kernel[(triton.cdiv(x.numel(), 64),)](x, y, x.numel(), BLOCK=64)
        return y
'''


class State(StrEnum):
    """How one thing was found."""

    OK = "ok"
    LIMITED = "limited"
    MISSING = "missing"


@dataclass(frozen=True)
class Check:
    """One thing that verification rests on.

    Attributes:
        name: what it is.
        state: how it was found.
        found: version or measured fact.
        advice: what to install, and what that allows; empty when there is nothing to do.
        required: whether nothing can be verified without it.
    """

    name: str
    state: State
    found: str
    advice: str = ""
    required: bool = False


def examine() -> Iterator[Check]:
    """Every check, the quick ones first. The last ones run a kernel."""
    yield _python()
    yield _package("torch", TORCH, "pip install torch", required=True)
    yield _package("triton", TRITON, "pip install triton (Linux): Triton candidates run with it",
                   required=False)
    yield _memory()
    yield _gpu()
    yield _program("nvcc", ("--version",),
                   "install the CUDA toolkit: CUDA C++ candidates are compiled with it")
    yield _program("compute-sanitizer", ("--version",),
                   "comes with the CUDA toolkit: it names the source line of a bad access on a GPU")
    yield _isolation()
    yield from _kernels()


def _python() -> Check:
    fits = sys.version_info[:2] >= PYTHON
    return Check("python", State.OK if fits else State.MISSING, platform.python_version(),
                 "" if fits else f"install Python {PYTHON[0]}.{PYTHON[1]} or newer", required=True)


def _package(name: str, least: tuple[int, int], advice: str, *, required: bool) -> Check:
    try:
        version = metadata.version(name)
    except metadata.PackageNotFoundError:
        return Check(name, State.MISSING, "not installed", advice, required=required)
    numbers = tuple(int(part) for part in version.split("+")[0].split(".")[:2] if part.isdigit())
    if numbers < least:
        return Check(name, State.LIMITED, f"{version}, older than {least[0]}.{least[1]}", advice)
    return Check(name, State.OK, version, required=required)


def _memory() -> Check:
    free = free_bytes() / 2**30
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    enough = free >= MEMORY_GIB
    return Check("memory", State.OK if enough else State.LIMITED, f"{free:.1f} GiB free, {cores} cores",
                 "" if enough else f"free {MEMORY_GIB} GiB: probes that do not fit stay undecided")


def _gpu() -> Check:
    advice = "streams, races, real precision and timing need one; the rest runs under device emulation"
    try:
        import torch
    except ImportError:
        return Check("GPU", State.MISSING, "unknown without torch", advice)
    driver = driver_version()
    if not torch.cuda.is_available():
        if driver is not None and torch.version.cuda is None:
            return Check("GPU", State.MISSING,
                         f"driver {driver}, but torch {torch.__version__} has no CUDA",
                         "install a CUDA build of torch")
        return Check("GPU", State.MISSING, "none", advice)
    names = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]
    major, minor = torch.cuda.get_device_capability(0)
    return Check("GPU", State.OK, f"{len(names)} x {names[0]}, sm_{major}{minor}, driver {driver}")


def _program(name: str, arguments: tuple[str, ...], advice: str) -> Check:
    home = os.environ.get("CUDA_HOME") or os.environ.get("CUDA_PATH") or "/usr/local/cuda"
    path = shutil.which(name) or shutil.which(name, path=f"{home}/bin")
    if path is None:
        return Check(name, State.MISSING, "not found", advice)
    try:
        answer = subprocess.run([path, *arguments], capture_output=True, text=True, timeout=20, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return Check(name, State.LIMITED, f"{path} does not run: {error}"[:200], advice)
    lines = [line.strip() for line in (answer.stdout or answer.stderr).splitlines() if line.strip()]
    version = next((line for line in lines if re.search(r"\d\.\d", line)), path)
    return Check(name, State.OK, version)


def _isolation() -> Check:
    from assay.run import sandbox

    level = sandbox.level()
    if level.full:
        return Check("isolation", State.OK, "candidates run in namespaces of their own, without network")
    return Check("isolation", State.LIMITED, f"{level.name}: {', '.join(level.parts)}",
                 f"{level.missing or 'namespaces are not available'}; run as root or allow user namespaces, "
                 "to confine candidates fully")


def _kernels() -> Iterator[Check]:
    """Start the warm parent, and run a kernel that was written for CUDA."""
    try:
        from assay.run.process import Zygote
        from assay.screen import ScreenVariant, screen_task
        from assay.task import parse_candidate, parse_task
    except ImportError as error:
        yield Check("warm parent", State.MISSING, f"cannot be started: {error}", "install torch",
                    required=True)
        return
    began = time.monotonic()
    try:
        with Zygote() as zygote:
            zygote.wait_ready()
            seconds = time.monotonic() - began
            yield Check("warm parent", State.OK, f"started in {seconds:.1f} s", required=True)
            began = time.monotonic()
            report = screen_task(parse_task(_TASK, id="double"), parse_candidate(_CANDIDATE, id="double"),
                                 variant=ScreenVariant.HARDENED, timeout=60.0, zygote=zygote)
    except (RuntimeError, OSError) as error:
        yield Check("warm parent", State.MISSING, " ".join(str(error).split())[:200],
                    "workers are forked from it: allow processes and memory", required=True)
        return
    seconds = time.monotonic() - began
    if report.passed:
        yield Check("Triton kernel", State.OK, f"right on {report.scope}, {seconds:.1f} s", required=True)
    else:
        reason = report.reason.value if report.reason else report.outcome.value
        yield Check("Triton kernel", State.MISSING,
                    f"{reason} on {report.scope}: {report.text or ''}".strip(": "),
                    "a known right kernel does not run here: reinstall torch and triton", required=True)
