"""The warm parent: imports torch and triton once, then forks a guarded worker for each request.

Started by the judge as `python -m assay.run.zygote FD`; FD is a SOCK_SEQPACKET socket. Each request is one
JSON message with the descriptors `channel, stdout, stderr, control, arena`. The zygote answers with the
guardian's pid. When the socket closes, everything it ever started is killed, the directory that holds the
workers' directories is removed, and it exits.

It never touches CUDA, runs no task code and holds nothing secret, so what a worker inherits is empty.

A guardian watches one worker. Where the worker has namespaces of its own, the guardian that watches is their
first process: nothing inside can signal, stop or read it, and when it ends the kernel ends everything inside.
Over `control` the judge may send `census`, which is answered with the number of other processes, and `kill`;
a guardian always ends by sending how the worker ended.
"""

from __future__ import annotations

import array
import ctypes
import gc
import json
import os
import select
import shutil
import signal
import socket
import sys
import time
from contextlib import suppress
from typing import Any

from assay.run import sandbox

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
FD_COUNT = 5


def _prctl(option: int, value: int) -> None:
    ctypes.CDLL(None, use_errno=True).prctl(option, ctypes.c_ulong(value), 0, 0, 0)


def _wait(handles: list[Any], timeout: float | None = None) -> set[int]:
    """Descriptors among `handles` that are readable or closed, within `timeout` seconds."""
    poll = select.poll()
    for handle in handles:
        poll.register(handle, select.POLLIN)
    return {fd for fd, _ in poll.poll(None if timeout is None else timeout * 1000)}


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


def _running(pid: int) -> bool:
    """Whether a process exists and has not ended yet."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            return file.read().rpartition(")")[2].split()[0] not in ("Z", "X")
    except (OSError, IndexError):
        return False


def _kill_descendants() -> int:
    """Kill and reap everything below this process; the number of running processes that were found."""
    seen: set[int] = set()
    while True:
        below = _descendants(os.getpid())
        seen.update(pid for pid in below if pid not in seen and _running(pid))
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


class _Guard:
    """Watches one worker until it ends or the judge says to kill it.

    Args:
        worker: its pid.
        control: the judge.
        alone: whether this is the first process of namespaces that hold nothing but the worker.
        keep: paths in them that are not the worker's doing, its own directory among them.
    """

    def __init__(self, worker: int, control: socket.socket, alone: bool, keep: tuple[str, ...] = ()) -> None:
        self._worker, self._control, self._alone, self._keep = worker, control, alone, keep

    def watch(self) -> dict[str, Any]:
        """Answer the judge until the end; how it ended."""
        handle = os.pidfd_open(self._worker)
        killed = False
        while handle not in (ready := _wait([handle, self._control])):
            if self._control.fileno() not in ready:
                continue
            asked = b""
            with suppress(OSError):
                asked = self._control.recv(64)
            if asked == b"census":
                self._reap_orphans()
                files = sandbox.left_behind(self._keep) if self._alone else []
                with suppress(OSError):
                    self._control.send(json.dumps({"others": self._count(), "files": files}).encode())
                continue
            # an order to kill, or no judge any more
            killed = True
            with suppress(ProcessLookupError):
                os.kill(self._worker, signal.SIGKILL)
            _wait([handle])
            break
        _, status = os.waitpid(self._worker, 0)
        if not self._alone:
            return {"status": status, "left": _kill_descendants(), "killed": killed}
        self._reap_orphans()
        return {"status": status, "left": self._count(), "killed": killed}

    def _others(self) -> int:
        if self._alone:
            pids = [int(name) for name in os.listdir("/proc") if name.isdigit()]
        else:
            pids = _descendants(os.getpid())
        return sum(1 for pid in pids if pid not in (os.getpid(), self._worker) and _running(pid))

    def _count(self) -> int:
        """Processes beside the worker; one that is about to end is given a moment to."""
        for _ in range(4):
            if not (found := self._others()):
                return 0
            time.sleep(0.025)
        return found

    def _reap_orphans(self) -> None:
        """Collect what has ended and has no other parent, but not the worker itself."""
        with suppress(OSError):
            while (seen := os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)) is not None:
                if seen.si_pid == self._worker:
                    break
                os.waitpid(seen.si_pid, os.WNOHANG)


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
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGCHLD, signal.SIGPIPE):
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
    if spec["role"] == "candidate":
        sandbox.confine(sandbox.Box.from_json(spec["box"]))
    gc.enable()
    if spec["role"] == "candidate" and spec["options"].get("mode") == "sanitize":
        from assay.run.sanitizer import main
    elif spec["role"] == "candidate" and spec["options"].get("mode") == "stub":
        from assay.run.stub_worker import main
    elif spec["role"] == "candidate":
        from assay.run.candidate_worker import main
    else:
        from assay.run.reference_worker import main
    main(socket.socket(fileno=200), 201, spec)


def _keep(spec: dict[str, Any], fds: list[int], alone: bool) -> None:
    """Fork the worker and watch it."""
    control = socket.socket(fileno=os.dup(fds[3]))
    try:
        if alone:
            box = sandbox.Box.from_json(spec["box"])
            sandbox.settle(box)
            sandbox.furnish(box, spec["directory"])
        worker = os.fork()
    except OSError as error:
        control.send(json.dumps({"failed": str(error)}).encode())
        return
    if worker == 0:
        code = 1
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
    for fd in fds:
        os.close(fd)
    keep = (*sandbox.Box.from_json(spec["box"]).keep, spec["directory"])
    report = _Guard(worker, control, alone, keep).watch()
    with suppress(OSError):
        control.send(json.dumps(report).encode())


def _spawn(spec: dict[str, Any], fds: list[int], own: socket.socket) -> int:
    """Fork a guardian, which forks the worker. Returns the guardian's pid in the zygote. Raises OSError."""
    box = sandbox.Box.from_json(spec["box"])
    alone = spec["role"] == "candidate" and box.namespaces
    pid = sandbox.fork_apart(box) if alone else os.fork()
    if pid:
        return pid
    try:
        own.close()
        os.setsid()
        _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        _prctl(_PR_SET_CHILD_SUBREAPER, 1)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        if spec["role"] == "candidate":
            sandbox.last_to_die()
        _keep(spec, fds, alone)
    finally:
        os._exit(0)
    raise AssertionError("unreachable")


