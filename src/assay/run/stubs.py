"""Host code with which Triton launches kernels: kept objects of it are used, and what had to be built is told.

Until Triton 3.6 each signature of a launch has a C compiler build a small extension of Python, the launcher stub; its
source follows from the signature alone, so that candidates of other sources need the same ones. The judge has those
that were told compiled in a process of its own (`stub_cache`), and hands the objects on to later workers.

Runs in the candidate's worker, which may lie: what it tells is source text, never an object. What it is handed is
sealed, so that only a worker in which Triton makes the very same source can read it: no candidate can leave another a
message there.
"""

from __future__ import annotations

import functools
import hashlib
import importlib.metadata
import importlib.util
import inspect
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from assay.run.builds import NAME

MOST = 16
"""Stubs that one process may tell of."""
LARGEST_SOURCE = 64 << 10
"""Bytes of the longest source that is told."""
LARGEST = 128 << 10
"""Bytes of the largest object that is kept."""
KEY = re.compile(r"[0-9a-f]{64}")
FLAGS = ("library_dirs", "include_dirs", "libraries")
_LIBRARY = re.compile(r"cuda|libcuda\.so(\.\d+)?")
_DIRECTORY = re.compile(r"/[^\0\n]{0,1000}")
_SPLICE = re.compile(r"\\[ \t\f\v\r]*\n")
_DIRECTIVE = re.compile(r'#[ \t]*(?:(?:define|undef|if|ifdef|ifndef|else|elif|endif|error)\b'
                        r'|include[ \t]*(?:<[A-Za-z0-9_][A-Za-z0-9_/]*\.h>|"[A-Za-z0-9_][A-Za-z0-9_/]*\.h")[ \t]*\n)')
_FOREIGN = re.compile(r"asm|_Pragma|\[\[|<:|%:|\?\?|\b__(?!FILE__|LINE__|OPTIMIZE__|triton_)")
"""What could read other files or make assembly of its own; no launcher has any of it."""


@dataclass(frozen=True)
class Stub:
    """What a launcher stub is built from.

    Attributes:
        name: of the extension.
        source: C, in ASCII.
        library_dirs, include_dirs, libraries: as Triton gives them to its compiler.
    """

    name: str
    source: str
    library_dirs: tuple[str, ...] = ()
    include_dirs: tuple[str, ...] = ()
    libraries: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """As told to the judge."""
        return {"name": self.name, "source": self.source, **{flag: list(getattr(self, flag)) for flag in FLAGS}}

    @staticmethod
    def from_json(data: Any) -> Stub:
        """Inverse of `to_json`. Raises ValueError for what is none, is too long, or reads other files than headers."""
        if not isinstance(data, dict) or set(data) != {"name", "source", *FLAGS}:
            raise ValueError("no stub")
        name, source = data["name"], data["source"]
        if not (isinstance(name, str) and NAME.fullmatch(name)):
            raise ValueError("no name of an extension")
        if not (isinstance(source, str) and source.isascii() and 0 < len(source) <= LARGEST_SOURCE):
            raise ValueError("no source, or too much of it")
        for flag, pattern in zip(FLAGS, (_DIRECTORY, _DIRECTORY, _LIBRARY), strict=True):
            given = data[flag]
            if not (isinstance(given, list) and len(given) <= MOST
                    and all(isinstance(item, str) and pattern.fullmatch(item) for item in given)):
                raise ValueError(f"no {flag}")
        if not reads_headers_alone(source):
            raise ValueError("reads other files than headers, or has assembly of its own")
        return Stub(name, source, *(tuple(data[flag]) for flag in FLAGS))

    def key(self, toolchain: str) -> str:
        """SHA-256 of all that its object depends on, in hexadecimal.

        Args:
            toolchain: as of `toolchain`.
        """
        return hashlib.sha256(b"key" + self._whole(toolchain)).hexdigest()

    def sealed(self, toolchain: str, data: bytes) -> bytes:
        """Its object as only who knows the source can read it; what is sealed becomes plain again."""
        stream = hashlib.shake_256(b"seal" + self._whole(toolchain)).digest(len(data))
        return (int.from_bytes(data, "big") ^ int.from_bytes(stream, "big")).to_bytes(len(data), "big")

    def _whole(self, toolchain: str) -> bytes:
        return json.dumps([toolchain, self.to_json()], sort_keys=True).encode()


