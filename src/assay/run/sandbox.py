"""What a candidate's worker may see and touch: namespaces, a read-only file system, another user, limits.

Only the standard library and system calls, so that the warm parent can use it after a fork and so that the
probe of this machine starts fast. Each step is taken by the process that it confines or by its parent;
nothing outside the worker is changed. Sources: unshare(2), mount_setattr(2), pid_namespaces(7),
user_namespaces(7), prctl(2), seccomp(2).
"""

from __future__ import annotations

import ctypes
import fcntl
import functools
import json
import os
import platform
import resource
import signal
import socket
import struct
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import Any

MODES = ("auto", "strict", "off")
PRIVATE_BYTES = 1 << 30
PROCESSES = 1024
FIRST_UID = 0x7A000000

_NEWNS, _NEWUTS, _NEWIPC = 0x20000, 0x4000000, 0x8000000
_NEWUSER, _NEWPID, _NEWNET = 0x10000000, 0x20000000, 0x40000000
_MS_RDONLY, _MS_NOSUID, _MS_NODEV, _MS_NOEXEC = 1, 2, 4, 8
_MS_BIND, _MS_REC, _MS_PRIVATE = 4096, 16384, 1 << 18
_ATTR_RDONLY, _ATTR_NOSUID = 1, 2
_AT_FDCWD, _AT_RECURSIVE, _AT_EMPTY_PATH = -100, 0x8000, 0x1000
_OPEN_TREE_CLONE, _MOVE_FROM_EMPTY = 1, 4
# the same numbers on every architecture
_OPEN_TREE, _MOVE_MOUNT, _MOUNT_SETATTR = 428, 429, 442
_PR_SET_DUMPABLE, _PR_CAPBSET_DROP, _PR_SET_NO_NEW_PRIVS, _PR_CAP_AMBIENT = 4, 24, 38, 47
_PR_CAP_AMBIENT_CLEAR_ALL = 4


@dataclass(frozen=True)
class Level:
    """How far this machine can confine a worker.

    Attributes:
        name: `full` (everything below), `partial` (no namespaces, but another user), `limits` (environment,
            directory and resource limits alone).
        parts: what is in force: `pid`, `mount`, `network`, `ipc`, `read_only`, `uid`, `capabilities`,
            `system_calls`, `limits`, `environment`.
        uid: first user id that workers can be given; None keeps the judge's own.
        user: whether a user namespace of its own is needed for the other namespaces.
        missing: why it is not `full`.
    """

    name: str
    parts: tuple[str, ...]
    uid: int | None = None
    user: bool = False
    missing: str = ""

    @property
    def full(self) -> bool:
        """True when a worker sees nothing but itself."""
        return self.name == "full"

    def to_json(self) -> dict[str, Any]:
        """For reports: name, parts and what is missing."""
        return {"level": self.name, "parts": list(self.parts), "missing": self.missing}


OFF = Level("off", ("environment", "limits"))


@dataclass(frozen=True)
class Box:
    """The confinement of one worker, as sent to the warm parent.

    Attributes:
        namespaces: whether it gets namespaces of its own.
        user: whether one of them is a user namespace.
        uid: user and group to become; None keeps them.
        seccomp: whether system calls are filtered.
        keep: paths that stay visible below a masked directory.
        hide: files that are replaced by an empty one.
        outside: user and group of the judge.
    """

    namespaces: bool = False
    user: bool = False
    uid: int | None = None
    seccomp: bool = False
    keep: tuple[str, ...] = ()
    hide: tuple[str, ...] = ()
    outside: tuple[int, int] = (0, 0)

    def to_json(self) -> dict[str, Any]:
        """As JSON data."""
        return asdict(self)

    @staticmethod
    def from_json(data: dict[str, Any]) -> Box:
        """Inverse of `to_json`."""
        return Box(data["namespaces"], data["user"], data["uid"], data["seccomp"], tuple(data["keep"]),
                   tuple(data["hide"]), tuple(data["outside"]))


def needed() -> tuple[str, ...]:
    """Directories that a worker reads its libraries from."""
    masks = set(_masks(tempfile.gettempdir()))
    # a script in the directory for temporary files does not open all of it
    searched = [path for path in filter(None, sys.path) if os.path.realpath(path) not in masks]
    paths = {sys.prefix, sys.base_prefix, sys.exec_prefix, *searched, os.environ.get("CUDA_HOME", ""),
             "/run/nvidia-persistenced", "/tmp/nvidia-mps"}
    return tuple(sorted({os.path.realpath(p) for p in paths if p and os.path.exists(p)}))


