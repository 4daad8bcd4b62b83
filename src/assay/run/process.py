"""The judge's side of a process: the warm parent, and one worker with its channel, pipes and deadline."""

from __future__ import annotations

import array
import contextlib
import fcntl
import json
import os
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import dataclass, field
from typing import Any

from assay.run.wire import Frame, FrameReader, WireFault, encode

ARENA_BYTES = 64 << 30
OUTPUT_TAIL = 4096
OUTPUT_LIMIT = 32 << 20
_F_ADD_SEALS = 1033
_F_SEAL_SEAL, _F_SEAL_SHRINK, _F_SEAL_GROW = 1, 2, 4


@dataclass(frozen=True)
class Death:
    """How a worker ended, as its guardian saw it.

    Attributes:
        kind: exited, signalled, timed_out, closed (it shut its channel), forged (not a frame),
            flooded (printed more than the limit), guardian_lost.
        code: exit status or signal number, where there is one.
        left: processes it left behind.
        text: end of what it printed.
    """

    kind: str
    code: int | None = None
    left: int = 0
    text: str = ""


@dataclass(frozen=True)
class Limits:
    """Resource limits of a worker, in bytes; 0 sets none."""

    address_space: int = 0
    file_bytes: int = 256 << 20
    open_files: int = 1024

    def to_json(self) -> dict[str, int]:
        """As sent to the warm parent."""
        return {"address_space": self.address_space, "file_bytes": self.file_bytes, "open_files": self.open_files}