def reads_headers_alone(source: str) -> bool:
    """Whether a compiler opens no other files for a source than headers by their plain names, and takes no assembly."""
    if hashlib.sha256(source.encode()).hexdigest() in _utilities():
        return True
    whole = _SPLICE.sub("", source)
    return _FOREIGN.search(whole) is None and all(
        _DIRECTIVE.match(whole, found.start()) for found in re.finditer("#", whole))


@functools.cache
def _utilities() -> frozenset[str]:
    """Digests of the sources that come with Triton, for its own use of a driver."""
    root = _triton()
    found = root.glob("backends/*/driver.c") if root is not None else ()
    return frozenset(hashlib.sha256(path.read_bytes()).hexdigest() for path in found)


def _triton() -> Path | None:
    """The folder of Triton; None where it is not installed. Does not import it."""
    found = importlib.util.find_spec("triton")
    return Path(found.origin).parent if found is not None and found.origin else None


@functools.cache
def toolchain() -> str:
    """Versions of Triton, Python and the C compiler that Triton takes; empty where one of them is missing."""
    compiler = shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        return ""
    try:
        said = subprocess.run([compiler, "--version"], capture_output=True, text=True, timeout=20, check=True).stdout
        return json.dumps([importlib.metadata.version("triton"), sys.version, sysconfig.get_config_var("SOABI"),
                           platform.machine(), os.path.realpath(compiler), said.partition("\n")[0]])
    except (OSError, subprocess.SubprocessError, importlib.metadata.PackageNotFoundError):
        return ""


def unoptimised(make: Callable[..., str]) -> Callable[..., str]:
    """Triton's `_build` with `-O0`, where it takes flags: a stub is called a few times, and compiling it is what costs.

    Args:
        make: `_build`, as Triton has it.
    """
    signature = inspect.signature(make)

    def made(**given: Any) -> str:
        if "ccflags" in signature.parameters:
            given["ccflags"] = [*(given.get("ccflags") or []), "-O0"]
        return make(**given)

    return made


def object_path(folder: str, name: str) -> str:
    """Where Triton's `_build` puts an extension."""
    return os.path.join(folder, f"{name}{sysconfig.get_config_var('EXT_SUFFIX')}")


class Stubs:
    """The stubs of one worker: objects that it was handed, and sources that it had to build."""

    def __init__(self) -> None:
        self._toolchain = ""
        self._kept: dict[str, bytes] = {}
        self._built: list[Stub] = []
        self._used: list[str] = []
        self._told = 0

    def restore(self, described: Mapping[str, Any] | None, payload: memoryview) -> None:
        """Remember what the judge hands on.

        Args:
            described: as of `StubCache.offer`; None where the judge keeps no stubs, and wants to know of none.
            payload: bytes of the objects, one after another.
        """
        if described is None:
            return
        self._toolchain = str(described["toolchain"])
        for key, size in described["kept"]:
            self._kept[key] = bytes(payload[:size])
            payload = payload[size:]

    def find(self, stub: Stub, folder: str) -> str | None:
        """Path of its object, written where Triton would have had it built; None where it has to be built."""
        key = stub.key(self._toolchain)
        sealed = self._kept.get(key)
        if sealed is None:
            return None
        path = object_path(folder, stub.name)
        try:
            with open(path, "wb") as file:
                file.write(stub.sealed(self._toolchain, sealed))
        except OSError:
            return None
        self._used.append(key)
        return path

    def built(self, stub: Stub) -> None:
        """Remember that a stub had to be built."""
        if self._toolchain and self._told < MOST:
            self._told += 1
            self._built.append(stub)

    def told(self) -> dict[str, Any] | None:
        """What was built and used since the last question; None for nothing."""
        built, used = self._built, self._used[:MOST]
        self._built, self._used = [], []
        return {"built": [stub.to_json() for stub in built], "used": used} if built or used else None


def asked_for(given: Mapping[str, Any]) -> Stub | None:
    """What Triton asks its compiler for; None where it is nothing that is kept.

    Args:
        given: arguments of `_build` by name.
    """
    try:
        from triton import knobs

        if given.get("ccflags") or knobs.build.impl or knobs.build.backend_dirs:
            return None
        with open(given["src"], encoding="ascii") as file:
            source = file.read(LARGEST_SOURCE + 1)
        return Stub.from_json({"name": given["name"], "source": source,
                               **{flag: list(given[flag]) for flag in FLAGS}})
    except (ImportError, AttributeError, KeyError, TypeError, ValueError, OSError):
        return None
