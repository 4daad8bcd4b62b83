"""What the kernels of a CUDA C++ extension take, read from what was built or compiled anew for a target.

Needs no GPU: `nvcc` compiles the device code of each source for the target, and `ptxas` says what every kernel takes.
Where the extension was built for that very target already, its shared object is read instead. Dynamic shared memory
and the size of blocks are chosen at launch, so neither is known here.
"""

from __future__ import annotations

import hashlib
import inspect
import os
import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

RESERVED = 1024
"""Bytes of shared memory that the system takes of each block; from sm_90 on cuobjdump counts them in."""
SECONDS = 150.0
"""Seconds that the compilation of one source may take."""
_INFO = re.compile(r"Compiling entry function '(?P<name>[^']+)' for '(?P<target>\w+)'")
_STACK = re.compile(r"(?P<stack>\d+) bytes stack frame, (?P<stores>\d+) bytes spill stores, (?P<loads>\d+) bytes spill")
_USED = re.compile(r"Used (?P<registers>\d+) registers")
_SHARED = re.compile(r"(\d+) bytes smem|(\d+)\+(\d+) bytes smem")
_FUNCTION = re.compile(r"^\s*Function (?P<name>[^:]+):")
_USAGE = re.compile(r"REG:(?P<registers>\d+).*?STACK:(?P<stack>\d+).*?SHARED:(?P<shared>\d+).*?LOCAL:(?P<local>\d+)")
_ARCH = re.compile(r"^arch\s*=\s*(?P<arch>sm_\w+)", re.MULTILINE)
_REFUSED = re.compile(r"^.*(?:ptxas (?:error|fatal)|ptxas [^\n]*; error)\s*:.*$", re.MULTILINE)
_GENCODE = re.compile(r"(?:arch|code|gpu-architecture)[= ,]*(?:compute_|sm_)(?P<capability>\d+)(?P<variant>[af])?\b")


@dataclass(frozen=True)
class Taken:
    """What one kernel takes; sizes in bytes."""

    kernel: str
    """Name without namespaces, template arguments and parameters."""
    registers: int
    """32-bit registers of a thread."""
    stack: int
    """Stack frame of a thread."""
    spilled: int
    """Of that, or beside it: bytes stored to local memory because registers ran out."""
    shared: int
    """Static shared memory of a block."""


@dataclass(frozen=True)
class Outcome:
    """What compiling or reading one extension for a target gave.

    Attributes:
        taken: its kernels.
        error: why there are none, or the assembler's refusal of one.
        refused: whether the error is the assembler's, for this target; else it is a matter of the machine.
        seconds: time it took.
    """

    taken: tuple[Taken, ...] = ()
    error: str = ""
    refused: bool = False
    seconds: float = 0.0


def find(tool: str) -> str | None:
    """Path of a tool of the CUDA toolkit, or of Triton's copy; None where there is none."""
    home = os.environ.get("CUDA_HOME") or os.environ.get("CUDA_PATH") or "/usr/local/cuda"
    found = shutil.which(tool) or shutil.which(tool, path=f"{home}/bin")
    if found is None and tool == "cuobjdump":
        with_triton = _with_triton(tool)
        return str(with_triton) if with_triton.exists() else None
    return found


def _with_triton(tool: str) -> Path:
    import triton

    return Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / tool


