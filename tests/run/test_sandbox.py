"""What a candidate can see and touch from inside its worker."""

from __future__ import annotations

import ctypes
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.run.peek import inside

from assay.errors import InputError
from assay.run import sandbox
from assay.run.process import Zygote

full = pytest.mark.skipif(not sandbox.level().full, reason=f"no namespaces here: {sandbox.level().missing}")

TRY = """
def attempt(work):
    try:
        return work()
    except OSError as error:
        return f"OSError {error.errno}"
"""


def test_the_level_of_this_machine_names_its_parts() -> None:
    level = sandbox.level()
    assert level.name in ("full", "partial", "limits")
    assert {"environment", "limits"} <= set(level.parts)
    assert level.full == (level.missing == "")


@full
def test_a_script_among_temporary_files_is_confined_fully(tmp_path: Path) -> None:
    code = ("import sys; sys.path.insert(0, '/tmp')\n"
            "from assay.run import sandbox\n"
            "print(sandbox.level().name, '/tmp' in sandbox.needed())")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True,
                          env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)})
    assert done.stdout.split() == ["full", "False"]


def test_an_unknown_mode_is_refused() -> None:
    with pytest.raises(InputError, match="unknown sandbox"):
        Zygote("tight")


def test_strict_is_refused_where_the_machine_cannot(monkeypatch: pytest.MonkeyPatch) -> None:
    weak = sandbox.Level("limits", sandbox.OFF.parts, missing="no namespaces")
    monkeypatch.setattr(sandbox, "level", lambda: weak)
    with pytest.raises(InputError, match="does not confine candidates fully: no namespaces"):
        Zygote("strict")