@functools.cache
def level() -> Level:
    """What this machine reaches, tried out once in a process of its own."""
    command = [sys.executable, "-I", "-S", os.path.abspath(__file__), json.dumps(needed())]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60,
                          check=False)
    try:
        data = json.loads(done.stdout)
        return Level(data["name"], tuple(data["parts"]), data["uid"], data["user"], data["missing"])
    except (ValueError, KeyError, TypeError):
        return Level("limits", OFF.parts, missing=f"the trial failed: {done.stderr[-200:]}")


def box(found: Level, number: int, hide: Iterable[str] = ()) -> Box:
    """The confinement of worker `number` at a level."""
    if found.name == "off":
        return Box()
    # each worker is a user of its own, where there are enough of them
    uid = found.uid + number % 0x10000 if found.uid == FIRST_UID else found.uid
    return Box(found.full, found.user, uid, "system_calls" in found.parts, needed(),
               tuple(os.path.realpath(p) for p in hide if os.path.isfile(p)), (os.getuid(), os.getgid()))


@functools.cache
def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def _check(result: int, what: str) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")
    return result


def prctl(option: int, first: int, second: int = 0) -> None:
    """prctl(2). Raises OSError."""
    _check(_libc().prctl(option, ctypes.c_ulong(first), ctypes.c_ulong(second), 0, 0), f"prctl {option}")


def hide_memory() -> None:
    """Keep other processes of the same user from reading this one's memory, and its children's."""
    prctl(_PR_SET_DUMPABLE, 0)


def fork_apart(chosen: Box) -> int:
    """Fork like os.fork, with the child as first process of namespaces of its own.

    One step, because each fork of a process that has torch loaded costs some 10 ms. The child calls
    `settle` first.

    Raises:
        OSError: the kernel refuses.
    """
    flags = _NEWNS | _NEWUTS | _NEWIPC | _NEWPID | _NEWNET | (_NEWUSER if chosen.user else 0)
    number = {"x86_64": 56, "aarch64": 220}.get(platform.machine())
    if number is None:
        raise OSError(0, f"clone is not known for {platform.machine()}")
    python = ctypes.pythonapi
    libc = ctypes.PyDLL(None, use_errno=True)
    # clone(2) by number, since the function of that name wants a stack; the interpreter prepares as for fork
    python.PyOS_BeforeFork()
    pid = int(libc.syscall(number, ctypes.c_ulong(flags | signal.SIGCHLD), None, None, None, None))
    if pid == 0:
        python.PyOS_AfterFork_Child()
    else:
        python.PyOS_AfterFork_Parent()
    return _check(pid, "clone")


def settle(chosen: Box) -> None:
    """Finish what `fork_apart` began, in the child. Raises OSError."""
    if chosen.user:
        # what is not dumpable belongs to root, and so would the files that the map is written to
        prctl(_PR_SET_DUMPABLE, 1)
        # as they were outside: inside nothing is mapped yet
        uid, gid = chosen.outside
        maps = {"setgroups": "deny", "uid_map": f"{uid} {uid} 1", "gid_map": f"{gid} {gid} 1"}
        for name, text in maps.items():
            with open(f"/proc/self/{name}", "w", encoding="ascii") as file:
                file.write(text)
        prctl(_PR_SET_DUMPABLE, 0)
    _loopback_up()


def _loopback_up() -> None:
    """A program may talk to itself."""
    with suppress(OSError), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        fcntl.ioctl(sock, 0x8914, struct.pack("16sH14x", b"lo", 1))


def _mount(source: str | None, target: str, kind: str | None, flags: int, data: str = "") -> None:
    encoded = [None if t is None else t.encode() for t in (source, target, kind)]
    _check(_libc().mount(*encoded, ctypes.c_ulong(flags), data.encode() or None), f"mount {target}")


def _set_attributes(path: str, flags: int, add: int = 0, remove: int = 0) -> None:
    attributes = struct.pack("QQQQ", add, remove, 0, 0)
    _check(_libc().syscall(_MOUNT_SETATTR, _AT_FDCWD, path.encode(), flags, attributes, len(attributes)),
           f"mount_setattr {path}")


