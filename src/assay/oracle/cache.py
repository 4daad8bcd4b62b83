"""Truths kept on disk, by the content of everything that they depend on.

One file holds one reply of the reference worker as it came over the wire: a JSON header and raw tensor bytes,
behind a magic number and a checksum. Files are written under another name and renamed, so that readers and
other writers see a whole file or none. Whatever the file system refuses, the truth is evaluated instead.

Nothing a candidate runs may reach this directory: it belongs to the judge's user alone, and a verification
whose candidates are not confined from that user does without it.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import os
import platform
import threading
import time
import uuid
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

DIRECTORY_VARIABLE = "ASSAY_CACHE_DIR"
"""Environment variable that names the directory; set and empty it turns the cache off."""
LIMIT = 2 << 30
"""Bytes that the files of one cache may take."""
LARGEST = LIMIT // 16
"""Bytes of the largest file worth keeping."""
LEFT_OVER_SECONDS = 3600.0
"""Age from which an unfinished file is nobody's."""
RECOUNT = 64
"""Files written between two looks at what others have written."""
Buffer = memoryview | bytes | bytearray
_MAGIC = b"ASYTRU1\n"
_SUFFIX = ".truth"
_LENGTHS = 20
"""Digits of each of the numbers in a file's second line: header bytes, payload bytes, checksum."""


@functools.cache
def package_version() -> str:
    """SHA-256 of this package's Python sources: any change to the oracle or the probes is another version."""
    root = Path(__file__).resolve().parent.parent
    digest = hashlib.sha256()
    for path in sorted(root.rglob("*.py")):
        digest.update(str(path.relative_to(root)).encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()


@functools.cache
def machine(device: str) -> tuple[str, ...]:
    """What native results depend on beside the task: versions, processor features or the GPU."""
    versions = (platform.python_version(), torch.__version__, platform.machine())
    if device == "cpu":
        return (*versions, torch.backends.cpu.get_cpu_capability())
    properties = torch.cuda.get_device_properties(0)
    return (*versions, properties.name, f"{properties.major}.{properties.minor}", str(torch.version.cuda))


def key_of(*parts: Any) -> str:
    """SHA-256 of JSON-able parts, in hexadecimal; the order of keys in a dictionary does not matter."""
    return hashlib.sha256(json.dumps(parts, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def default_directory() -> Path | None:
    """The directory that the environment names, else `~/.cache/assay`; None where it turns the cache off."""
    named = os.environ.get(DIRECTORY_VARIABLE)
    if named is not None:
        return Path(named) if named else None
    try:
        return Path.home() / ".cache" / "assay"
    except RuntimeError:
        return None


class TruthCache:
    """Files of one directory, at most `limit` bytes of them; the least recently used go first.

    Safe for any number of threads and processes. No method raises for what the file system does.

    Args:
        directory: made, for its owner alone, when something is first kept.
        limit: bytes of all files together. Several processes may exceed it for a while by what each of them
            has written since it last counted.
    """

    def __init__(self, directory: Path, limit: int = LIMIT) -> None:
        self.directory, self.limit = directory, limit
        self.hits = self.misses = 0
        self._lock = threading.Lock()
        self._size: int | None = None
        self._written = 0

    def _path(self, key: str) -> Path:
        return self.directory / key[:2] / f"{key}{_SUFFIX}"

    def get(self, key: str) -> tuple[dict[str, Any], bytearray] | None:
        """Header and payload kept under a key; None where there are none, or none that can be trusted."""
        path = self._path(key)
        found = None
        try:
            if _is_mine(self.directory):
                found = _parse(path.read_bytes())
                if found is None:
                    path.unlink(missing_ok=True)
                else:
                    os.utime(path)
        except OSError:
            # gone or unreadable is the same as never kept
            pass
        self.hits += found is not None
        self.misses += found is None
        return found

    def put(
        self, key: str, header: dict[str, Any], payload: Sequence[memoryview | bytes | bytearray]
    ) -> bool:
        """Keep a header and the payload that its chunks make. True when it was kept."""
        text = json.dumps(header, separators=(",", ":")).encode()
        size = len(text) + sum(len(chunk) for chunk in payload)
        if size > min(LARGEST, self.limit // 4):
            return False
        checksum = zlib.crc32(text)
        for chunk in payload:
            checksum = zlib.crc32(chunk, checksum)
        numbers = (len(text), size - len(text), checksum)
        path = self._path(key)
        temporary = path.with_name(f".{uuid.uuid4().hex}")
        try:
            self.directory.mkdir(parents=True, exist_ok=True, mode=0o700)
            if not _is_mine(self.directory):
                return False
            path.parent.mkdir(exist_ok=True, mode=0o700)
            try:
                with open(temporary, "xb") as file:
                    file.write(_MAGIC + "".join(f"{n:0{_LENGTHS}d}" for n in numbers).encode() + b"\n")
                    file.write(text)
                    for chunk in payload:
                        file.write(chunk)
                os.replace(temporary, path)
            except BaseException:
                with contextlib.suppress(OSError):
                    temporary.unlink()
                raise
            self._account(size)
        except OSError:
            return False
        return True

    def _account(self, size: int) -> None:
        """Count what was written, and make room when it is too much."""
        with self._lock:
            self._written += 1
            if self._size is None or self._written % RECOUNT == 0:
                self._size = sum(n for _, n, _ in self._files())
            else:
                self._size += size
            if self._size > self.limit:
                self._size = self._evict()

    def _files(self) -> list[tuple[float, int, Path]]:
        """Time of last use, size and path of every file; unfinished files of long ago are removed."""
        found = []
        for folder in self.directory.iterdir():
            if not folder.is_dir() or len(folder.name) != 2:
                continue
            for path in folder.iterdir():
                try:
                    state = path.stat()
                    if path.name.endswith(_SUFFIX):
                        found.append((state.st_mtime, state.st_size, path))
                    elif time.time() - state.st_mtime > LEFT_OVER_SECONDS:
                        path.unlink()
                except FileNotFoundError:
                    # another process made room
                    continue
        return found

    def _evict(self) -> int:
        """Remove the least recently used files until a tenth of the limit is free; bytes that are left."""
        files = sorted(self._files(), key=lambda item: item[0])
        total = sum(n for _, n, _ in files)
        for _, size, path in files:
            if total <= self.limit * 9 // 10:
                break
            path.unlink(missing_ok=True)
            total -= size
        return total


def _is_mine(directory: Path) -> bool:
    """Whether a directory belongs to this user, and nobody else can write there."""
    state = directory.stat()
    return state.st_uid == os.geteuid() and not state.st_mode & 0o022


def _parse(data: bytes) -> tuple[dict[str, Any], bytearray] | None:
    start = len(_MAGIC) + 3 * _LENGTHS + 1
    if len(data) < start or not data.startswith(_MAGIC):
        return None
    try:
        numbers = [int(data[len(_MAGIC) + i * _LENGTHS :][:_LENGTHS]) for i in range(3)]
        if len(data) != start + numbers[0] + numbers[1] or zlib.crc32(data[start:]) != numbers[2]:
            return None
        header = json.loads(data[start : start + numbers[0]])
    except ValueError:
        return None
    return (header, bytearray(data[start + numbers[0] :])) if isinstance(header, dict) else None
