"""Parts of the GPU pipeline that tensors of any device exercise: corrupted launches, kernels told by name."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import textwrap
import time
from pathlib import Path

import pytest
import torch

from assay.gates import GATES
from assay.gates.base import single
from assay.gates.kernel_names import is_library, is_neutral
from assay.probe.model import Draw
from assay.run.candidate import CandidateSession, _error_status
from assay.run.lanes import Budget, Run
from assay.run.on_device import corrupted
from assay.run.process import Limits, Zygote
from assay.run.reference import ReferenceSession
from assay.run.work import LibraryWork
from assay.task import parse_task


def test_what_a_launch_stores_is_replaced_and_the_rest_stays() -> None:
    x, out = torch.randn(4, 8), torch.full((4, 8), float("nan"))
    before = x.clone()
    with corrupted(3, [x, out, 8]) as replaced:
        out[:, :5] = 2.0 * x[:, :5]
    assert replaced == [20]
    assert torch.equal(x, before), "an input was changed"
    assert not torch.isclose(out[:, :5], 2.0 * x[:, :5]).any()
    assert torch.isnan(out[:, 5:]).all(), "what was not stored was changed"


def test_indices_change_places_and_stay_legal() -> None:
    index = torch.full((6,), -1)
    with corrupted(1, [index]) as replaced:
        index.copy_(torch.arange(6))
    assert replaced == [6]
    assert sorted(index.tolist()) == list(range(6))
    assert index.tolist() != list(range(6))


def test_replacing_what_a_launch_stores_is_no_work_of_the_candidate() -> None:
    x, out = torch.randn(4, 8), torch.full((4, 8), float("nan"))
    with LibraryWork() as counted, corrupted(3, [x, out]):
        out.copy_(x.abs())
    assert dict(counted.operations) == {"abs": 64}, "abs is the candidate's own; what replaces its stores is not"
    assert [name for name, _ in counted.results] == ["abs"]


def test_the_same_bits_as_before_cannot_be_told_from_nothing_stored() -> None:
    stale = torch.ones(5)
    with corrupted(1, [stale]) as replaced:
        stale.fill_(1.0)
    assert replaced == [0], "the gate has to leave such a run undecided"


@pytest.mark.parametrize("name", [
    "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>>",
    "sm90_xmma_gemm_f32f32_tf32f32_f32_tn_n_tilesize128x128x32_warpgroupsize2x1x1_execute_segment_k_off_kernel__5x",
    "void cutlass::Kernel2<cutlass_80_simt_sgemm_128x64_8x5_nn_align1>", "ampere_sgemm_128x64_tn",
    "void cudnn::ops::nchwToNhwcKernel<float>", "nvjet_tst_128x64_64x8_1x1_h_bz_TNT",
    "void at_cuda_detail::cub::DeviceReduceKernel", "pytorch_flash::flash_fwd_kernel", "void gemv2T_kernel_val<int>",
])
def test_kernels_of_the_libraries_are_known(name: str) -> None:
    assert is_library(name)


@pytest.mark.parametrize("name", ["relu_kernel", "softmax_row_kernel", "matmul_kernel", "_attn_fwd", "fused_gelu",
                                  "relu(float const*, float const*, float*, int, long)", "triton_poi_fused_add_0"])
def test_a_candidates_own_kernels_are_its_own(name: str) -> None:
    assert not is_library(name)
    assert not is_neutral(name)


@pytest.mark.parametrize("name", ["Memcpy DtoD (Device -> Device)", "Memset (Device)",
                                  "void at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor<float>>"])
def test_copies_and_fills_count_for_nobody(name: str) -> None:
    assert is_neutral(name)


@pytest.mark.parametrize(("error", "status"), [
    ({"type": "InductorError", "message": "CppCompileError: C++ compile error\n... Python.h"}, "toolchain"),
    ({"type": "ToolchainError", "message": "nvcc fatal"}, "toolchain"),
    ({"type": "BuildError", "message": "main.cpp:7: error: expected ';'"}, "raised"),
    ({"type": "InductorError", "message": "LoweringException: AssertionError"}, "raised"),
    ({"type": "RuntimeError", "message": "CppCompileError"}, "raised"),
])
def test_a_compiler_of_the_machine_that_fails_is_no_fault(error: dict[str, str], status: str) -> None:
    assert _error_status(error) == status


def test_host_code_of_launches_is_built_without_optimising_and_its_time_is_kept(tmp_path: Path) -> None:
    program = textwrap.dedent("""
        from assay.run import on_device
        recorder = on_device.install()
        from triton.runtime.build import compile_module_from_src
        seven = "static PyObject* f(PyObject* s, PyObject* a) { return PyLong_FromLong(7); }"
        rest = '''static PyMethodDef methods[] = {{"f", f, METH_VARARGS, ""}, {0}};
        static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "stub", 0, -1, methods};
        PyMODINIT_FUNC PyInit_stub(void) { return PyModule_Create(&module); }'''
        made = compile_module_from_src("#include <Python.h>\\n#ifdef __OPTIMIZE__\\n#error optimised\\n#endif\\n"
                                       + seven + rest, name="stub")
        print(made.f(), recorder.took()["stubs"] > 0, recorder.took()["stubs"])
    """)
    if not (Path(sysconfig.get_paths()["include"]) / "Python.h").exists() or shutil.which("gcc") is None:
        pytest.skip("needs gcc and Python's headers")
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120,
                          env={**os.environ, "TRITON_CACHE_DIR": str(tmp_path)}, check=False)
    assert done.stdout.split() == ["7", "True", "0"], done.stderr


def test_only_what_hangs_again_in_a_new_process_hangs(zygote: Zygote, tmp_path: Path) -> None:
    """The word of a worker whose device was not done, as a neighbour's endless kernel makes it."""
    source = f"""
    import os, torch
    class DeviceHung(RuntimeError): pass
    class ModelNew(torch.nn.Module):
        def forward(self, x):
            # what a worker on a GPU says of its device; each process of the candidate is another
            with open({str(tmp_path)!r} + "/pids", "a") as file:
                file.write(f"{{os.getpid()}}\\n")
            hangs = {{hangs}}
            if len(set(open({str(tmp_path)!r} + "/pids").read().split())) <= hangs:
                raise DeviceHung("the device was not done")
            return x + 1
    """
    reference = "import torch\nclass Model(torch.nn.Module):\n    def forward(self, x):\n        return x + 1\n" \
                "def get_inputs():\n    return [torch.randn(8)]\ndef get_init_inputs():\n    return []\n"
    tmp_path.chmod(0o777)
    task = parse_task(reference)
    for hangs, status in ((1, "ok"), (9, "timed_out")):
        (tmp_path / "pids").unlink(missing_ok=True)
        text = textwrap.dedent(source).replace("{hangs}", str(hangs))
        session = CandidateSession(zygote, text, ["ModelNew"], {"device": "cpu", "target": "sm_90"}, Limits(),
                                   sandbox="off")
        reference_session = ReferenceSession(zygote, task, {})
        run = Run(reference_session, [session], Budget(time.monotonic() + 60.0), 3)
        probe = single(GATES["values"], "x", Draw(seed=1), {})
        assert run.one(probe, session).observation.status == status
        session.close()
        reference_session.close()


def test_torch_computes_for_a_candidate_as_for_its_reference() -> None:
    """By itself a convolution takes TF32 on a GPU; in a process of its own, as the flags are the whole process's."""
    program = textwrap.dedent("""
        import torch
        from assay.run.candidate_worker import library_arithmetic
        assert torch.backends.cudnn.allow_tf32
        library_arithmetic()
        matmul = torch.backends.cuda.matmul
        assert not torch.backends.cudnn.allow_tf32 and not matmul.allow_tf32
        assert not matmul.allow_fp16_reduced_precision_reduction
        assert not matmul.allow_bf16_reduced_precision_reduction
        # whoever asks for less gets it, in either way of asking
        torch.backends.cudnn.allow_tf32 = matmul.allow_tf32 = True
        assert torch.backends.cudnn.allow_tf32 and torch.get_float32_matmul_precision() == "high"
        library_arithmetic()
        torch.backends.cuda.matmul.fp32_precision = "tf32"
        torch.backends.cudnn.conv.fp32_precision = "tf32"
        assert torch.backends.cudnn.conv.fp32_precision == "tf32"
        torch.set_float32_matmul_precision("high")
    """)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
