"""C++ and CUDA extensions that a candidate builds: built once, handed on, and their errors in one line.

Runs in the candidate's worker. Each build is named by the hash of its sources, flags and compilers. What the judge
has kept of an earlier worker of the same candidate lies in a folder of the worker's own and is loaded from
there; what is built anew is offered to the judge with the next reply.
"""

from __future__ import annotations

import functools
import hashlib
import inspect
import os
import re
import sys
from collections.abc import Sequence
from types import ModuleType
from typing import Any

import torch

from assay.run.emulation.extensions import EXTENSION, after_import

LARGEST = 32 << 20
"""Bytes of the largest build that is handed on."""
MOST = 16
"""Builds of one candidate that are handed on."""
NAME = re.compile(r"[A-Za-z0-9_]{1,100}")
_ERROR = re.compile(r"^(?P<file>[^\s:(]+)[:(](?P<line>\d+)\)?:(?:\d+:)?\s*"
                    r"(?P<text>(?:fatal )?error\s*:?.*)$", re.MULTILINE)
_FATAL = re.compile(r"^.*(?:nvcc fatal|ptxas fatal|ld: cannot find|collect2: error|error:).*$", re.MULTILINE)
_TOOLS = ("Ninja is required", "CUDA_HOME environment variable is not set", "nvcc fatal", "unsupported GNU version",
          "cannot find -l", "No such file or directory: 'nvcc'", "nvcc: not found", "g++: not found",
          "CUDA version of the current", "mismatches the version that was used to compile", "Unknown CUDA arch")
_DRIFT = re.compile(r"(?:has no member|no member named|is not a member of)[^\n]*\b(?:at|c10|torch|caffe2|THC\w*)\b"
                    r"|\b(?:at|c10|torch|caffe2)::[\w:]*\"? (?:has no member|is undefined)"
                    r"|fatal error: (?:THC|TH|torch|ATen|c10|cutlass|cute|cu|nv|pybind11|Python)[\w./]*: No such file")


class ToolchainError(RuntimeError):
    """The extension cannot be built by the compilers and headers of this machine, which proves nothing of it."""


class BuildError(RuntimeError):
    """The extension's own sources do not compile."""


class Builds:
    """The builds of one worker: those it was given, and those it made.

    Args:
        directory: where kept builds are put; made when needed.
    """

    def __init__(self, directory: str) -> None:
        self._directory = directory
        self._fresh: list[tuple[str, str, str]] = []

    def restore(self, kept: Sequence[tuple[str, str, bytes]]) -> None:
        """Put builds that the judge kept, as (key, name, shared object), where they are looked for."""
        for key, name, data in kept:
            folder = os.path.join(self._directory, key)
            os.makedirs(folder, exist_ok=True)
            with open(os.path.join(folder, f"{name}.so"), "wb") as file:
                file.write(data)

    def offered(self) -> list[tuple[str, str, bytes]]:
        """What was built since the last question, as (key, name, shared object)."""
        found = []
        for key, name, path in self._fresh[:MOST]:
            try:
                if os.path.getsize(path) <= LARGEST:
                    with open(path, "rb") as file:
                        found.append((key, name, file.read()))
            except OSError:
                continue
        self._fresh.clear()
        return found

    def install(self) -> None:
        """Watch the extensions that are built in this process from now on; their kernels tell lines of their source."""
        # changes tables for debuggers alone, no instruction
        os.environ.setdefault("NVCC_APPEND_FLAGS", "-lineinfo")
        after_import(EXTENSION, self._watch)

    def _watch(self, module: ModuleType) -> None:
        build: Any = module.__dict__["_jit_compile"]
        load: Any = module.__dict__["_import_module_from_library"]
        signature = inspect.signature(build)

        @functools.wraps(build)
        def built(*args: Any, **kwargs: Any) -> Any:
            given = signature.bind(*args, **kwargs).arguments
            name = str(given["name"])
            module_of_python = bool(given.get("is_python_module", True))
            plain = bool(NAME.fullmatch(name)) and not given.get("is_standalone", False)
            key = key_of(given) if plain else ""
            if key and os.path.exists(os.path.join(self._directory, key, f"{name}.so")):
                return load(name, os.path.join(self._directory, key), module_of_python)
            try:
                result = build(*args, **kwargs)
            except Exception as error:
                raise explained(error) from None
            if key:
                # a library of operators is known by its path alone
                path = str(getattr(result, "__file__", result))
                self._fresh.append((key, name, path))
            return result

        module.__dict__["_jit_compile"] = built


def key_of(given: dict[str, Any], architecture: str | None = None) -> str:
    """Hash of everything that a build depends on: sources, flags, torch, CUDA, architectures.

    Args:
        given: arguments of torch's own build.
        architecture: compute capability as text, such as `(9, 0)`; None for that of the GPU at hand.
    """
    digest = hashlib.sha256()
    flags = {k: v for k, v in given.items() if k not in ("sources", "build_directory", "verbose")}
    parts = [repr(sorted(flags.items())), torch.__version__, str(torch.version.cuda), sys.version,
             os.environ.get("TORCH_CUDA_ARCH_LIST", ""),
             _architecture() if architecture is None else architecture]
    for source in given["sources"]:
        with open(source, "rb") as file:
            parts.append(hashlib.sha256(file.read()).hexdigest())
    for part in parts:
        digest.update(f"{len(part)}:{part}".encode())
    return digest.hexdigest()


def _architecture() -> str:
    """Compute capability of the GPU at hand, which builds are made for; empty without one."""
    if not torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        return ""
    return str(torch.cuda.get_device_capability())


def explained(error: Exception) -> Exception:
    """A failed build as one line: ToolchainError where the machine is at fault, else BuildError."""
    text = str(error)
    matter = first_error(text)
    if any(mark in text for mark in _TOOLS) or isinstance(error, FileNotFoundError) or _DRIFT.search(matter):
        return ToolchainError(matter)
    if isinstance(error, OSError) or "Error building extension" not in text:
        return error
    return BuildError(matter)


def first_error(text: str) -> str:
    """The line of a compiler's output that matters: file, line and message of the first error."""
    found = _ERROR.search(text)
    if found is not None:
        return f"{os.path.basename(found['file'])}:{found['line']}: {found['text'].strip()}"[:300]
    fatal = _FATAL.search(text)
    line = fatal.group(0) if fatal is not None else next((t for t in text.splitlines() if t.strip()), "")
    return line.strip()[:300]
