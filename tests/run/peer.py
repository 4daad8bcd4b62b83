"""A real process at the other end of a worker's channel that writes the bytes it is told to."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence

from assay.run.process import Worker

SCRIPT = """
import base64, json, os, socket, sys, time
channel, control = socket.socket(fileno=int(sys.argv[1])), socket.socket(fileno=int(sys.argv[2]))
pid = os.fork()
if pid == 0:
    control.close()
    for line in sys.stdin:
        step = json.loads(line)
        if step == "ask":
            need = 16
            head = channel.recv(16, socket.MSG_WAITALL)
            size = int.from_bytes(head[4:8], "little") + int.from_bytes(head[8:16], "little")
            while size:
                size -= len(channel.recv(min(size, 1 << 16)))
        elif step == "hang":
            time.sleep(600)
        elif step == "close":
            channel.close()
        else:
            try:
                channel.sendall(base64.b64decode(step))
            except OSError:
                pass
    os._exit(3)
channel.close()
handle = os.pidfd_open(pid)
import select
killed = handle not in select.select([handle, control], [], [])[0]
if killed:
    os.kill(pid, 9)
status = os.waitpid(pid, 0)[1]
control.send(json.dumps({"status": status, "left": 0, "killed": killed}).encode())
"""


@contextlib.contextmanager
def peer(steps: Sequence[bytes | str]) -> Iterator[Worker]:
    """A Worker whose process follows `steps`: bytes to write, `ask` to read a request, `hang`, `close`."""
    channel, theirs = socket.socketpair()
    control, control_theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    out, out_write = os.pipe()
    err, err_write = os.pipe()
    process = subprocess.Popen(
        [sys.executable, "-I", "-S", "-c", SCRIPT, str(theirs.fileno()), str(control_theirs.fileno())],
        pass_fds=[theirs.fileno(), control_theirs.fileno()], stdin=subprocess.PIPE, stdout=out_write,
        stderr=err_write, text=True,
    )
    for sock in (theirs, control_theirs):
        sock.close()
    for fd in (out_write, err_write):
        os.close(fd)
    worker = Worker(pid=process.pid, channel=channel, control=control, out=out, err=err,
                    arena=os.memfd_create("arena"), directory=tempfile.mkdtemp(prefix="assay-peer-"))
    assert process.stdin is not None
    for step in steps:
        text = step if isinstance(step, str) else base64.b64encode(step).decode()
        process.stdin.write(json.dumps(text) + "\n")
    process.stdin.close()
    try:
        yield worker
    finally:
        worker.close()
        process.wait(30)