def serve(sock: socket.socket, directory: str) -> None:
    """Answer fork requests until the judge goes away; then leave nothing, `directory` included."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)
    read, write = os.pipe()
    os.set_blocking(write, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(write, warn_on_full_buffer=False)
    try:
        sock.send(b'{"ready":true}')
    except OSError:
        # the judge went away during the imports
        return
    while True:
        ready = _wait([sock, read])
        if read in ready:
            os.read(read, 4096)
            with suppress(ChildProcessError):
                while os.waitpid(-1, os.WNOHANG)[0]:
                    pass
        if sock.fileno() in ready:
            try:
                message, ancillary, _, _ = sock.recvmsg(1 << 20, socket.CMSG_SPACE(FD_COUNT * 4))
            except ConnectionError:
                break
            if not message:
                break
            fds = array.array("i")
            for level, kind, data in ancillary:
                if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
                    fds.frombytes(data[: len(data) - len(data) % 4])
            try:
                answer: dict[str, Any] = {"pid": _spawn(json.loads(message), list(fds), sock)}
            except OSError as error:
                answer = {"failed": str(error)}
            for fd in fds:
                os.close(fd)
            try:
                sock.send(json.dumps(answer).encode())
            except ConnectionError:
                # the judge was killed while it waited for this
                break
    _kill_descendants()
    shutil.rmtree(directory, ignore_errors=True)


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
    import assay.contract.domain
    import assay.oracle.handlers
    import assay.run.candidate_worker
    import assay.run.reference_worker  # noqa: F401

    gc.collect()
    gc.freeze()


def main() -> None:
    """Entry point of the warm parent."""
    # a signal to the whole group of processes ends the judge, and with it, in order, everything here
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    sandbox.hide_memory()
    sock = socket.socket(fileno=int(sys.argv[1]))
    _warm()
    serve(sock, sys.argv[2])


if __name__ == "__main__":
    main()
