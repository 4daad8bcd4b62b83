"""Logs of compute-sanitizer, in the formats of its manual and of older releases."""

from __future__ import annotations

import pytest

from assay.run.sanitizer import command, read, unfit
from assay.run.sanitizer_report import base_name, defined_kernels, is_own, parse

MEMCHECK = """========= COMPUTE-SANITIZER
Mallocing memory
========= Invalid __global__ write of size 4 bytes
=========     at out_of_bounds_function()+0xb0 in memcheck_demo.cu:39
=========     by thread (3,0,0) in block (1,0,0)
=========     Address 0x87654320 is out of bounds
=========     and is 137,179,965,340,896 bytes before the nearest allocation at 0x7cc43a800000 of size 1,024 bytes
=========     Device Frame: out_of_bounds_kernel()+0x30 in memcheck_demo.cu:44
=========
========= Invalid __global__ write of size 4 bytes
=========     at unaligned_kernel()+0x100 in memcheck_demo.cu:34
=========     by thread (0,0,0) in block (0,0,0)
=========     Address 0x7cc43aa00001 is misaligned
=========     and is inside the nearest allocation at 0x7cc43aa00000 of size 4 bytes
=========
========= Invalid __global__ read of size 4 bytes
=========     at add_kernel+0x70 in candidate.py:12
=========     by thread (31,0,0) in block (0,0,0)
=========     Access to 0x503600080 is out of bounds
=========     and is 1 bytes after the nearest allocation at 0x503600000 of size 128 bytes
=========
========= Program hit cudaErrorLaunchFailure (error 719) due to "unspecified launch failure" on CUDA API call to \
cudaDeviceSynchronize.
=========
========= ERROR SUMMARY: 4 errors
"""
OLD = """========= COMPUTE-SANITIZER
========= Invalid __global__ read of size 4 bytes
=========     at 0x270 in /root/code/triton/tutorials/09.py:37:add_kernel_0d1d2d3
=========     by thread (30,0,0) in block (0,0,0)
=========     Address 0x7f78f32003ec is out of bounds
========= Invalid __shared__ read of size 4 bytes
=========     at 0x578 in MatMulKernel(Matrix, Matrix, Matrix)
=========     by thread (30,0,0) in block (0,0,0)
=========     Address 0x1000 is out of bounds
========= ERROR SUMMARY: 2 errors
"""
INITCHECK = """========= COMPUTE-SANITIZER
========= Uninitialized __global__ memory read of size 4 bytes
=========     at vectorAdd(int *)+0x70 in /home/cuda/Initcheck/memset_error.cu:41
=========     by thread (31,0,0) in block (1,0,0)
=========     Address 0x7f3c7ec000fc
=========
========= Uninitialized __global__ memory read of size 4 bytes
=========     at void at::native::vectorized_elementwise_kernel<(int)4, at::native::FillFunctor<float>>(int, T2)+0x2d0
=========     by thread (31,0,0) in block (1,0,0)
=========     Address 0x7f3c7ec000fc
=========
========= Host API uninitialized memory access
=========
========= ERROR SUMMARY: 3 errors
"""
RACECHECK = """========= COMPUTE-SANITIZER
========= Error: Race reported between Write access at sumKernel(int *, int *)+0x90 in /h/block_error.cu:41
=========     and Read access at sumKernel(int *, int *)+0x100 in /h/block_error.cu:51 [508 hazards]
=========
========= Warning: Race reported between Write access at warpSum(int *)+0x90 in /h/warp_error.cu:44
=========     and Read access at warpSum(int *)+0x120 in /h/warp_error.cu:56 [31 hazards]
=========
========= RACECHECK SUMMARY: 2 hazards displayed (1 error, 1 warning)
"""
SYNCCHECK = """========= COMPUTE-SANITIZER
========= Barrier error detected. Divergent thread(s) in block.
=========     at [clone myKernel(int *, int *)] outlineSync()+0x11f0 in test.cu:42
=========     by thread (32,0,0) in block (0,0,0)
=========     Device Frame: myKernel(int *, int *)+0xe40 in test.cu:60
=========
========= ERROR SUMMARY: 1 error
"""
CLEAN = "========= COMPUTE-SANITIZER\n========= ERROR SUMMARY: 0 errors\n"


def test_accesses_outside_and_misaligned_ones_are_told_apart() -> None:
    parsed = parse(MEMCHECK)
    assert parsed.finished
    seen = [(r.kind, r.kernel, r.file, r.line, r.thread, r.block, r.size) for r in parsed.reports]
    assert seen == [
        ("write", "out_of_bounds_kernel", "memcheck_demo.cu", 39, (3, 0, 0), (1, 0, 0), 4),
        ("misaligned", "unaligned_kernel", "memcheck_demo.cu", 34, (0, 0, 0), (0, 0, 0), 4),
        ("read", "add_kernel", "candidate.py", 12, (31, 0, 0), (0, 0, 0), 4),
    ]
    assert "1 bytes after the nearest allocation" in parsed.reports[2].detail