def _masks(temporary: str) -> list[str]:
    """Directories that hold what belongs to others: temporary files, sockets, homes."""
    home = os.path.expanduser("~")
    candidates = ("/tmp", "/var/tmp", "/dev/shm", "/run", "/home", "/root", temporary, home)
    found: list[str] = []
    for path in sorted({os.path.realpath(c) for c in candidates}):
        if path != "/" and os.path.isdir(path) and not any(path.startswith(f"{f}/") for f in found):
            found.append(path)
    return found


def furnish(chosen: Box, directory: str) -> None:
    """Lay out what the worker sees; run by the first process of its namespaces. Raises OSError.

    Temporary directories and `directory` are private and writable, homes and sockets of others are empty,
    everything else is as outside and read-only.
    """
    libc = _libc()
    os.chdir("/")
    _mount(None, "/", None, _MS_REC | _MS_PRIVATE)
    # directories of workers lie in one of the judge's, which lies in the one for temporary files
    masks = [m for m in _masks(os.path.dirname(os.path.dirname(directory))) if m not in chosen.keep]
    kept = []
    for path in _outermost(chosen.keep):
        if any(path.startswith(f"{mask}/") for mask in masks):
            tree = _check(libc.syscall(_OPEN_TREE, _AT_FDCWD, path.encode(), _OPEN_TREE_CLONE | _AT_RECURSIVE
                                       | os.O_CLOEXEC), f"open_tree {path}")
            kept.append((path, tree))
    writable = [m for m in masks if m in ("/tmp", "/var/tmp", "/dev/shm") or directory.startswith(f"{m}/")]
    for mask in masks:
        mode = "1777" if mask in writable else "755"
        _mount("tmpfs", mask, "tmpfs", _MS_NOSUID | _MS_NODEV, f"size={PRIVATE_BYTES},mode={mode}")
    for path, tree in kept:
        os.makedirs(path, 0o755, exist_ok=True)
        _check(libc.syscall(_MOVE_MOUNT, tree, b"", _AT_FDCWD, path.encode(), _MOVE_FROM_EMPTY),
               f"move_mount {path}")
        os.close(tree)
    os.makedirs(directory, 0o755, exist_ok=True)
    if not any(directory.startswith(f"{w}/") for w in writable):
        _mount("tmpfs", directory, "tmpfs", _MS_NOSUID | _MS_NODEV, f"size={PRIVATE_BYTES},mode=700")
        writable.append(directory)
    if chosen.uid is not None:
        os.chown(directory, chosen.uid, chosen.uid)
    os.chmod(directory, 0o700)
    for path in chosen.hide:
        with suppress(OSError):
            _mount("/dev/null", path, None, _MS_BIND)
    # with the uid changed, the worker has no business with the first process either
    _mount("proc", "/proc", "proc", _MS_NOSUID | _MS_NODEV | _MS_NOEXEC,
           "" if chosen.uid is None else "hidepid=2")
    _set_attributes("/", _AT_RECURSIVE, add=_ATTR_RDONLY | _ATTR_NOSUID)
    for path in (*writable, *_device_mounts()):
        _set_attributes(path, 0, remove=_ATTR_RDONLY)


SHARED = ("/tmp", "/var/tmp", "/dev/shm")
"""Directories for everybody's temporary files; a worker in a namespace of its own finds them empty."""
_DRIVERS = ("cuda.shm", "nvidia", "nccl", "cuda-")
"""Beginnings of the names of files by which the parts of a GPU's driver talk to each other."""


def left_behind(keep: Sequence[str], limit: int = 20) -> list[str]:
    """Files and shared segments in the namespaces of the calling process that lie outside the paths kept.

    Args:
        keep: paths that were there before, or may be written.
        limit: most entries returned; a hundred times as many are looked at.
    """
    found: list[str] = []
    queue = [path for path in SHARED if path not in keep]
    looked = 0
    while queue and looked < 100 * limit and len(found) < limit:
        folder = queue.pop()
        with suppress(OSError), os.scandir(folder) as entries:
            for entry in entries:
                looked += 1
                if entry.path in keep or entry.name.startswith(_DRIVERS):
                    continue
                if any(path.startswith(f"{entry.path}/") for path in keep):
                    queue.append(entry.path)
                else:
                    found.append(entry.path[:200])
    with suppress(OSError), open("/proc/sysvipc/shm", encoding="ascii", errors="replace") as file:
        found += [f"shared memory segment {line.split()[1]}" for line in file.read().splitlines()[1:]]
    return found[:limit]


