"""Launcher stubs that candidates share: compiled where no candidate has been, read by who needs the same alone."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import subprocess
import sys
import sysconfig
import textwrap
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from assay.oracle.cache import TruthCache, key_of
from assay.run.ahead import Wanted
from assay.run.candidate import CandidateSession
from assay.run.process import Limits, Worker, Zygote
from assay.run.references import References
from assay.run.stub_cache import PENDING, StubCache
from assay.run.stubs import LARGEST_SOURCE, MOST, Stub, reads_headers_alone, toolchain

pytestmark = pytest.mark.skipif(
    not (Path(sysconfig.get_paths()["include"]) / "Python.h").exists() or shutil.which("gcc") is None
    or importlib.util.find_spec("triton") is None, reason="needs Triton, gcc and Python's headers")

EMULATED = Wanted({"device": "cpu", "target": "sm_90"}, Limits())
ENDLESS = "".join(f"#define A{i + 1} A{i} A{i}\n" for i in range(60)) + "#define A0 int x;\nA60\n"
SOURCE = """
#include <Python.h>
static PyObject* f(PyObject* s, PyObject* a) { return PyLong_FromLong(VALUE); }
static PyMethodDef methods[] = {{"f", f, METH_VARARGS, ""}, {0}};
static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "stub", 0, -1, methods};
PyMODINIT_FUNC PyInit_stub(void) { return PyModule_Create(&module); }
"""
PROCESS = textwrap.dedent("""
    import json, sys
    from assay.run import on_device
    from assay.run.stubs import Stubs
    described, source = json.load(open(sys.argv[1]))
    stubs = Stubs()
    stubs.restore(described, memoryview(open(sys.argv[1] + ".bin", "rb").read()))
    recorder = on_device.install(stubs)
    from triton.runtime.build import compile_module_from_src
    value = compile_module_from_src(source, name="stub").f()
    print(json.dumps([value, recorder.took()["stubs"], stubs.told()]))