def test_places_of_older_releases_are_read_too() -> None:
    first, second = parse(OLD).reports
    assert (first.kernel, first.line) == ("add_kernel_0d1d2d3", 37)
    assert (second.kernel, second.file, second.line) == ("MatMulKernel", "", 0)


def test_reads_of_unwritten_memory_name_the_kernel() -> None:
    mine, theirs = parse(INITCHECK).reports
    assert (mine.kind, mine.kernel, mine.line) == ("unwritten", "vectorAdd", 41)
    own = defined_kernels("__global__ void vectorAdd(int *p) {}\ndef vectorized_elementwise_kernel(): pass")
    assert is_own(mine, own)
    (typed,) = parse(INITCHECK.replace("vectorAdd(int *)", "void vectorAdd<at::Half>(int *)")).reports[:1]
    assert is_own(typed, own), "a type of torch among its template's arguments makes it no kernel of torch"
    assert not is_own(theirs, own), "a kernel of torch counts for nobody, whatever the candidate calls its own"


def test_only_races_that_are_errors_count() -> None:
    (race,) = parse(RACECHECK).reports
    assert (race.kind, race.kernel, race.line) == ("race", "sumKernel", 41)
    assert race.text == "write races with read at /h/block_error.cu:51"
    assert race.detail == "508 hazards"


def test_a_barrier_error_names_the_kernel_and_not_the_function_it_was_moved_to() -> None:
    (barrier,) = parse(SYNCCHECK).reports
    assert (barrier.kind, barrier.kernel, barrier.file, barrier.line) == ("barrier", "myKernel", "test.cu", 42)


@pytest.mark.parametrize(("printed", "name"), [
    ("void (anonymous namespace)::ns::k<float, (int)4>(float const*, int)", "k"),
    ("<unnamed>::scale(float *)", "scale"),
    ("add_kernel", "add_kernel"), ("void k<(bool)1>(at::native::Thing<float>)", "k"),
    ("candidate::foo[abi:v1](Array<float, 1>)", "foo"), ("", ""),
])
def test_names_are_plain(printed: str, name: str) -> None:
    assert base_name(printed) == name


def test_kernels_are_found_in_every_spelling() -> None:
    source = """
    extern "C" __global__ void a(float* x) {}
    template <typename T> __global__ void __launch_bounds__(256) b(T* x) {}
    __global__ __launch_bounds__(128, 2) void c(int n) {}
    static __global__
    void d() {}
    __device__ void helper() {}
@triton.jit
def e(x_ptr): pass
"""
    assert defined_kernels(source) == {"a", "b", "c", "d", "e"}
    assert defined_kernels(f"SOURCE = {source!r}") >= {"a", "b", "c", "d"}


def test_a_kernel_answers_for_what_it_calls_of_a_library() -> None:
    log = SYNCCHECK.replace("[clone myKernel(int *, int *)] outlineSync()", "cub::BlockReduce<float>::Sum(float)")
    (barrier,) = parse(log).reports
    assert is_own(barrier, defined_kernels("__global__ void myKernel(int *a, int *b) {}"))


def test_a_clean_run_is_told_from_one_that_did_not_come_to_its_end() -> None:
    source = "__global__ void k() {}"
    assert read("memcheck", CLEAN, source, {"ok": True}, False)["state"] == "ran"
    assert read("memcheck", "", source, {"ok": True}, False)["state"] == "failed"
    assert read("memcheck", CLEAN, source, {}, False)["state"] == "failed"
    assert read("memcheck", CLEAN, source, {"error": "RuntimeError: x"}, False)["state"] == "failed"
    assert read("memcheck", CLEAN, source, {"ok": True}, True)["state"] == "timed_out"
    broken = "========= COMPUTE-SANITIZER\n========= Error: Device not supported. Please refer to the documentation\n"
    found = read("memcheck", broken, source, {"ok": True}, False)
    assert found["state"] == "failed"
    assert "Device not supported" in found["why"]


def test_each_place_is_reported_once_and_other_kernels_are_counted() -> None:
    source = "__global__ void vectorAdd(int *p) {}"
    first = INITCHECK.split("SANITIZER\n")[1].split("=========\n")[0]
    again = INITCHECK.replace("========= Host", f"{first}========= Host")
    found = read("initcheck", again, source, {"ok": True}, False)
    assert [(r["kernel"], r["count"]) for r in found["reports"]] == [("vectorAdd", 2)]
    assert found["others"] == 1


def test_tools_are_not_asked_about_what_they_do_not_follow() -> None:
    pipeline = 'asm volatile("cp.async.ca.shared.global [%0], [%1], 16;");'
    assert unfit("racecheck", pipeline)
    assert unfit("synccheck", "#include <cuda/barrier>")
    assert not unfit("memcheck", pipeline)
    assert not unfit("racecheck", "__shared__ float s[32]; __syncthreads();")


def test_a_library_that_tries_the_api_is_not_reported() -> None:
    given = command("compute-sanitizer", "memcheck", "log", ["python", "x"])
    assert given[given.index("--report-api-errors") + 1] == "no"
    assert given[-2:] == ["python", "x"]
