"""Compiles one launcher stub in a process that no candidate has been in, confined as a candidate's worker is.

The source may be hostile, so the process compiles no second one: what a compiler could be talked into ends with it.
"""

from __future__ import annotations

import os
import resource
import socket
from contextlib import suppress
from pathlib import Path
from typing import Any

from assay.run import wire
from assay.run.stubs import LARGEST, Stub, unoptimised

NICE = 10
"""Verdicts go first."""
MEMORY = 2 << 30
"""Bytes of data that the compiler may have beside what this process has."""
PROCESSOR_SECONDS = 15


def main(sock: socket.socket, arena_fd: int, spec: dict[str, Any]) -> None:
    """Answer one request: the object of a stub, or why there is none."""
    try:
        frame = wire.receive(sock)
    except wire.WireFault:
        return
    header: dict[str, Any] = {"ok": True}
    chunks: list[memoryview] = []
    try:
        _limit()
        chunks = [memoryview(compiled(Stub.from_json(frame.header["stub"]), os.getcwd()))]
    except Exception as error:
        header = {"error": f"{type(error).__name__}: {error}"[:300]}
    wire.send(sock, header, chunks)


def compiled(stub: Stub, folder: str) -> bytes:
    """The object of a stub, as Triton has it built.

    Args:
        stub: what it is built from.
        folder: where source and object are put.

    Raises:
        ValueError: headers from elsewhere than Triton's own folder, or an object that is too large.
        CalledProcessError: it does not compile.
    """
    import triton
    from triton.runtime import build

    root = Path(triton.__file__).resolve().parent
    if not all(Path(place).resolve().is_relative_to(root) for place in stub.include_dirs):
        raise ValueError("headers that are not Triton's")
    source = os.path.join(folder, f"{stub.name}.c")
    with open(source, "w", encoding="ascii") as file:
        file.write(stub.source)
    given: dict[str, Any] = {"name": stub.name, "src": source, "srcdir": folder,
                             "library_dirs": list(stub.library_dirs), "include_dirs": list(stub.include_dirs),
                             "libraries": list(stub.libraries)}
    if "ccflags" in build._build.__annotations__:
        given["ccflags"] = []
    with open(unoptimised(build._build)(**given), "rb") as file:
        data = file.read(LARGEST + 1)
    if not 0 < len(data) <= LARGEST:
        raise ValueError("no object, or too large a one")
    return data


def _limit() -> None:
    """Bound what the compiler takes, beyond the limits of the worker."""
    os.nice(NICE)
    with suppress(OSError, ValueError, IndexError):
        own = int(Path("/proc/self/statm").read_text().split()[5]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_DATA, (own + MEMORY, own + MEMORY))
        resource.setrlimit(resource.RLIMIT_CPU, (PROCESSOR_SECONDS, PROCESSOR_SECONDS))