def read_built(path: str, target: str) -> Outcome | None:
    """Kernels of a shared object that hold machine code for a target; None where there is none, or no tool."""
    tool = find("cuobjdump")
    if tool is None:
        return None
    began = time.perf_counter()
    try:
        done = subprocess.run([tool, "--dump-resource-usage", path], capture_output=True, text=True, timeout=60,
                              check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    taken = of_objdump(done.stdout, target)
    return Outcome(taken, seconds=time.perf_counter() - began) if taken else None


def of_objdump(text: str, target: str) -> tuple[Taken, ...]:
    """Kernels in what `cuobjdump --dump-resource-usage` prints, of the parts made for a target."""
    found: list[Taken] = []
    reserved = RESERVED if int(re.sub(r"\D", "", target) or 0) >= 90 else 0
    for part in re.split(r"^Fatbin .*$", text, flags=re.MULTILINE):
        arch = _ARCH.search(part)
        if arch is not None and arch["arch"].rstrip("af") != target:
            continue
        name = ""
        for line in part.splitlines():
            if function := _FUNCTION.match(line):
                name = function["name"]
            elif name and (usage := _USAGE.search(line)):
                found.append(Taken(plain_name(name), int(usage["registers"]), int(usage["stack"]),
                                   int(usage["local"]), max(0, int(usage["shared"]) - reserved)))
                name = ""
    return tuple(found)


def of_ptxas(text: str) -> tuple[Taken, ...]:
    """Kernels in what `ptxas -v` prints."""
    found: list[Taken] = []
    name, stack, spilled = "", 0, 0
    for line in text.splitlines():
        if info := _INFO.search(line):
            name, stack, spilled = info["name"], 0, 0
        elif name and (frame := _STACK.search(line)):
            stack, spilled = int(frame["stack"]), int(frame["stores"])
        elif name and (used := _USED.search(line)):
            shared = sum(int(n) for m in _SHARED.findall(line) for n in m if n)
            found.append(Taken(plain_name(name), int(used["registers"]), stack, spilled, shared))
            name = ""
    return tuple(found)


def plain_name(mangled: str) -> str:
    """`k` for `_ZN2ns1kIfEEvPKfi`: the last identifier of a nested name, by the Itanium C++ ABI."""
    if not mangled.startswith("_Z"):
        return mangled.strip()
    at, last = 2, ""
    nested = mangled[at:at + 1] == "N"
    at += nested
    while digits := re.match(r"L?(\d+)", mangled[at:]):
        at += digits.end()
        end = at + int(digits[1])
        last, at = mangled[at:end], end
        if not nested:
            break
    return last or mangled


def compile_for(given: Mapping[str, Any], module: Any, target: str) -> Outcome:
    """Compile the device code of an extension for a target.

    Args:
        given: arguments of torch's own build: `sources`, `extra_cuda_cflags`, `extra_include_paths`.
        module: `torch.utils.cpp_extension`, whose flags are used.
        target: such as `sm_90`.
    """
    nvcc = find("nvcc")
    if nvcc is None:
        return Outcome(error="nvcc is not installed")
    began, taken = time.perf_counter(), list[Taken]()
    for source in given["sources"]:
        if not str(source).endswith((".cu", ".cuh")):
            continue
        with tempfile.TemporaryDirectory() as folder:
            run = [nvcc, *_flags(given, module, target), "-Xptxas", "-v", "-cubin", "-o", f"{folder}/k.cubin",
                   str(source)]
            try:
                done = subprocess.run(run, capture_output=True, text=True, errors="replace", timeout=SECONDS,
                                      check=False)
            except subprocess.TimeoutExpired:
                return Outcome(error=f"nvcc did not finish in {SECONDS:.0f} s")
            except OSError as error:
                return Outcome(error=f"nvcc does not run: {error}")
        text = done.stdout + done.stderr
        if done.returncode:
            from assay.run.builds import first_error

            refused = _REFUSED.search(text)
            return Outcome(error=refused.group(0).strip()[:300] if refused else first_error(text)[:300],
                           refused=refused is not None, seconds=time.perf_counter() - began)
        taken += of_ptxas(text)
    return Outcome(tuple(taken), seconds=time.perf_counter() - began)


def _flags(given: Mapping[str, Any], module: Any, target: str) -> list[str]:
    """nvcc's flags: torch's own, the candidate's without architectures, and the target's."""
    own = [str(flag) for flag in given.get("extra_cuda_cflags") or []]
    kept: list[str] = []
    skip = False
    for flag in own:
        if skip:
            skip = False
        elif flag in ("-gencode", "--generate-code", "-arch", "--gpu-architecture", "-code", "--gpu-code"):
            skip = True
        elif not flag.startswith(("-gencode", "--generate-code", "-arch", "--gpu-arch", "-code", "--gpu-code")):
            kept.append(flag)
    standard = [] if any("-std=" in flag for flag in kept) else [f"-std=c++{_standard(module)}"]
    paths = [*(given.get("extra_include_paths") or []), *module.include_paths()]
    # instructions that only one chip has need its own variant, which the candidate then asks for
    number = target.removeprefix("sm_")
    variants = {m["variant"] for m in _GENCODE.finditer(" ".join(own)) if m["capability"] == number and m["variant"]}
    chip = number + min(variants, default="")
    return [*module.COMMON_NVCC_FLAGS, *kept, *standard, f"-DTORCH_EXTENSION_NAME={given['name']}",
            "-DTORCH_API_INCLUDE_EXTENSION_H", *(f"-I{path}" for path in paths),
            *(f"-I{path}" for path in _python_headers()), f"-gencode=arch=compute_{chip},code=sm_{chip}"]


def _python_headers() -> list[str]:
    import sysconfig

    path = sysconfig.get_path("include")
    return [path] if path and os.path.isdir(path) else []


def _standard(module: Any) -> str:
    """The C++ standard that this torch builds extensions with."""
    found = re.search(r"-std=c\+\+(\d+)", inspect.getsource(module._write_ninja_file_to_build_library))
    found = found or re.search(r"-std=c\+\+(\d+)", inspect.getsource(module))
    return found[1] if found else "17"


def digest(sources: Sequence[str]) -> str:
    """SHA-256 of sources, which names an extension that was compiled from them."""
    found = hashlib.sha256()
    for source in sources:
        found.update(Path(source).read_bytes())
    return found.hexdigest()