def _device_mounts() -> tuple[str, ...]:
    """Mounts that the GPU driver has to find writable to start; nobody but root can write there anyway."""
    if not os.path.exists("/dev/nvidiactl"):
        return ()
    return tuple(path for path in ("/dev", "/sys", "/proc") if os.path.ismount(path))


def _outermost(paths: Sequence[str]) -> list[str]:
    chosen: list[str] = []
    for path in sorted(paths):
        if not any(path == c or path.startswith(f"{c}/") for c in chosen):
            chosen.append(path)
    return chosen


def confine(chosen: Box) -> None:
    """Give up every privilege; run by the worker itself before it meets a candidate. Raises OSError."""
    prctl(_PR_SET_NO_NEW_PRIVS, 1)
    if chosen.namespaces or chosen.uid is not None:
        for capability in range(64):
            with suppress(OSError):
                prctl(_PR_CAPBSET_DROP, capability)
    if chosen.uid is not None:
        os.setgroups([])
        os.setresgid(chosen.uid, chosen.uid, chosen.uid)
        os.setresuid(chosen.uid, chosen.uid, chosen.uid)
    with suppress(OSError):
        prctl(_PR_CAP_AMBIENT, _PR_CAP_AMBIENT_CLEAR_ALL)
    if chosen.namespaces or chosen.uid is not None:
        _drop_capabilities()
        with suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NPROC, (PROCESSES, PROCESSES))
    # its own /proc/self is its own business again; it holds nothing that is not the candidate's
    prctl(_PR_SET_DUMPABLE, 1)
    if chosen.seccomp:
        filter_system_calls(network=chosen.namespaces)


def _drop_capabilities() -> None:
    header = struct.pack("Ii", 0x20080522, 0)
    _check(_libc().capset(header, struct.pack("6I", *[0] * 6)), "capset")


_FORBIDDEN = {
    "x86_64": (0xC000003E, 56, 435, 41, (
        101, 310, 311, 312, 438,   # ptrace, process_vm_readv, process_vm_writev, kcmp, pidfd_getfd
        165, 166, 155, 161, 272, 308, 428, 429, 430, 431, 432, 433, 442,   # mounts, roots and namespaces
        321, 323, 298, 248, 249, 250, 425, 426, 427,   # bpf, userfaultfd, perf, keys, io_uring
        246, 320, 169, 167, 168, 163, 175, 176, 313, 304, 303, 172, 173,   # the machine itself
    )),
    "aarch64": (0xC00000B7, 220, 435, 198, (
        117, 270, 271, 272, 438, 40, 39, 41, 51, 97, 268, 428, 429, 430, 431, 432, 433, 442,
        280, 282, 241, 217, 218, 219, 425, 426, 427, 104, 294, 142, 224, 225, 89, 105, 106, 273, 265, 264,
    )),
}


def filter_system_calls(*, network: bool) -> None:
    """Refuse what a kernel never needs: reading other processes, mounts, new namespaces, keys, the machine.

    Args:
        network: whether internet sockets stay allowed (because the network is already empty).

    Raises:
        OSError: the machine has no filters, or its architecture is not known here.
    """
    if platform.machine() not in _FORBIDDEN:
        raise OSError(0, f"no filter for {platform.machine()}")
    arch, clone, clone3, sock, numbers = _FORBIDDEN[platform.machine()]
    load, equal, above, test, give = 0x20, 0x15, 0x35, 0x45, 0x06
    allow, refuse, absent = 0x7FFF0000, 0x50000 | 1, 0x50000 | 38
    program: list[tuple[int, int, int, int]] = [
        (load, 0, 0, 4), (equal, 1, 0, arch), (give, 0, 0, refuse), (load, 0, 0, 0),
        # the x32 calling convention is a second set of numbers for the same calls
        (above, 0, 1, 0x40000000), (give, 0, 0, refuse),
        (equal, 0, 1, clone3), (give, 0, 0, absent),
    ]
    for number in numbers:
        program += [(equal, 0, 1, number), (give, 0, 0, refuse)]
    program += [(equal, 0, 4, clone), (load, 0, 0, 16), (test, 0, 1, _NEWUSER), (give, 0, 0, refuse),
                (give, 0, 0, allow)]
    if not network:
        program += [(equal, 0, 4, sock), (load, 0, 0, 16), (equal, 1, 0, socket.AF_UNIX),
                    (give, 0, 0, refuse), (give, 0, 0, allow)]
    program.append((give, 0, 0, allow))
    code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *line) for line in program))
    filters = ctypes.create_string_buffer(struct.pack("HxxxxxxP", len(program), ctypes.addressof(code)))
    _check(_libc().prctl(22, ctypes.c_ulong(2), ctypes.c_ulong(ctypes.addressof(filters)), 0, 0), "seccomp")


