"""Frames between the judge and its workers: a small JSON header and raw bytes.

Nothing is ever unpickled. A reader is given limits and a deadline, because the peer may be hostile.
"""

from __future__ import annotations

import json
import select
import socket
import struct
import time
from dataclasses import dataclass
from typing import Any

MAGIC = b"ASY1"
_PREFIX = struct.Struct("<4sIQ")
HEADER_LIMIT = 64 << 20
PAYLOAD_LIMIT = 16 << 30


class WireFault(Exception):
    """The peer sent something that is not a frame, or too much, or nothing in time.

    Attributes:
        kind: `closed`, `timeout`, `magic`, `size`, `header`.
    """

    def __init__(self, kind: str, text: str = "") -> None:
        self.kind = kind
        super().__init__(text or kind)


@dataclass(frozen=True)
class Frame:
    """One message: `header` is JSON data, `payload` raw bytes."""

    header: dict[str, Any]
    payload: bytearray


def encode(header: dict[str, Any], payload_size: int) -> bytes:
    """The bytes that precede a payload of `payload_size` bytes."""
    text = json.dumps(header, separators=(",", ":")).encode()
    return _PREFIX.pack(MAGIC, len(text), payload_size) + text


def send(sock: socket.socket, header: dict[str, Any], chunks: list[memoryview] | None = None) -> None:
    """Write one frame whose payload is the concatenation of `chunks`. Blocks until it is all written."""
    chunks = chunks or []
    sock.sendall(encode(header, sum(len(chunk) for chunk in chunks)))
    for chunk in chunks:
        sock.sendall(chunk)


class FrameReader:
    """Reads frames from a socket, incrementally and within limits.

    Args:
        sock: a stream socket.
        header_limit: largest header accepted, bytes.
        payload_limit: largest payload accepted, bytes.
    """

    def __init__(self, sock: socket.socket, header_limit: int = HEADER_LIMIT,
                 payload_limit: int = PAYLOAD_LIMIT) -> None:
        self._sock = sock
        self.header_limit, self.payload_limit = header_limit, payload_limit
        self._prefix = bytearray()
        self._header: bytearray | None = None
        self._payload: bytearray | None = None
        self._filled = 0

    @property
    def started(self) -> bool:
        """True when part of a frame has arrived."""
        return bool(self._prefix)

    def step(self) -> Frame | None:
        """Take what is readable now; a whole frame when it is complete.

        Raises:
            WireFault: closed, wrong magic, over a limit, or a header that is not a JSON object.
        """
        if self._header is None:
            self._take(self._prefix, _PREFIX.size)
            if len(self._prefix) < _PREFIX.size:
                return None
            magic, header_size, payload_size = _PREFIX.unpack(self._prefix)
            if magic != MAGIC:
                raise WireFault("magic", "the peer did not send a frame")
            if header_size > self.header_limit or payload_size > self.payload_limit:
                raise WireFault("size", f"frame of {header_size} + {payload_size} bytes is over the limit")
            self._header, self._payload = bytearray(header_size), bytearray(payload_size)
            self._filled = 0
            return None
        assert self._payload is not None
        total = len(self._header) + len(self._payload)
        if self._filled < total:
            self._fill()
        if self._filled < total:
            return None
        try:
            header = json.loads(bytes(self._header))
        except (ValueError, RecursionError):
            raise WireFault("header", "the header is not JSON") from None
        if not isinstance(header, dict):
            raise WireFault("header", "the header is not an object")
        frame = Frame(header, self._payload)
        self._prefix, self._header, self._payload = bytearray(), None, None
        return frame

    def _take(self, into: bytearray, size: int) -> None:
        data = self._sock.recv(size - len(into))
        if not data:
            raise WireFault("closed", "the peer closed the channel")
        into += data

    def _fill(self) -> None:
        assert self._header is not None
        assert self._payload is not None
        head = len(self._header)
        if self._filled < head:
            view = memoryview(self._header)[self._filled:]
        else:
            view = memoryview(self._payload)[self._filled - head:]
        count = self._sock.recv_into(view[: 4 << 20])
        if count == 0:
            raise WireFault("closed", "the peer closed the channel")
        self._filled += count


def receive(sock: socket.socket, timeout: float | None = None, *, payload_limit: int = PAYLOAD_LIMIT) -> Frame:
    """Read one frame. Raises WireFault, of kind `timeout` when it is not complete in `timeout` seconds."""
    reader = FrameReader(sock, payload_limit=payload_limit)
    deadline = None if timeout is None else time.monotonic() + timeout
    while True:
        left = None if deadline is None else max(0.0, deadline - time.monotonic())
        if not select.select([sock], [], [], left)[0]:
            raise WireFault("timeout", "no complete frame in time")
        frame = reader.step()
        if frame is not None:
            return frame