class Zygote:
    """The warm parent of one judge. Use as a context manager, or call `close`.

    Raises:
        RuntimeError: from `spawn`, when the warm parent died or never came up.
    """

    def __init__(self) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._lock = threading.Lock()
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "PYTHONHASHSEED": "0",
                       "PYTHONDONTWRITEBYTECODE": "1"}
        environment.pop("TRITON_INTERPRET", None)
        self._process = subprocess.Popen(
            [sys.executable, "-m", "assay.run.zygote", str(theirs.fileno())],
            pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL, env=environment,
        )
        theirs.close()
        self._sock = ours
        self._ready = False

    @property
    def alive(self) -> bool:
        """False once the warm parent has ended."""
        return self._process.poll() is None

    def wait_ready(self, timeout: float = 120.0) -> None:
        """Block until the imports are done."""
        with self._lock:
            if not self._ready:
                self._await(timeout)
                self._ready = True

    def _await(self, timeout: float) -> dict[str, Any]:
        if not select.select([self._sock], [], [], timeout)[0]:
            raise RuntimeError("the warm parent did not answer in time")
        data = self._sock.recv(1 << 16)
        if not data:
            raise RuntimeError(f"the warm parent ended with status {self._process.wait()}")
        result: dict[str, Any] = json.loads(data)
        return result

    def spawn(self, role: str, *, options: dict[str, Any] | None = None, limits: Limits | None = None) -> Worker:
        """Fork a worker of `role` (`candidate` or `reference`)."""
        self.wait_ready()
        channel, theirs = socket.socketpair()
        control, control_theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        out_read, out_write = os.pipe()
        err_read, err_write = os.pipe()
        arena = os.memfd_create("arena", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        os.ftruncate(arena, ARENA_BYTES)
        fcntl.fcntl(arena, _F_ADD_SEALS, _F_SEAL_SHRINK | _F_SEAL_GROW | _F_SEAL_SEAL)
        directory = tempfile.mkdtemp(prefix="assay-")
        environment = {"HOME": directory, "TMPDIR": directory, "PATH": os.environ.get("PATH", ""),
                       "LANG": "C.UTF-8", "OMP_NUM_THREADS": "1", "TRITON_CACHE_DIR": f"{directory}/triton"}
        for name in ("CUDA_VISIBLE_DEVICES", "CUDA_HOME", "LD_LIBRARY_PATH"):
            if name in os.environ:
                environment[name] = os.environ[name]
        spec = {"role": role, "directory": directory, "environment": environment,
                "limits": (limits or Limits()).to_json(), "options": options or {}}
        passed = [theirs.fileno(), out_write, err_write, control_theirs.fileno(), arena]
        with self._lock:
            try:
                self._sock.sendmsg([json.dumps(spec).encode()],
                                   [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", passed))])
                pid = int(self._await(30.0)["pid"])
            except OSError as error:
                raise RuntimeError(f"the warm parent is gone: {error}") from error
            finally:
                theirs.close()
                control_theirs.close()
                os.close(out_write)
                os.close(err_write)
        return Worker(pid=pid, channel=channel, control=control, out=out_read, err=err_read, arena=arena,
                      directory=directory)

    def close(self) -> None:
        """End the warm parent and everything it started."""
        self._sock.close()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def __enter__(self) -> Zygote:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


@dataclass
class Worker:
    """One live worker process, seen from the judge."""

    pid: int
    channel: socket.socket
    control: socket.socket
    out: int
    err: int
    arena: int
    directory: str
    arena_used: int = 0
    printed: int = 0
    _tail: bytearray = field(default_factory=bytearray)
    _open: set[int] = field(default_factory=set)
    death: Death | None = None

    def __post_init__(self) -> None:
        self.channel.setblocking(False)
        self._open = {self.out, self.err}

    @property
    def alive(self) -> bool:
        """True until a request met its end."""
        return self.death is None

    @property
    def tail(self) -> str:
        """The last few kilobytes that it printed."""
        return self._tail.decode(errors="replace")

    def request(self, header: dict[str, Any], chunks: list[memoryview] | None = None, *, timeout: float,
                payload_limit: int) -> Frame | Death:
        """Send one frame and wait for one frame. A Death when the worker ended or broke the protocol.

        Args:
            header: JSON data.
            chunks: payload pieces.
            timeout: seconds for the whole exchange.
            payload_limit: largest reply accepted, bytes.
        """
        if self.death is not None:
            return self.death
        chunks = chunks or []
        pending = [memoryview(encode(header, sum(len(c) for c in chunks))), *[c for c in chunks if len(c)]]
        reader = FrameReader(self.channel, payload_limit=payload_limit)
        deadline = time.monotonic() + timeout
        while True:
            left = deadline - time.monotonic()
            if left <= 0:
                return self._end("timed_out")
            readers = [self.channel, self.control, *self._open]
            writers = [self.channel] if pending else []
            ready, writable, _ = select.select(readers, writers, [], left)
            for fd in list(self._open):
                if fd in ready:
                    self._drain(fd)
            if self.printed > OUTPUT_LIMIT:
                return self._end("flooded")
            try:
                if self.channel in ready:
                    frame = reader.step()
                    if frame is not None:
                        return frame
                if writable:
                    count = self.channel.send(pending[0])
                    pending[0] = pending[0][count:]
                    if not len(pending[0]):
                        pending.pop(0)
            except BlockingIOError:
                continue
            except WireFault as fault:
                return self._end("closed" if fault.kind == "closed" else "forged")
            except OSError:
                return self._end("closed")
            if self.control in ready and self.channel not in ready:
                return self._end("closed")

    def _drain(self, fd: int) -> None:
        data = os.read(fd, 1 << 16)
        if not data:
            self._open.discard(fd)
            return
        self.printed += len(data)
        self._tail += data
        del self._tail[:-OUTPUT_TAIL]

    def _end(self, kind: str) -> Death:
        """Kill what is left, learn from the guardian how it ended, and remember that."""
        status, left = self._reap(wait=2.0 if kind == "closed" else 0.0)
        for fd in list(self._open):
            while fd in self._open and select.select([fd], [], [], 0)[0] and self.printed <= 2 * OUTPUT_LIMIT:
                self._drain(fd)
        code = None
        if status is None:
            kind = "guardian_lost" if kind == "closed" else kind
        elif kind == "closed":
            if os.WIFSIGNALED(status):
                kind, code = "signalled", os.WTERMSIG(status)
            else:
                kind, code = "exited", os.WEXITSTATUS(status)
        self.death = Death(kind, code, left, self.tail)
        self._release()
        return self.death

    def _reap(self, wait: float) -> tuple[int | None, int]:
        """Wait a little for a natural end, then order the kill; the wait status and the leftover count."""
        if not select.select([self.control], [], [], wait)[0]:
            with contextlib.suppress(OSError):
                self.control.send(b"kill")
        if select.select([self.control], [], [], 20.0)[0]:
            with contextlib.suppress(OSError, ValueError, KeyError):
                report = json.loads(self.control.recv(4096))
                return int(report["status"]), int(report["left"])
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        return None, 0

    def _release(self) -> None:
        self.channel.close()
        self.control.close()
        for fd in (self.out, self.err, self.arena):
            with contextlib.suppress(OSError):
                os.close(fd)
        self._open.clear()
        shutil.rmtree(self.directory, ignore_errors=True)

    def close(self) -> Death:
        """End the worker; how it had ended if it already had."""
        return self.death or self._end("closed_by_judge")
