"""A static layer beside the probes: the rules of `kernelguard`, whose hits are hints and never a verdict.

Reading a hostile source is left to another process: it may be made to exhaust a parser.
"""

from __future__ import annotations

import atexit
import importlib.util
import json
import os
import subprocess
import sys
import threading
import time
from contextlib import suppress
from typing import Any

from assay.report.model import Hint
from assay.run.wire import ready

SECONDS = 10.0
MOST = 12
REPLY_LIMIT = 4 << 20
_SCRIPT = """
import json, os, signal, sys, kernelguard
for line in sys.stdin.buffer:
    receive, give = os.pipe()
    child = os.fork()
    if child == 0:
        signal.alarm(SECONDS)
        found = kernelguard.analyze_code(json.loads(line)).get("matched_patterns", [])
        with os.fdopen(give, "wb") as out:
            out.write(json.dumps(found).encode())
        os._exit(0)
    os.close(give)
    with os.fdopen(receive, "rb") as answer:
        found = answer.read()
    good = os.waitpid(child, 0)[1] == 0
    sys.stdout.buffer.write((found if good else b"null") + b"\\n")
    sys.stdout.buffer.flush()
"""
"""Imports the rules once; each source is read in a child of its own."""

_idle: list[subprocess.Popen[bytes]] = []
_lock = threading.Lock()


def _scanner() -> subprocess.Popen[bytes]:
    """A process that knows the rules: an idle one, or a new one."""
    with _lock:
        while _idle:
            found = _idle.pop()
            if found.poll() is None:
                return found
    return subprocess.Popen([sys.executable, "-I", "-c", _SCRIPT.replace("SECONDS", str(int(SECONDS)))],
                            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)


def _end(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    for stream in (process.stdin, process.stdout):
        if stream is not None:
            with suppress(OSError):
                stream.close()
    process.wait()


@atexit.register
def close() -> None:
    """End the processes that wait for the next source."""
    with _lock:
        while _idle:
            _end(_idle.pop())


class Scan:
    """One scan, started at once and collected later. Nothing happens where kernelguard is not installed.

    Args:
        source: the candidate's source text.
    """

    def __init__(self, source: str) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        if importlib.util.find_spec("kernelguard") is not None:
            self._process = _scanner()
            self._sender = threading.Thread(target=self._send, args=(source,), daemon=True)
            self._sender.start()

    def _send(self, source: str) -> None:
        # a thread: a source may be longer than what a pipe holds before its reader is up
        assert self._process is not None
        assert self._process.stdin is not None
        with suppress(OSError, ValueError):
            self._process.stdin.write(json.dumps(source).encode() + b"\n")
            self._process.stdin.flush()

    def hints(self) -> tuple[Hint, ...]:
        """What the rules found, most severe first; empty when they are not installed or did not finish."""
        if self._process is None:
            return ()
        line = self._line(time.monotonic() + SECONDS)
        if line is None:
            self.close()
            return ()
        self._sender.join()
        with _lock:
            _idle.append(self._process)
        self._process = None
        with suppress(ValueError):
            found = json.loads(line)
            if isinstance(found, list):
                hints = [_hint(item) for item in found if isinstance(item, dict)]
                return tuple(sorted(hints, key=lambda h: (_SEVERITY.get(h.severity, 9), h.rule))[:MOST])
        return ()

    def _line(self, deadline: float) -> bytes | None:
        """The answer; None where it does not come in time, or is too long."""
        assert self._process is not None
        assert self._process.stdout is not None
        data, fd = b"", self._process.stdout.fileno()
        while not data.endswith(b"\n"):
            if len(data) > REPLY_LIMIT or not ready(fd, deadline - time.monotonic()):
                return None
            piece = os.read(fd, 1 << 16)
            if not piece:
                return None
            data += piece
        return data

    def close(self) -> None:
        """End the scan, finished or not."""
        if self._process is not None:
            _end(self._process)
            self._process = None


_SEVERITY = {"critical": 0, "high": 1, "medium": 2, "low": 3}


def _hint(item: dict[str, Any]) -> Hint:
    def text(name: str) -> str:
        return "".join(c for c in str(item.get(name, "")) if c.isprintable())[:200]

    return Hint(rule=text("pattern"), severity=text("severity"), evidence=text("evidence"))
