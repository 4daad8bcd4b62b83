"""Memory of a process that evaluates: kept between operators, given back between evaluations.

A replay takes and drops buffers of tens of megabytes for every operator. By default glibc maps each from the
kernel and unmaps it again, and clearing those pages costs several times the arithmetic.
"""

from __future__ import annotations

import contextlib
import ctypes
import mmap

KEPT = 1 << 30
"""Resident bytes that a process may keep while it waits."""
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
"""Parameters of `mallopt`, from glibc's malloc.h."""


def keep_freed() -> bool:
    """Let this process reuse what it frees instead of returning it; False where the C library cannot.

    For processes of our own that do little else: it holds for every allocation, and until the process ends.
    """
    with contextlib.suppress(OSError, AttributeError):
        library = ctypes.CDLL(None)
        return bool(library.mallopt(_MMAP_THRESHOLD, 1 << 30) and library.mallopt(_TRIM_THRESHOLD, 0x7FFFFFFF))
    return False


def give_back(kept: int = KEPT) -> None:
    """Return what is free to the system if the process holds more than `kept` resident bytes."""
    with contextlib.suppress(OSError, AttributeError, ValueError, IndexError):
        with open("/proc/self/statm", encoding="ascii") as file:
            resident = int(file.read().split()[1]) * mmap.PAGESIZE
        if resident > kept:
            ctypes.CDLL(None).malloc_trim(0)