""")


def _stub(value: int) -> Stub:
    return Stub("stub", SOURCE.replace("VALUE", str(value)))


def _told(*stubs: Stub) -> dict[str, Any]:
    return {"built": [stub.to_json() for stub in stubs], "used": []}


def _loaded(cache: StubCache, stub: Stub, folder: Path) -> int:
    """What the function of a kept stub returns, asked in a process of its own."""
    path = folder / f"stub{sysconfig.get_config_var('EXT_SUFFIX')}"
    path.write_bytes(stub.sealed(toolchain(), cache._kept[stub.key(toolchain())]))
    asked = [sys.executable, "-c", "import stub; print(stub.f())"]
    return int(subprocess.run(asked, cwd=folder, capture_output=True, check=True, timeout=60).stdout)


@pytest.fixture
def worker(zygote: Zygote) -> Iterator[Worker]:
    started = EMULATED.start(zygote)
    yield started
    started.close()


def _launching(offered: tuple[dict[str, Any] | None, list[memoryview]], stub: Stub, folder: Path,
               **environment: str) -> tuple[int, int, dict[str, Any] | None]:
    """A process whose Triton needs a stub: what it returns, the microseconds it took, and what the process tells."""
    folder.mkdir()
    (folder / "handed").write_text(json.dumps([offered[0], stub.source]))
    (folder / "handed.bin").write_bytes(b"".join(offered[1]))
    done = subprocess.run([sys.executable, "-c", PROCESS, str(folder / "handed")], capture_output=True, text=True,
                          timeout=120, check=False,
                          env={**os.environ, "TRITON_CACHE_DIR": str(folder / "triton"), **environment})
    assert done.returncode == 0, done.stderr
    value, took, told = json.loads(done.stdout)
    return value, took, told


def test_a_second_process_needs_no_compiler(zygote: Zygote, tmp_path: Path) -> None:
    first, second, third = (EMULATED.start(zygote) for _ in range(3))
    with StubCache(zygote) as cache:
        value, built_us, told = _launching(cache.offer(first), _stub(7), tmp_path / "first")
        assert (value, told) == (7, _told(_stub(7)))
        cache.take(first, told)
        cache.build()
        cache.wait()
        assert cache.keys() == [_stub(7).key(toolchain())]
        value, used_us, told = _launching(cache.offer(second), _stub(7), tmp_path / "second", CC="/bin/false")
        assert (value, told) == (7, {"built": [], "used": cache.keys()})
        assert 0 < used_us < built_us
        other = _launching(cache.offer(third), _stub(8), tmp_path / "third")
        assert other[0] == 8, "another source is built, whatever else is kept"
        assert cache.offer(second) == ({"toolchain": toolchain(), "kept": []}, []), "it was given already"
    for each in (first, second, third):
        each.close()


def test_the_key_is_of_all_that_an_object_depends_on() -> None:
    stub = _stub(7)
    others = [_stub(8), replace(stub, name="other"), replace(stub, library_dirs=("/a",)),
              replace(stub, include_dirs=("/a",)), replace(stub, libraries=("cuda",))]
    assert len({stub.key(toolchain()), stub.key("another"), *(other.key(toolchain()) for other in others)}) == 7
    assert Stub.from_json(json.loads(json.dumps(stub.to_json()))) == stub


def test_only_who_has_the_source_can_read_its_object() -> None:
    data = bytes(range(256)) * 3
    sealed = _stub(7).sealed(toolchain(), data)
    assert _stub(7).sealed(toolchain(), sealed) == data
    assert data not in (sealed, _stub(8).sealed(toolchain(), sealed), _stub(7).sealed("another", sealed))


GOOD = _stub(7).to_json()


@pytest.mark.parametrize("report", [
    None, 3, [], "built", {}, {"built": None, "used": None}, {"built": {"name": "stub"}}, {"built": [None, 3, [], {}]},
    {"built": [{**GOOD, "name": "../../escaped"}]}, {"built": [{**GOOD, "name": "a/b"}]},
    {"built": [{**GOOD, "name": ""}]}, {"built": [{**GOOD, "name": 7}]}, {"built": [{**GOOD, "more": 1}]},
    {"built": [{**GOOD, "source": "x" * (LARGEST_SOURCE + 1)}]}, {"built": [{**GOOD, "source": "int \u00e9;"}]},
    {"built": [{**GOOD, "source": ["int x;"]}]}, {"built": [{**GOOD, "source": ""}]},
    {"built": [{**GOOD, "source": '#include "/dev/zero"\n'}]},
    {"built": [{**GOOD, "source": '#include "/etc/passwd"\n'}]},
    {"built": [{**GOOD, "libraries": ["cuda -fplugin=/x.so"]}]}, {"built": [{**GOOD, "libraries": "cuda"}]},
    {"built": [{**GOOD, "library_dirs": ["relative"]}]}, {"built": [{**GOOD, "library_dirs": ["/a"] * 99}]},
    {"used": [None, 3, ["x"], "0" * 64]},
    # proper ones, that come to nothing
    {"built": [{**GOOD, "source": "no C at all"}]}, {"built": [{**GOOD, "include_dirs": ["/etc"]}]},
    {"built": [{**GOOD, "source": "char large[1 << 20] = {1};\n"}]},
], ids=lambda report: str(report)[-60:])
def test_a_hostile_report_comes_to_nothing(report: object, worker: Worker, zygote: Zygote) -> None:
    with StubCache(zygote) as cache:
        cache.take(worker, report)
        cache.build()
        cache.wait()
        assert not cache.keys()
        assert not cache._pending
        assert zygote.alive


@pytest.mark.parametrize("source", [
    '#include "/etc/passwd"\n', "#include </etc/passwd>\n", '#include "../x.h"\n', "#define F <x>\n#include F\n",
    '# include/**/"/etc/passwd"\n', '/*\n*/ #include "/etc/passwd"\n', '#inc\\\nlude "/etc/passwd"\n',
    '#inc\\ \nlude "/etc/passwd"\n', '%:include "/etc/passwd"\n', '??=include "/etc/passwd"\n',
    '#include_next "/etc/passwd"\n', '#import "/etc/passwd"\n', '#embed "/etc/passwd"\n',
    'asm(".incbin \\"/etc/passwd\\"");', '__asm__("");', 'a\\\nsm("");', "#define J(a, b) a##b\nJ(as, m)(\"\");",
    '_Pragma("GCC dependency \\"/etc/passwd\\"")', '#pragma GCC dependency "/etc/passwd"\n', '#line 1 "x"\n',
    '__attribute__((section("x\\n.incbin \\"/etc/passwd\\""))) int x;', '[[gnu::section("x")]] int x;',
    '#if __has_include("/etc/passwd")\n#endif\n', '__REDIRECT (f, (void), x;.incbin "/etc/passwd");',
])
def test_a_source_that_reads_other_files_is_left(source: str) -> None:
    assert not reads_headers_alone(source)


def test_what_triton_itself_builds_is_no_such_source() -> None:
    found = importlib.util.find_spec("triton")
    assert found is not None
    assert found.origin is not None
    for path in Path(found.origin).parent.glob("backends/nvidia/driver.c"):
        assert reads_headers_alone(path.read_text())
    assert reads_headers_alone('#include "cuda.h"\n#include <dlfcn.h>\n#define PY_SSIZE_T_CLEAN\n#include <Python.h>\n'
                               "#define CUDA_CHECK(ans) { gpuAssert((ans), __FILE__, __LINE__); }\n"
                               "#if 0x030600B1 <= PY_VERSION_HEX && !defined(PYPY_VERSION)\n#else\n#endif\n")


def test_no_more_sources_than_a_process_may_tell_of(worker: Worker, zygote: Zygote) -> None:
    with StubCache(zygote) as cache:
        cache.take(worker, _told(*map(_stub, range(MOST - 1))))
        cache.take(worker, _told(*map(_stub, range(100, 200))))
        assert len(cache._pending) == MOST
        others = [EMULATED.start(zygote) for _ in range(3)]
        for number, other in enumerate(others, 2):
            cache.take(other, _told(*map(_stub, range(100 * number, 100 * number + MOST))))
            other.close()
        assert len(cache._pending) == PENDING


def test_a_source_that_never_ends_costs_its_time_and_no_more(worker: Worker, zygote: Zygote) -> None:
    endless = Stub("stub", ENDLESS)
    with StubCache(zygote, seconds=3.0) as cache:
        cache.take(worker, _told(endless, _stub(7)))
        cache.build()
        cache.wait()
        assert cache.keys() == [_stub(7).key(toolchain())]
        cache.take(worker, _told(endless))
        assert not cache._pending, "it is not tried again"


def test_closing_does_not_wait_for_a_compiler(worker: Worker, zygote: Zygote) -> None:
    cache = StubCache(zygote, seconds=300.0)
    cache.take(worker, _told(Stub("stub", ENDLESS)))
    cache.build()
    time.sleep(0.5)
    began = time.monotonic()
    cache.close()
    assert time.monotonic() - began < 10.0
    assert not cache.keys()


def test_nothing_is_compiled_for_all_where_candidates_are_not_kept_apart(worker: Worker, zygote: Zygote) -> None:
    with StubCache(zygote) as cache:
        cache.take(worker, _told(_stub(7)), sandbox="off")
        assert not cache._pending


HOSTILE = """
import torch
from assay.run import stubs, wire

