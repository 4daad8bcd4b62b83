"""Resources of CUDA C++ kernels: what the toolkit prints is read, and limits of each target are kept."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
import torch
from tests.native.kernels import TASK

from assay.contract import Contract
from assay.contract.model import Resources
from assay.run.extension_resources import find, of_objdump, of_ptxas, plain_name, read_built
from assay.run.process import Zygote
from assay.task import load_candidate, parse_candidate, parse_task
from assay.verify import Options, verify_task
from assay.vocabulary import Outcome, Reason

PTXAS = """ptxas info    : 28 bytes gmem
ptxas info    : Compiling entry function '_ZN3abc11copy_beyondIfEEvPKfPfi' for 'sm_90'
ptxas info    : Function properties for _ZN3abc11copy_beyondIfEEvPKfPfi
    64 bytes stack frame, 60 bytes spill stores, 56 bytes spill loads
ptxas info    : Used 255 registers, used 1 barriers, 64 bytes cumulative stack size, 4096 bytes smem, 380 bytes cmem[0]
ptxas info    : Compile time = 25.367 ms
ptxas info    : Compiling entry function 'plain' for 'sm_90'
ptxas info    : Function properties for plain
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 10 registers, used 0 barriers
"""
OBJDUMP = """
Fatbin elf code:
================
arch = sm_80
code version = [1,8]
host = linux
compile_size = 64bit

Resource usage:
 Common:
  GLOBAL:28 CONSTANT[4]:224
 Function _Z11copy_beyondPKfPfi:
  REG:12 STACK:0 SHARED:0 LOCAL:0 CONSTANT[0]:548 TEXTURE:0 SURFACE:0 SAMPLER:0

Fatbin elf code:
================
arch = sm_90a
code version = [1,8]

Resource usage:
 Common:
  GLOBAL:0
 Function _Z11copy_beyondPKfPfi:
  REG:10 STACK:16 SHARED:2048 LOCAL:8 CONSTANT[0]:548 TEXTURE:0 SURFACE:0 SAMPLER:0
"""
CANDIDATE = '''
import torch
from torch.utils.cpp_extension import load_inline

SOURCE = r"""
__global__ void doubled(const float* x, float* y, int n) {
  __shared__ float s[SIZE];
  for (int i = threadIdx.x; i < SIZE; i += blockDim.x) s[i] = i < n ? x[i] : 0.0f;
  __syncthreads();
  for (int i = threadIdx.x; i < n; i += blockDim.x) y[i] = 2.0f * s[i % SIZE];
  EXTRA
}
"""
ext = load_inline("doubled_ext", "", SOURCE, functions=None, is_python_module=True, no_implicit_headers=True)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        return ext.doubled(x)
'''
FITS = CANDIDATE.replace("SIZE", "1024").replace("EXTRA", "")
TOO_MUCH = CANDIDATE.replace("SIZE", "16384").replace("EXTRA", "")
NEEDS_HOPPER = CANDIDATE.replace("SIZE", "1024").replace("EXTRA", 'asm volatile("fence.proxy.async;");')
nvcc = pytest.mark.skipif(find("nvcc") is None or shutil.which("g++") is None, reason="needs nvcc and g++")


def test_what_ptxas_prints_is_read() -> None:
    first, second = of_ptxas(PTXAS)
    assert (first.kernel, first.registers, first.stack, first.spilled) == ("copy_beyond", 255, 64, 60)
    assert first.shared == 4096
    assert (second.kernel, second.registers, second.shared) == ("plain", 10, 0)


def test_of_a_build_for_several_chips_the_targets_part_is_read() -> None:
    (old,) = of_objdump(OBJDUMP, "sm_80")
    (new,) = of_objdump(OBJDUMP, "sm_90")
    assert (old.registers, old.shared) == (12, 0)
    assert (new.kernel, new.registers, new.stack, new.spilled, new.shared) == ("copy_beyond", 10, 16, 8, 1024)
    assert of_objdump(OBJDUMP, "sm_100") == ()


@pytest.mark.skipif(find("nvcc") is None or find("cuobjdump") is None, reason="needs nvcc and cuobjdump")
@pytest.mark.parametrize("target", ["sm_80", "sm_90", "sm_120"])
def test_assembler_and_disassembler_tell_the_same(target: str, tmp_path: Path) -> None:
    source, cubin = tmp_path / "k.cu", tmp_path / "k.cubin"
    source.write_text("""
__global__ void fixed(float* x) { __shared__ float s[256]; s[threadIdx.x] = x[threadIdx.x]; __syncthreads();
  x[threadIdx.x] = s[255 - threadIdx.x]; }
__global__ void chosen(float* x) { extern __shared__ float s[]; s[threadIdx.x] = x[threadIdx.x]; __syncthreads();
  x[threadIdx.x] = s[255 - threadIdx.x]; }