def last_to_die() -> None:
    """When memory runs out, the kernel takes this process and its children before the judge."""
    with suppress(OSError), open("/proc/self/oom_score_adj", "w", encoding="ascii") as file:
        file.write("1000")


def _attempt(chosen: Box) -> str:
    """Confine a forked process as a worker would be; empty when it works, else what failed."""
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        text = ""
        try:
            hide_memory()
            inner = fork_apart(chosen) if chosen.namespaces else os.fork()
            if inner == 0:
                _inside(chosen, write)
            _, status = os.waitpid(inner, 0)
            text = "" if status == 0 else "the confined process failed"
        except BaseException as error:
            text = str(error)
        with suppress(OSError):
            os.write(write, text.encode())
        os._exit(0)
    os.close(write)
    with open(read, "rb") as file:
        text = file.read().decode(errors="replace")
    os.waitpid(pid, 0)
    return text


def _inside(chosen: Box, write: int) -> None:
    try:
        directory = os.path.join(tempfile.gettempdir(), f"assay-trial-{os.getuid()}", "w")
        if chosen.namespaces:
            settle(chosen)
            furnish(chosen, directory)
        worker = os.fork()
        if worker == 0:
            try:
                confine(chosen)
                if chosen.namespaces:
                    os.chdir(directory)
                    with open("trial", "w", encoding="ascii") as file:
                        file.write("1")
                for path in chosen.keep:
                    os.listdir(path) if os.path.isdir(path) else os.stat(path)
                _start_driver()
                os._exit(0)
            except BaseException as error:
                os.write(write, f"{error}; ".encode())
                os._exit(1)
        _, status = os.waitpid(worker, 0)
        os._exit(0 if status == 0 else 1)
    except BaseException as error:
        os.write(write, f"{error}; ".encode())
        os._exit(1)


def _start_driver() -> None:
    """Start the GPU driver where there is one. Raises OSError when it does not start."""
    if not os.path.exists("/dev/nvidiactl"):
        return
    with suppress(OSError):
        driver = ctypes.CDLL("libcuda.so.1")
        status = int(driver.cuInit(0))
        if status:
            raise RuntimeError(f"the GPU driver does not start there ({status})")


def _measure(keep: tuple[str, ...]) -> Level:
    """Try from the most to the least."""
    signal.alarm(30)
    root = os.getuid() == 0
    extra: tuple[str, ...] = () if _attempt(Box(seccomp=True)) else ("system_calls",)
    always = ("environment", "limits", *extra)
    seccomp = bool(extra)
    spaces = ("pid", "mount", "network", "ipc", "read_only", "capabilities")
    trials: list[tuple[str, tuple[str, ...], Box]] = []
    uids: list[int | None] = [FIRST_UID, 65534] if root else []
    for uid in uids:
        trials.append(("full", (*spaces, "uid"), Box(True, False, uid, seccomp, keep)))
    if root:
        trials.append(("full", spaces, Box(True, False, None, seccomp, keep)))
    trials.append(("full", spaces, Box(True, True, None, seccomp, keep, outside=(os.getuid(), os.getgid()))))
    for uid in uids:
        trials.append(("partial", ("uid", "capabilities"), Box(False, False, uid, seccomp, keep)))
    first = ""
    for name, parts, chosen in trials:
        failed = _attempt(chosen)
        if not failed:
            return Level(name, tuple(sorted({*parts, *always})), chosen.uid, chosen.user,
                         "" if name == "full" else first)
        first = first or failed
    return Level("limits", tuple(sorted(always)), missing=first)


if __name__ == "__main__":
    print(json.dumps(asdict(_measure(tuple(json.loads(sys.argv[1]))))))