send, told = wire.send, TOLD
key = stubs.Stub.from_json(told["built"][0]).key(KEYED)

def sent(sock, header, chunks=None):
    # its own object for a source that others need, in every way that something is handed on
    forged = memoryview(b"\\x7fELF forged")
    header["stubs"] = {**told, "kept": [[key, len(forged)]], "toolchain": KEYED, "objects": {key: "forged"}}
    send(sock, header, [*(chunks or []), forged])

wire.send = sent

def ModelNew(x):
    return x
"""


def test_what_a_candidate_built_itself_goes_to_no_other(zygote: Zygote, tmp_path: Path) -> None:
    source = HOSTILE.replace("TOLD", repr(_told(_stub(7)))).replace("KEYED", repr(toolchain()))
    with StubCache(zygote) as cache:
        session = CandidateSession(zygote, source, ["ModelNew"], EMULATED.options, EMULATED.limits, stubs=cache)
        assert session._ensure_loaded("a probe", 60.0) is None
        session.close()
        assert not cache.keys()
        cache.build()
        cache.wait()
        assert cache.keys() == [_stub(7).key(toolchain())]
        assert _loaded(cache, _stub(7), tmp_path) == 7


def test_judges_share_them_on_disk(worker: Worker, zygote: Zygote, tmp_path: Path) -> None:
    disk = TruthCache(tmp_path / "disk")
    with StubCache(zygote) as first, StubCache(zygote) as second, StubCache(zygote) as third:
        for cache in (first, second):
            cache.share(disk)
        first.take(worker, _told(_stub(7)))
        first.build()
        first.wait()
        assert not second.keys()
        second.build()
        second.wait()
        assert second.keys() == first.keys()
        second.take(worker, _told(_stub(8)))
        second.build()
        second.wait()
        third.share(disk)
        assert set(third.keys()) == {stub.key(toolchain()) for stub in (_stub(7), _stub(8))}
        (tmp_path / "loaded").mkdir()
        assert _loaded(third, _stub(8), tmp_path / "loaded") == 8
    assert disk.hits == disk.misses == 0
    # what the cache made room for is compiled and put there again
    gone = disk._path(key_of("stub", _stub(7).key(toolchain())))
    gone.unlink()
    with StubCache(zygote) as fourth:
        fourth.share(disk)
        assert fourth.keys() == [_stub(8).key(toolchain())]
        fourth.take(worker, _told(_stub(7)))
        fourth.build()
        fourth.wait()
    assert gone.exists()


def test_the_least_recently_used_go_first(worker: Worker, zygote: Zygote, tmp_path: Path) -> None:
    keys = [_stub(value).key(toolchain()) for value in range(3)]
    with StubCache(zygote, entries=2) as cache:
        cache.share(TruthCache(tmp_path))
        cache.take(worker, _told(_stub(0), _stub(1)))
        cache.build()
        cache.wait()
        assert cache.keys() == keys[:2]
        cache.take(worker, {"built": [], "used": [keys[0]]})
        cache.take(worker, _told(_stub(2)))
        for _ in range(2):
            cache.build()
            cache.wait()
            assert cache.keys() == [keys[0], keys[2]], "what had to go does not come back unasked"
        cache.take(worker, _told(_stub(1)))
        cache.build()
        cache.wait()
        assert cache.keys() == [keys[2], keys[1]]
    with StubCache(zygote, size=30_000) as small:
        small.share(TruthCache(tmp_path))
        assert 0 < sum(map(len, small._kept.values())) <= 30_000


def test_references_have_them_compiled_while_nobody_waits(worker: Worker, zygote: Zygote) -> None:
    with References(zygote) as references:
        references.stubs.take(worker, _told(_stub(7)))
        references.get_ready()
        references.stubs.wait()
        assert references.stubs.keys() == [_stub(7).key(toolchain())]