__global__ void none(float* x) { x[threadIdx.x] *= 2.0f; }
""")
    made = subprocess.run([str(find("nvcc")), f"-arch={target}", "-cubin", "-Xptxas", "-v", str(source), "-o",
                           str(cubin)], capture_output=True, text=True, check=True)
    read = read_built(str(cubin), target)
    assert read is not None
    by_name = {k.kernel: k for k in of_ptxas(made.stdout + made.stderr)}
    assert {k.kernel: k for k in read.taken} == by_name
    assert {name: k.shared for name, k in by_name.items()} == {"fixed": 1024, "chosen": 0, "none": 0}


@pytest.mark.parametrize(("mangled", "name"), [
    ("_Z11copy_beyondPKfPfi", "copy_beyond"), ("_ZN2ns5inner1kIfLi4EEEvPKT_", "k"), ("plain", "plain"),
    ("_ZN37_GLOBAL__N__7f5a8a8e_9_kernel_cu_3b5e6dottedEPf", "dotted"),
    ("_Z1kIfEvPT_", "k"),
])
def test_mangled_names_become_plain(mangled: str, name: str) -> None:
    assert plain_name(mangled) == name


def _judged(zygote: Zygote, source: str, *targets: str, device: str = "cpu"):  # type: ignore[no-untyped-def]
    report = verify_task(parse_task(TASK), parse_candidate(source), zygote=zygote,
                         contract=Contract(resources=Resources(targets=targets)),
                         options=Options(device=device, seed=3, only=("resources",)))
    return report, report.gates[0]


@nvcc
def test_a_kernel_of_an_extension_fits_on_each_target(zygote: Zygote) -> None:
    report, gate = _judged(zygote, FITS, "sm_80", "sm_100")
    assert gate.outcome is Outcome.PASS, (gate, report.findings)
    assert "doubled on sm_80" in gate.note
    assert "4096 B shared" in gate.note


@nvcc
def test_more_static_shared_memory_than_a_block_may_have_is_found(zygote: Zygote) -> None:
    report, gate = _judged(zygote, TOO_MUCH, "sm_90")
    assert gate.outcome is Outcome.FAIL
    assert {f.reason for f in report.findings} == {Reason.SHARED_MEMORY}


@nvcc
def test_an_instruction_that_an_older_chip_has_not_got_is_found_there_alone(zygote: Zygote) -> None:
    report, gate = _judged(zygote, NEEDS_HOPPER, "sm_80", "sm_90")
    assert gate.outcome is Outcome.FAIL
    assert [(f.reason, f.expected) for f in report.findings] == [(Reason.COMPILE_FAILED, "compiles for sm_80")]


@nvcc
def test_sources_that_do_not_compile_here_decide_nothing(zygote: Zygote) -> None:
    report, gate = _judged(zygote, FITS.replace("__syncthreads", "__sync_threads"), "sm_90")
    assert report.findings == ()
    assert (gate.outcome, gate.reason) == (Outcome.INCONCLUSIVE, Reason.TOOLCHAIN)
    assert "not checked for sm_90" in gate.note


def test_without_a_compiler_it_is_not_checked_and_said_so(zygote: Zygote, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")
    monkeypatch.setenv("CUDA_HOME", "/nonexistent")
    report, gate = _judged(zygote, FITS, "sm_90")
    assert report.findings == ()
    assert gate.outcome is Outcome.INCONCLUSIVE
    assert "nvcc is not installed" in gate.note


ON_DEVICE = CANDIDATE.replace("SIZE", "1024").replace("EXTRA", "").replace('r"""', '''r"""
#include <ATen/ATen.h>
#include <torch/library.h>
''').replace('''}
"""
''', '''}
at::Tensor run(const at::Tensor& x) {
  auto a = x.contiguous(), y = at::empty_like(a);
  doubled<<<1, 256>>>(a.data_ptr<float>(), y.data_ptr<float>(), int(a.numel()));
  return y;
}
TORCH_LIBRARY(doubled_ext, m) { m.def("run(Tensor x) -> Tensor", &run); }
"""
''').replace("is_python_module=True", "is_python_module=False").replace(
    "ext.doubled(x)", "torch.ops.doubled_ext.run(x)")


@pytest.mark.gpu
@pytest.mark.parametrize("targets", [(), ("sm_80", "sm_90", "sm_100")])
def test_on_a_gpu_a_built_extension_is_read_and_compiled_for_other_chips(targets: tuple[str, ...],
                                                                         zygote: Zygote) -> None:
    if not torch.cuda.is_available():
        pytest.skip("needs a CUDA device")
    if find("nvcc") is None or shutil.which("ninja") is None:
        pytest.skip("needs nvcc and ninja")
    report, gate = _judged(zygote, ON_DEVICE, *targets, device="cuda")
    assert gate.outcome is Outcome.PASS, (gate, report.findings)
    major, minor = torch.cuda.get_device_capability()
    for target in targets or (f"sm_{major}{minor}",):
        assert f"doubled on {target}: " in gate.note
    assert "4096 B shared" in gate.note


@nvcc
def test_a_bare_cuda_file_is_compiled_too(zygote: Zygote, tmp_path: Path) -> None:
    file = tmp_path / "kernel.cu"
    file.write_text("__global__ void k(float* x) { x[threadIdx.x] *= 2.0f; }\n// TORCH_EXTENSION_NAME binds it\n")
    report = verify_task(parse_task(TASK), load_candidate(file), zygote=zygote,
                         contract=Contract(resources=Resources(targets=("sm_120",))),
                         options=Options(device="cpu", seed=3, only=("resources",)))
    assert report.gates[0].outcome is Outcome.PASS, report
    assert "k on sm_120" in str(report.gates[0].note)
