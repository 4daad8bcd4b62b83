"""One warm parent per process, shared by every call of the Python API and closed when the process ends."""

from __future__ import annotations

import atexit
import os
import threading
from collections.abc import Callable
from typing import TypeVar

from assay.run.process import Zygote

T = TypeVar("T")

_lock = threading.Lock()
_shared: tuple[int, Zygote] | None = None


def parent() -> Zygote:
    """The warm parent of this process, started when there is none. A fork starts its own."""
    global _shared
    with _lock:
        if _shared is None or _shared[0] != os.getpid():
            if _shared is None:
                atexit.register(close)
            _shared = (os.getpid(), Zygote())
        return _shared[1]


def close() -> None:
    """End the warm parent, if this process started it; the next call starts another."""
    global _shared
    with _lock:
        found, _shared = _shared, None
    if found is not None and found[0] == os.getpid():
        found[1].close()


def call(work: Callable[[Zygote], T]) -> T:
    """Do something with the warm parent; a parent that is gone is replaced once.

    Raises whatever `work` raises; RuntimeError when a second parent is lost too.
    """
    zygote = parent()
    try:
        zygote.wait_ready()
        return work(zygote)
    except (RuntimeError, OSError):
        if zygote.alive:
            raise
    close()
    return work(parent())
