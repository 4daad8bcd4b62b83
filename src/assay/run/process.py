"""The judge's side of a process: the warm parent, and one worker with its channel, pipes and deadline."""

from __future__ import annotations

import array
import contextlib
import fcntl
import itertools
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
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from assay.errors import InputError
from assay.run import killed, sandbox
from assay.run.wire import HEADER_LIMIT, HOSTILE_HEADER_LIMIT, Frame, FrameReader, WireFault, encode, ready

OUTPUT_TAIL = 4096
OUTPUT_LIMIT = 32 << 20
REAP_SECONDS = 20.0
_F_ADD_SEALS = 1033
_F_SEAL_SEAL, _F_SEAL_SHRINK = 1, 2
_PASSED_ON = ("PATH", "LD_LIBRARY_PATH", "PYTHONPATH", "PYTHONHOME", "LANG", "LC_ALL", "TZ")
_PASSED_ON_PREFIXES = ("CUDA_", "NVIDIA_", "TRITON_", "TORCH_")


@dataclass(frozen=True)
class Death:
    """How a worker ended, as its guardian saw it.

    Attributes:
        kind: exited, signalled, timed_out, closed (it shut its channel), forged (not a frame, or one that
            nobody asked for), flooded (printed more than the limit), guardian_lost, machine (the kernel
            ended it, or its guardian, for want of memory).
        code: exit status or signal number, where there is one.
        left: running processes it left behind.
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
        return {"address_space": self.address_space, "file_bytes": self.file_bytes,
                "open_files": self.open_files}


class Zygote:
    """The warm parent of one judge. Use as a context manager, or call `close`.

    Args:
        sandbox: how candidates are confined: `auto` as far as the machine allows, `strict` not at all unless
            fully, `off` by limits, environment and directory alone.

    Raises:
        InputError: `sandbox` is `strict` and this machine cannot, or it is no mode.
        RuntimeError: from `spawn`, when the warm parent died or never came up.
    """

    def __init__(self, sandbox: str = "auto") -> None:
        self.sandbox = checked_mode(sandbox)
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._lock = threading.Lock()
        self._numbers = itertools.count(1)
        self._directory = tempfile.mkdtemp(prefix="assay-")
        os.chmod(self._directory, 0o711)
        self._process = subprocess.Popen(
            [sys.executable, "-m", "assay.run.zygote", str(theirs.fileno()), self._directory],
            pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL, env=_zygote_environment(),
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
                if self.sandbox != "off":
                    sandbox.level()
                self._await(timeout)
                self._ready = True

    def _await(self, timeout: float) -> dict[str, Any]:
        if not ready(self._sock, timeout):
            raise RuntimeError("the warm parent of the workers did not answer in time")
        try:
            data = self._sock.recv(1 << 16)
        except OSError:
            data = b""
        if not data:
            raise self._gone()
        result: dict[str, Any] = json.loads(data)
        return result

    def _gone(self) -> RuntimeError:
        try:
            status: object = self._process.wait(5)
        except subprocess.TimeoutExpired:
            status = "unknown"
        return RuntimeError(f"the warm parent of the workers is gone (status {status})")

    def level(self, mode: str | None = None) -> sandbox.Level:
        """How candidates are confined: by `mode`, or by this warm parent's own.

        Raises:
            InputError: the mode is `strict` and this machine does not reach it.
        """
        mode = self.sandbox if mode is None else checked_mode(mode)
        return sandbox.OFF if mode == "off" else sandbox.level()

    def spawn(self, role: str, *, options: dict[str, Any] | None = None, limits: Limits | None = None,
              confinement: str | None = None, hide: Sequence[str] = ()) -> Worker:
        """Fork a worker.

        Args:
            role: `candidate` or `reference`; only a candidate is confined.
            options: for the worker's own code.
            limits: resource limits.
            confinement: `auto`, `strict` or `off`; None for this warm parent's own.
            hide: files that the worker finds empty.

        Raises:
            RuntimeError: the warm parent is gone.
            InputError: as `level`.
        """
        self.wait_ready()
        number = next(self._numbers)
        hostile = role == "candidate"
        box = sandbox.box(self.level(confinement), number, hide) if hostile else sandbox.Box()
        with contextlib.ExitStack() as undo:
            channel, theirs = socket.socketpair()
            control, control_theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            for sock in (channel, theirs, control, control_theirs):
                undo.callback(sock.close)
            out_read, out_write = os.pipe()
            err_read, err_write = os.pipe()
            arena = os.memfd_create("arena", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
            for fd in (out_read, out_write, err_read, err_write, arena):
                undo.callback(os.close, fd)
            # it grows as the judge needs; nobody may take back what the judge has written
            fcntl.fcntl(arena, _F_ADD_SEALS, _F_SEAL_SHRINK | _F_SEAL_SEAL)
            directory = os.path.join(self._directory, f"w{number}")
            os.mkdir(directory, 0o700)
            undo.callback(shutil.rmtree, directory, ignore_errors=True)
            if box.uid is not None:
                os.chown(directory, box.uid, box.uid)
            spec = {"role": role, "directory": directory, "environment": _worker_environment(directory),
                    "limits": (limits or Limits()).to_json(), "options": options or {}, "box": box.to_json()}
            passed = [theirs.fileno(), out_write, err_write, control_theirs.fileno(), arena]
            with self._lock:
                try:
                    self._sock.sendmsg([json.dumps(spec).encode()],
                                       [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", passed))])
                except OSError:
                    raise self._gone() from None
                answer = self._await(30.0)
            if "pid" not in answer:
                raise RuntimeError(f"a worker could not be started: {answer.get('failed')}")
            undo.pop_all()
            for sock in (theirs, control_theirs):
                sock.close()
            for fd in (out_write, err_write):
                os.close(fd)
        return Worker(pid=int(answer["pid"]), channel=channel, control=control, out=out_read, err=err_read,
                      arena=arena, directory=directory, hostile=hostile)

    def close(self) -> None:
        """End the warm parent and everything it started."""
        self._sock.close()
        if not self._ready:
            # still importing: it has forked nothing that would need its care
            self._process.kill()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        shutil.rmtree(self._directory, ignore_errors=True)

    def __enter__(self) -> Zygote:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _receive(sock: socket.socket, flags: int = 0) -> bytes:
    """One message. A peer that closed with an order unread first makes an error, and what it sent comes after."""
    try:
        return sock.recv(4096, flags)
    except ConnectionResetError:
        return sock.recv(4096, flags)


def checked_mode(mode: str) -> str:
    """A mode of confinement. Raises InputError for one that is none, or that this machine does not reach."""
    if mode not in sandbox.MODES:
        raise InputError(f"unknown sandbox `{mode}`", "--sandbox", "use auto, strict or off")
    if mode == "strict" and not (found := sandbox.level()).full:
        raise InputError(f"this machine does not confine candidates fully: {found.missing}", "--sandbox",
                         "use auto, or allow namespaces here: see `assay doctor`")
    return mode


def _zygote_environment() -> dict[str, str]:
    """What the warm parent starts with. Its children can read it for ever, so nothing else may be in it."""
    kept = {name: value for name, value in os.environ.items()
            if name in _PASSED_ON or name.startswith(_PASSED_ON_PREFIXES)}
    kept.pop("TRITON_INTERPRET", None)
    return {**kept, "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "PYTHONHASHSEED": "0",
            "PYTHONDONTWRITEBYTECODE": "1"}


def _worker_environment(directory: str) -> dict[str, str]:
    """A worker's environment: its own home and directories, and where the machine keeps its libraries."""
    found = {"HOME": directory, "TMPDIR": directory, "USER": "assay", "LOGNAME": "assay",
             "PATH": os.environ.get("PATH", ""), "LANG": "C.UTF-8", "OMP_NUM_THREADS": "1",
             "TRITON_CACHE_DIR": f"{directory}/triton", "TORCHINDUCTOR_CACHE_DIR": f"{directory}/inductor",
             # no pool of compiling processes that outlives a call
             "TORCHINDUCTOR_COMPILE_THREADS": "1"}
    for name in ("CUDA_VISIBLE_DEVICES", "CUDA_HOME", "LD_LIBRARY_PATH"):
        if name in os.environ:
            found[name] = os.environ[name]
    return found


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
    hostile: bool = True
    arena_used: int = 0
    printed: int = 0
    stubs_given: set[str] = field(default_factory=set)
    """Keys of the launcher stubs that it was handed."""
    stubs_told: int = 0
    """Launcher stubs that it said it had built."""
    _tail: bytearray = field(default_factory=bytearray)
    _open: set[int] = field(default_factory=set)
    death: Death | None = None
    _memory_kills: dict[str, int] = field(default_factory=killed.counted)

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
        reader = FrameReader(self.channel, HOSTILE_HEADER_LIMIT if self.hostile else HEADER_LIMIT,
                             payload_limit, strict=self.hostile)
        deadline = time.monotonic() + timeout
        channel, control = self.channel.fileno(), self.control.fileno()
        if ready(self.channel, 0) and not ready(self.control, 0):
            # nobody has asked yet: a second answer, or a first one to the next question
            return self._end("closed" if self._is_closed() else "forged")
        self._memory_kills = killed.counted()
        while True:
            left = deadline - time.monotonic()
            if left <= 0:
                return self._end("timed_out")
            poll = select.poll()
            for fd in (control, *self._open):
                poll.register(fd, select.POLLIN)
            poll.register(channel, select.POLLIN | (select.POLLOUT if pending else 0))
            events = dict(poll.poll(min(left, 3600.0) * 1000))
            for fd in list(self._open):
                if fd in events:
                    self._drain(fd)
            if self.printed > OUTPUT_LIMIT:
                return self._end("flooded")
            readable = events.get(channel, 0) & ~select.POLLOUT
            try:
                if readable:
                    frame = reader.step()
                    if frame is not None:
                        return frame
                if events.get(channel, 0) & select.POLLOUT and pending:
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
            if control in events and not readable:
                return self._end("closed")

    def census(self) -> tuple[int, tuple[str, ...]]:
        """Running processes beside the worker itself, and files that it left elsewhere; none when it ended."""
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
            self.control.send(b"census")
            if ready(self.control, REAP_SECONDS):
                # an end that came first stays where `_reap` looks for it
                report = json.loads(_receive(self.control, socket.MSG_PEEK))
                if "others" in report:
                    self.control.recv(4096)
                    return int(report["others"]), tuple(map(str, report.get("files", ())))
        return 0, ()

    def reserve(self, size: int) -> None:
        """Make the shared memory at least `size` bytes long."""
        if os.fstat(self.arena).st_size < size:
            os.ftruncate(self.arena, size)

    def kill(self) -> None:
        """Order the worker's end from any thread; whoever waits for its answer sees it end."""
        with contextlib.suppress(OSError):
            self.control.send(b"kill")

    def _is_closed(self) -> bool:
        try:
            return not self.channel.recv(1, socket.MSG_PEEK)
        except OSError:
            return True

    def _drain(self, fd: int) -> None:
        data = os.read(fd, 1 << 16)
        if not data:
            self._open.discard(fd)
            return
        self.printed += len(data)
        self._tail += data
        del self._tail[:-OUTPUT_TAIL]

    def _end(self, kind: str) -> Death:
        """Kill what is left, learn from the guardian how it ended, and remember that.

        Raises:
            RuntimeError: the worker could not be set up, which is no doing of a candidate.
        """
        report = self._reap(wait=2.0 if kind == "closed" else 0.0)
        for fd in list(self._open):
            poll = select.poll()
            poll.register(fd, select.POLLIN)
            while fd in self._open and poll.poll(0) and self.printed <= 2 * OUTPUT_LIMIT:
                self._drain(fd)
        code, left = None, int(report.get("left", 0))
        status = report.get("status")
        by_kill = status is None or (os.WIFSIGNALED(int(status)) and os.WTERMSIG(int(status)) == signal.SIGKILL)
        if kind == "closed" and by_kill and killed.moved(self._memory_kills):
            kind = "machine"
        elif kind == "closed" and "status" not in report:
            kind = "guardian_lost"
        elif kind == "closed" and not report.get("killed"):
            status = int(report["status"])
            if os.WIFSIGNALED(status):
                kind, code = "signalled", os.WTERMSIG(status)
            else:
                kind, code = "exited", os.WEXITSTATUS(status)
        self.death = Death(kind, code, left, self.tail)
        self._release()
        if "failed" in report:
            raise RuntimeError(f"a worker could not be confined: {report['failed']}")
        return self.death

    def _reap(self, wait: float) -> dict[str, Any]:
        """Wait a little for a natural end, then order the kill; what the guardian says, if it does."""
        if not ready(self.control, wait):
            self.kill()
        deadline = time.monotonic() + REAP_SECONDS
        while ready(self.control, deadline - time.monotonic()):
            try:
                report = json.loads(_receive(self.control))
            except (OSError, ValueError):
                break
            # the answer to a census that nobody waited for any more
            if "others" not in report:
                return dict(report)
        # its guardian does not answer: it is gone, or ends now and takes everything with it
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(self.pid, signal.SIGKILL)
        return {}

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
