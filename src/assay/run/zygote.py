"""The warm parent: imports torch and triton once, then forks a guarded worker for each request.

Started by the judge as `python -m assay.run.zygote FD`; FD is a SOCK_SEQPACKET socket. Each request is one
JSON message with the descriptors `channel, stdout, stderr, control, arena`. The zygote answers with the
guardian's pid. When the socket closes, everything it ever started is killed and it exits.

It never touches CUDA, runs no task code and holds nothing secret, so what a worker inherits is empty.
"""

from __future__ import annotations

import array
import ctypes
import gc
import json
import os
import signal
import socket
import sys
from contextlib import suppress
from typing import Any

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
FD_COUNT = 5


def _prctl(option: int, value: int) -> None:
    ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0)


def _descendants(root: int) -> list[int]:
    """Pids below `root`, by /proc."""
    found, queue = [], [root]
    while queue:
        pid = queue.pop()
        with suppress(OSError):
            for task in os.listdir(f"/proc/{pid}/task"):
                with suppress(OSError), open(f"/proc/{pid}/task/{task}/children", encoding="ascii") as file:
                    children = [int(text) for text in file.read().split()]
                    found += children
                    queue += children
    return found


def _kill_descendants() -> int:
    """Kill and reap everything below this process; the number of processes that were found."""
    seen: set[int] = set()
    while True:
        below = _descendants(os.getpid())
        seen.update(below)
        for pid in below:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        try:
            while True:
                pid, _ = os.waitpid(-1, 0 if below else os.WNOHANG)
                if pid == 0:
                    break
                below = [p for p in below if p != pid]
        except ChildProcessError:
            return len(seen)


def _guard(worker: int, control: socket.socket) -> None:
    """Watch one worker until it ends or the judge says to kill it; report how it ended; kill what it left."""
    import select

    handle = os.pidfd_open(worker)
    select.select([handle, control], [], [])
    with suppress(ProcessLookupError):
        if not select.select([handle], [], [], 0)[0]:
            os.kill(worker, signal.SIGKILL)
    select.select([handle], [], [])
    _, status = os.waitpid(worker, 0)
    left = _kill_descendants()
    report = {"status": status, "left": left}
    with suppress(OSError):
        control.send(json.dumps(report).encode())


def _limit(spec: dict[str, Any]) -> None:
    import resource

    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    names = {"address_space": resource.RLIMIT_AS, "file_bytes": resource.RLIMIT_FSIZE,
             "open_files": resource.RLIMIT_NOFILE}
    for key, which in names.items():
        if spec.get(key):
            value = int(spec[key])
            resource.setrlimit(which, (value, value))


def _become_worker(spec: dict[str, Any], fds: list[int]) -> None:
    """Turn this fork into a worker: descriptors, environment, limits; then run its loop. Never returns."""
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    os.setpgid(0, 0)
    signal.set_wakeup_fd(-1)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGCHLD, signal.SIGPIPE):
        signal.signal(number, signal.SIG_DFL)
    channel, out, err, _, arena = fds
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.dup2(out, 1)
    os.dup2(err, 2)
    # low, fixed numbers; then nothing else stays open
    os.dup2(channel, 200)
    os.dup2(arena, 201)
    os.closerange(3, 200)
    os.closerange(202, 4096)
    os.environ.clear()
    os.environ.update(spec["environment"])
    os.chdir(spec["directory"])
    sys.argv = ["worker"]
    _limit(spec["limits"])
    gc.enable()
    if spec["role"] == "candidate":
        from assay.run.candidate_worker import main
    else:
        from assay.run.reference_worker import main
    main(socket.socket(fileno=200), 201, spec)


def _spawn(spec: dict[str, Any], fds: list[int], own: socket.socket) -> int:
    """Fork a guardian, which forks the worker. Returns the guardian's pid in the zygote."""
    pid = os.fork()
    if pid:
        return pid
    code = 70
    try:
        own.close()
        os.setsid()
        _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        _prctl(_PR_SET_CHILD_SUBREAPER, 1)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        worker = os.fork()
        if worker == 0:
            try:
                _become_worker(spec, fds)
                code = 0
            except SystemExit as stop:
                code = stop.code if isinstance(stop.code, int) else 1
            except BaseException:
                import traceback

                traceback.print_exc()
            with suppress(Exception):
                sys.stdout.flush()
                sys.stderr.flush()
            os._exit(code)
        control = socket.socket(fileno=os.dup(fds[3]))
        for fd in fds:
            os.close(fd)
        _guard(worker, control)
        code = 0
    finally:
        os._exit(code)
    raise AssertionError("unreachable")


def serve(sock: socket.socket) -> None:
    """Answer fork requests until the judge goes away."""
    import select

    _prctl(_PR_SET_CHILD_SUBREAPER, 1)
    read, write = os.pipe()
    os.set_blocking(write, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(write, warn_on_full_buffer=False)
    sock.send(b'{"ready":true}')
    while True:
        ready, _, _ = select.select([sock, read], [], [])
        if read in ready:
            os.read(read, 4096)
            with suppress(ChildProcessError):
                while os.waitpid(-1, os.WNOHANG)[0]:
                    pass
        if sock in ready:
            message, ancillary, _, _ = sock.recvmsg(1 << 20, socket.CMSG_SPACE(FD_COUNT * 4))
            if not message:
                break
            fds = array.array("i")
            for level, kind, data in ancillary:
                if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
                    fds.frombytes(data[: len(data) - len(data) % 4])
            pid = _spawn(json.loads(message), list(fds), sock)
            for fd in fds:
                os.close(fd)
            sock.send(json.dumps({"pid": pid}).encode())
    _kill_descendants()


def _warm() -> None:
    """Import what every worker needs, without starting a thread or touching a device."""
    import torch
    import torch._decomp
    import torch._dispatch.python
    import torch.utils._python_dispatch

    torch.set_num_threads(1)
    with suppress(ImportError):
        import triton
        import triton.language
        import triton.runtime.interpreter  # noqa: F401
    import assay.run.candidate_worker
    import assay.run.reference_worker  # noqa: F401

    gc.collect()
    gc.freeze()


def main() -> None:
    """Entry point of the warm parent."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    sock = socket.socket(fileno=int(sys.argv[1]))
    _warm()
    serve(sock)


if __name__ == "__main__":
    main()
