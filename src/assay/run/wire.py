"""Frames between the judge and its workers: a small JSON header and raw bytes.

Nothing is ever unpickled. A reader is given limits and a deadline, because the peer may be hostile: what it
announces is never allocated before it arrives, and its JSON may neither hold a number that is none nor text
that cannot be written down.
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
HOSTILE_HEADER_LIMIT = 8 << 20
PAYLOAD_LIMIT = 16 << 30
FIRST_PIECE = 1 << 20
LARGEST_READ = 4 << 20


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
        strict: refuse NaN and Infinity in the header, and replace text that is not Unicode.
    """

    def __init__(self, sock: socket.socket, header_limit: int = HEADER_LIMIT,
                 payload_limit: int = PAYLOAD_LIMIT, *, strict: bool = False) -> None:
        self._sock = sock
        self.header_limit, self.payload_limit, self.strict = header_limit, payload_limit, strict
        self._prefix = bytearray()
        self._header: _Piece | None = None
        self._payload: _Piece | None = None

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
            if not MAGIC.startswith(self._prefix[:len(MAGIC)]):
                raise WireFault("magic", "the peer did not send a frame")
            if len(self._prefix) < _PREFIX.size:
                return None
            _, header_size, payload_size = _PREFIX.unpack(self._prefix)
            if header_size > self.header_limit or payload_size > self.payload_limit:
                raise WireFault("size", f"frame of {header_size} + {payload_size} bytes is over the limit")
            if header_size == 0:
                raise WireFault("header", "the frame has no header")
            self._header, self._payload = _Piece(header_size), _Piece(payload_size)
            return None
        assert self._payload is not None
        piece = self._header if self._header.missing else self._payload
        if piece.missing and piece.fill(self._sock) == 0:
            raise WireFault("closed", "the peer closed the channel")
        if self._header.missing or self._payload.missing:
            return None
        frame = Frame(decode(self._header.data, strict=self.strict), self._payload.data)
        self._prefix, self._header, self._payload = bytearray(), None, None
        return frame

    def _take(self, into: bytearray, size: int) -> None:
        data = self._sock.recv(size - len(into))
        if not data:
            raise WireFault("closed", "the peer closed the channel")
        into += data


class _Piece:
    """Bytes of a known number; room for them grows with what has come, not with what was announced."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.data = bytearray(min(size, FIRST_PIECE))
        self._filled = 0

    @property
    def missing(self) -> int:
        """Bytes still to come."""
        return self.size - self._filled

    def fill(self, sock: socket.socket) -> int:
        """Take what one read gives; 0 when the peer has closed."""
        if self._filled == len(self.data):
            self.data.extend(bytes(min(len(self.data), self.missing)))
        with memoryview(self.data) as view:
            count = sock.recv_into(view[self._filled:][:LARGEST_READ])
        self._filled += count
        return count


def decode(text: bytes | bytearray, *, strict: bool = False) -> dict[str, Any]:
    """The header that `text` holds.

    Raises:
        WireFault: it is not a JSON object in UTF-8; with `strict`, also when it holds NaN or Infinity.
    """
    try:
        header = json.loads(text.decode(), parse_constant=_refuse if strict else None)
        # only an escape can bring half a surrogate pair, which no file or terminal takes
        if strict and rb"\u" in text and not _is_unicode(header):
            header = _replaced(header)
    except (ValueError, RecursionError):
        raise WireFault("header", "the header is not JSON") from None
    if not isinstance(header, dict):
        raise WireFault("header", "the header is not an object")
    return header


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is not JSON")


def _is_unicode(header: Any) -> bool:
    try:
        json.dumps(header, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return False
    return True


def _replaced(node: Any) -> Any:
    if isinstance(node, str):
        return node.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if isinstance(node, list):
        return [_replaced(item) for item in node]
    if isinstance(node, dict):
        return {_replaced(key): _replaced(value) for key, value in node.items()}
    return node


def ready(sock: socket.socket | int, timeout: float | None) -> bool:
    """Whether something can be read within `timeout` seconds; None waits for ever."""
    poll = select.poll()
    poll.register(sock, select.POLLIN)
    return bool(poll.poll(None if timeout is None else max(0.0, timeout) * 1000))


def receive(sock: socket.socket, timeout: float | None = None, *,
            payload_limit: int = PAYLOAD_LIMIT) -> Frame:
    """Read one frame. Raises WireFault, of kind `timeout` when it is not complete in `timeout` seconds."""
    reader = FrameReader(sock, payload_limit=payload_limit)
    deadline = None if timeout is None else time.monotonic() + timeout
    while True:
        left = None if deadline is None else max(0.0, deadline - time.monotonic())
        if not ready(sock, left):
            raise WireFault("timeout", "no complete frame in time")
        frame = reader.step()
        if frame is not None:
            return frame