def test_the_environment_is_scrubbed_for_good(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SERVICE_TOKEN", "hunter2")
    with Zygote() as own:
        found = inside(own, """
            import os
            found["names"] = sorted(os.environ)
            found["raw"] = open("/proc/self/environ", "rb").read().decode(errors="replace")
            found["cwd"], found["home"] = os.getcwd(), os.environ["HOME"]
        """)
    assert "SERVICE_TOKEN" not in found["names"]
    assert "hunter2" not in found["raw"]
    assert found["cwd"] == found["home"]


@full
def test_no_other_process_is_visible(zygote: Zygote) -> None:
    found = inside(zygote, f"""
        import os
        found["pids"] = [p for p in os.listdir("/proc") if p.isdigit()]
        found["me"] = str(os.getpid())
        try:
            os.kill({os.getpid()}, 0)
            found["judge"] = "reached"
        except OSError as error:
            found["judge"] = type(error).__name__
    """)
    assert found["me"] in found["pids"]
    assert len(found["pids"]) <= 2
    assert found["judge"] == "ProcessLookupError"


@full
def test_the_first_process_cannot_be_hurt_or_read(zygote: Zygote) -> None:
    found = inside(zygote, TRY + """
import os, signal
for name, path in (("memory", "/proc/1/mem"), ("files", "/proc/1/fd"), ("environment", "/proc/1/environ")):
    found[name] = attempt(lambda: bool(os.listdir(path) if name == "files" else open(path, "rb").read(1)))
found["signal"] = attempt(lambda: os.kill(1, signal.SIGKILL))
""")
    assert all(str(found[name]).startswith("OSError") for name in ("memory", "files", "environment"))
    assert found["signal"] in ("OSError 1", "OSError 3", None)


@full
def test_memory_of_others_cannot_be_read(zygote: Zygote) -> None:
    secret = ctypes.create_string_buffer(b"what the reference computed")
    found = inside(zygote, TRY + f"""
import ctypes, os
libc = ctypes.CDLL(None, use_errno=True)
here = ctypes.create_string_buffer(32)
class Piece(ctypes.Structure):
    _fields_ = [("base", ctypes.c_void_p), ("size", ctypes.c_size_t)]
local = Piece(ctypes.addressof(here), 27)
remote = Piece({ctypes.addressof(secret)}, 27)
found["read"] = libc.process_vm_readv({os.getpid()}, ctypes.byref(local), 1, ctypes.byref(remote), 1, 0)
found["attached"] = libc.ptrace(16, {os.getpid()}, None, None)
found["file"] = attempt(lambda: open("/proc/{os.getpid()}/mem", "rb").read(1))
""")
    assert found["read"] == -1
    assert found["attached"] == -1
    assert found["file"] == "OSError 2"


@full
def test_only_its_own_directories_are_writable(zygote: Zygote, tmp_path: Path) -> None:
    package = os.path.dirname(sandbox.__file__)
    found = inside(zygote, TRY + f"""
import os
def write(folder):
    with open(os.path.join(folder, "planted"), "w") as file:
        return file.write("x")
for folder in ({package!r}, "/", "/etc", "/usr", "/var", "/proc/sys/kernel", "/home", {sys.prefix!r}):
    found[folder] = attempt(lambda: write(folder))
found["own"] = attempt(lambda: write("."))
found["tmp"] = attempt(lambda: write("/tmp"))
found["others"] = os.listdir("/tmp")
found["setting"] = attempt(lambda: open("/proc/sys/kernel/core_pattern", "w").close())
""")
    assert found.pop("own") == 1
    assert found.pop("tmp") == 1
    # what stays visible there is the worker's own, or on the way to a package that it imports
    imported = {path.split("/")[2] for path in map(os.path.realpath, sandbox.needed()) if path.startswith("/tmp/")}
    strange = {n for n in found.pop("others") if n != "planted" and not n.startswith("assay-")} - imported
    assert not strange
    assert not os.path.exists("/tmp/planted")
    assert {str(v).split()[0] for v in found.values()} == {"OSError"}


@full
def test_there_is_no_network(zygote: Zygote) -> None:
    found = inside(zygote, TRY + """
import socket
def connect(address):
    with socket.create_connection(address, 2):
        return "connected"
found["outside"] = attempt(lambda: connect(("192.0.2.1", 80)))
found["names"] = [name for _, name in socket.if_nameindex()]
""")
    assert str(found["outside"]).startswith("OSError")
    assert set(found["names"]) <= {"lo", "tunl0", "sit0", "ip6tnl0", "gre0", "gretap0", "erspan0", "ip_vti0",
                                   "ip6_vti0", "ip6gre0"}


@full
def test_no_privilege_is_left_nor_can_be_gained(zygote: Zygote) -> None:
    found = inside(zygote, TRY + """
import ctypes, os
status = dict(line.rstrip().split(":", 1) for line in open("/proc/self/status"))
names = ("CapEff", "CapPrm", "CapInh", "CapBnd", "CapAmb", "NoNewPrivs")
found["status"] = {name: status[name].strip() for name in names}
libc = ctypes.CDLL(None, use_errno=True)
found["unshare"] = libc.unshare(0x10000000)
found["mount"] = libc.mount(b"none", b"/tmp", b"tmpfs", 0, None)
found["uid"] = attempt(lambda: os.setuid(0)) if os.getuid() else "root"
""")
    status = found["status"]
    assert status.pop("NoNewPrivs") == "1"
    assert {int(bits, 16) for bits in status.values()} == {0}
    assert found["unshare"] == -1
    assert found["mount"] == -1
    if os.getuid() == 0 and "uid" in sandbox.level().parts:
        assert found["uid"] == "OSError 1"


@full
def test_two_workers_share_nothing(zygote: Zygote) -> None:
    code = """
        import os, socket
        sock = socket.socket(socket.AF_UNIX)
        try:
            sock.bind("\\0meeting-point")
            found["bound"] = True
        except OSError:
            found["bound"] = False
        open("/tmp/note", "x").close()
        open("/dev/shm/note", "x").close()
    """
    assert inside(zygote, code)["bound"]
    assert inside(zygote, code)["bound"]


@full
def test_the_reference_file_reads_as_empty(zygote: Zygote, tmp_path: Path) -> None:
    secret = Path(__file__).parent / "peek.py"
    assert inside(zygote, f"found['text'] = open({str(secret)!r}).read()", hide=[str(secret)])["text"] == ""
    assert inside(zygote, f"found['size'] = len(open({str(secret)!r}).read())")["size"] > 0


def test_limits_hold_in_every_mode(zygote: Zygote) -> None:
    for mode in ("auto", "off"):
        found = inside(zygote, TRY + """
import resource
def fill():
    with open("large", "wb") as file:
        file.seek(300 << 20)
        return file.write(b"x")
import signal
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
found["file"] = attempt(fill)
found["core"] = resource.getrlimit(resource.RLIMIT_CORE)
found["files"] = resource.getrlimit(resource.RLIMIT_NOFILE)
try:
    bytearray(64 << 30)
    found["memory"] = "given"
except MemoryError:
    found["memory"] = "refused"
""", confinement=mode)
        assert found == {"file": "OSError 27", "core": [0, 0], "files": [1024, 1024], "memory": "refused"}


@full
def test_shared_memory_cannot_be_grown_into_all_memory(zygote: Zygote) -> None:
    found = inside(zygote, TRY + """
import os
found["grown"] = attempt(lambda: os.posix_fallocate(201, 0, 8 << 30))
found["shrunk"] = attempt(lambda: os.ftruncate(201, 0))
""")
    assert str(found["grown"]).startswith("OSError")


def test_an_unprivileged_user_is_confined_too() -> None:
    if os.getuid() != 0:
        pytest.skip("this machine is already used without privileges")
    code = ("import dataclasses, encodings.ascii, json, os, pwd, sys, tempfile\n"
            f"sys.path.insert(0, {os.path.dirname(sandbox.__file__)!r})\n"
            "import sandbox\n"
            "os.setgroups([]); os.setresgid(65534, 65534, 65534); os.setresuid(65534, 65534, 65534)\n"
            "print(json.dumps(dataclasses.asdict(sandbox._measure(('/usr',)))))\n")
    done = subprocess.run([sys.executable, "-I", "-S", "-c", code], capture_output=True, text=True,
                          timeout=60, check=True)
    level = json.loads(done.stdout)
    limit = Path("/proc/sys/user/max_user_namespaces")
    if limit.exists() and limit.read_text().strip() != "0" and sandbox.level().full:
        assert level["name"] == "full"
        assert level["user"] is True
