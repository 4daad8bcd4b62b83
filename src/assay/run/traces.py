"""What a candidate's calls leave behind in its own process: threads, descriptors, environment, modes of torch.

Attested by the worker. What lies in files and shared segments its guardian sees from outside.
"""

from __future__ import annotations

import ctypes
import gc
import os
import platform
import sys
import threading
import time
from contextlib import suppress
from typing import Any

import torch

_SLEEPS = {"x86_64": ("35", "230"), "aarch64": ("101", "115")}.get(platform.machine(), ())
"""Numbers of the system calls nanosleep and clock_nanosleep."""
_PATIENCE = 20
_LIBRARIES = ("/torch/_inductor/", "/torch/_dynamo/", "/triton/")
"""Where threads that belong to compilers run."""
_PATHS = ("PATH", "LD_LIBRARY_PATH", "PYTHONPATH")
_INHERITED = ("LD_PRELOAD", "LD_AUDIT", "PYTHONPATH", "PYTHONSTARTUP", "PYTHONHOME", "BASH_ENV", "ENV")
"""Variables by which code enters the processes that a process starts."""
_OWN = ("TRITON_", "TORCH", "PYTORCH_", "CUDA_", "CUBLAS_", "NVIDIA_", "NCCL_", "OMP_", "MKL_", "KMP_", "GOMP_",
        "OPENBLAS_", "XDG_", "LANG", "LC_", "TZ")
"""Beginnings of variables that configure libraries, and so are a candidate's to set."""


def threads(before: frozenset[str], native: bool = True) -> list[str]:
    """Threads that will go on by themselves: every Python thread but idle pools', and native ones at work.

    A native thread that waits for a lock or for input belongs to some library's pool and does nothing unasked;
    one that runs or sleeps for a while comes back.

    Args:
        before: native ids, as text, of threads that were there before the candidate.
        native: look at native threads too; not on a GPU, whose driver starts threads of its own at any time.
    """
    frames = sys._current_frames()
    python = [t for t in threading.enumerate() if t is not threading.main_thread()]
    found = [t.name[:80] for t in python if not _idle(frames.get(t.ident or 0))]
    known = before | {str(t.native_id) for t in threading.enumerate()}
    states = {tid: _doing(tid) for tid in native_threads() if tid not in known} if native else {}
    asleep = [tid for tid, state in states.items() if state == "sleeps"]
    running = [tid for tid, state in states.items() if state == "runs"]
    for _ in range(_PATIENCE):
        if not running:
            break
        # pools spin for a moment before they wait
        time.sleep(0.01)
        running = [tid for tid in running if _doing(tid)]
    return [*found, *(f"native thread {tid}" for tid in [*asleep, *running])][:20]


def native_threads() -> list[str]:
    """Ids of all threads of this process, as text."""
    with suppress(OSError):
        return os.listdir("/proc/self/task")
    return []


def _idle(frame: Any) -> bool:
    """Whether a thread waits for work in a pool, or is a compiler's."""
    if frame is None:
        return False
    code = frame.f_code
    if code.co_name == "_worker" and code.co_filename.endswith(os.path.join("concurrent", "futures", "thread.py")):
        return True
    while frame is not None:
        if any(part in frame.f_code.co_filename for part in _LIBRARIES):
            return True
        frame = frame.f_back
    return False


def _doing(tid: str) -> str:
    """What a native thread does: `runs`, `sleeps` until a time of its own, or nothing, which is to wait."""
    try:
        with open(f"/proc/self/task/{tid}/stat", encoding="utf-8", errors="replace") as file:
            if file.read().rpartition(")")[2].split()[0] == "R":
                return "runs"
        with open(f"/proc/self/task/{tid}/syscall", encoding="ascii") as file:
            return "sleeps" if file.read().split(" ", 1)[0] in _SLEEPS else ""
    except (OSError, IndexError):
        return ""


def environment(before: dict[str, str]) -> list[str]:
    """Variables that are not as they were, and those added by which code enters other programs.

    A search path that still holds all it held is as it was; so is what configures a library.
    """
    found = []
    for name, value in before.items():
        now = os.environ.get(name)
        grown = name in _PATHS and now is not None and set(value.split(os.pathsep)) <= set(now.split(os.pathsep))
        if now != value and not grown and not name.startswith(_OWN):
            found.append(name)
    return sorted(found + [name for name in _INHERITED if name in os.environ and name not in before])


SEED = "random seed"
"""Name among the modes of the seed that the default generator was given."""


def modes() -> dict[str, str]:
    """Modes of torch that hold for whoever calls it next in this thread."""
    kinds = ("cpu", "cuda")
    return {
        "gradients": str(torch.is_grad_enabled()),
        "inference mode": str(torch.is_inference_mode_enabled()),
        "default dtype": str(torch.get_default_dtype()),
        "default device": str(torch.get_default_device()),
        "autocast": str([kind for kind in kinds if torch.is_autocast_enabled(kind)]),
        "deterministic algorithms": str(torch.are_deterministic_algorithms_enabled()),
        # drawing numbers is anybody's; a new seed repeats the caller's own numbers
        SEED: str(torch.initial_seed()),
    }


def descriptors() -> int:
    """Open descriptors of this process; -1 where they cannot be counted."""
    with suppress(OSError):
        return len(os.listdir("/proc/self/fd"))
    return -1


class _MallInfo2(ctypes.Structure):
    _fields_ = [(name, ctypes.c_size_t) for name in (
        "arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks", "uordblks", "fordblks", "keepcost")]


def held(device: str) -> int:
    """Bytes that native code holds on a device, after a collection; -1 where nobody counts them.

    On a CPU these are the bytes that the C library has handed out, tensors among them.
    """
    gc.collect()
    if device != "cpu":
        return int(torch.cuda.memory_allocated())
    try:
        mallinfo2 = ctypes.CDLL(None).mallinfo2
    except AttributeError:
        return -1
    mallinfo2.restype = _MallInfo2
    info = mallinfo2()
    return int(info.uordblks + info.hblkhd)
