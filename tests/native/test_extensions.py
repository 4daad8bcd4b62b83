"""Candidates that bring C++: built once for all workers, judged as any other, and errors in one line."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from assay.probe.record import Observation
from assay.run.build_cache import BuildCache
from assay.run.builds import BuildError, ToolchainError, explained, first_error
from assay.run.candidate import CandidateSession
from assay.run.process import Limits, Zygote
from assay.task import load_candidate, parse_candidate, parse_task
from assay.verify import Options, verify_task
from assay.vocabulary import Label, Outcome, Reason

TASK = """
import torch
N = 37
class Model(torch.nn.Module):
    def __init__(self, n):
        super().__init__()
        self.scale = torch.nn.Parameter(torch.rand(n) + 0.5)
    def forward(self, x):
        return torch.relu(x) * self.scale
def get_inputs():
    return [torch.randn(5, N)]
def get_init_inputs():
    return [N]
"""
CANDIDATE = '''
import torch
from torch.utils.cpp_extension import load_inline

SOURCE = r"""
torch::Tensor scaled(torch::Tensor x, torch::Tensor s) {
  auto a = x.contiguous(); auto b = s.contiguous(); auto out = torch::empty_like(a);
  auto pa = a.data_ptr<float>(); auto pb = b.data_ptr<float>(); auto po = out.data_ptr<float>();
  long n = a.size(-1);
  for (long i = 0; i < a.numel(); i++) po[i] = (pa[i] < 0 ? 0.0f : pa[i]) * pb[i % n];
  return out;
}
"""
ext = load_inline("scaled_ext", cpp_sources=SOURCE, functions=["scaled"], extra_cflags=["-O0"])


class ModelNew(torch.nn.Module):
    def __init__(self, n):
        super().__init__()
        self.scale = torch.nn.Parameter(torch.rand(n))

    def forward(self, x):
        return ext.scaled(x, self.scale)
'''
OPTIONS = Options(device="cpu", seed=3, only=("values", "faults", "nonfinite", "provenance"), timeout=400.0)
compilers = pytest.mark.skipif(shutil.which("ninja") is None or shutil.which("g++") is None,
                               reason="needs ninja and g++")


@compilers
def test_an_extension_is_built_once_and_judged_like_any_candidate(zygote: Zygote) -> None:
    task, right = parse_task(TASK), parse_candidate(CANDIDATE)
    report = verify_task(task, right, options=OPTIONS, zygote=zygote)
    assert report.label is Label.CONTRACT, report.findings
    provenance = next(g for g in report.gates if g.slug == "provenance")
    assert provenance.outcome is Outcome.NOT_APPLICABLE, "native work cannot be counted on a CPU"


@compilers
@pytest.mark.slow
def test_a_wrong_extension_is_rejected(zygote: Zygote) -> None:
    task = parse_task(TASK)
    wrong = parse_candidate(CANDIDATE.replace("pb[i % n]", "pb[i % (n - 1)]"))
    found = verify_task(task, wrong, options=OPTIONS, zygote=zygote)
    assert found.label is Label.REJECTED
    assert {f.slug for f in found.findings} >= {"values"}


@compilers
@pytest.mark.slow
def test_a_second_worker_loads_what_the_first_one_built(zygote: Zygote) -> None:
    cache = BuildCache("digest")
    elsewhere = CANDIDATE + "\nassert '/builds/' in ext.__file__, ext.__file__\n"

    def failure(source: str, cache: BuildCache) -> Observation | None:
        session = CandidateSession(zygote, source, ["ModelNew"], {"device": "cpu", "target": "sm_90"}, Limits(),
                                   build_cache=cache)
        try:
            return session._ensure_loaded("probe", 400.0)
        finally:
            session.close()

    assert failure(CANDIDATE, cache) is None
    (kept,) = cache.items()
    assert kept[1] == "scaled_ext"
    assert kept[2].startswith(b"\x7fELF")
    assert failure(elsewhere, cache) is None, "it was built again"
    refused = failure(elsewhere, BuildCache())
    assert refused is not None, "without a cache it has to be built"
    assert (refused.error or {}).get("type") == "AssertionError"


def test_a_cache_takes_only_what_is_described_properly() -> None:
    key, data = "a" * 64, b"\x7fELF-one"
    cache = BuildCache()
    for described in ([[key, "x", 99]], [[key, "../x", 4]], [["short", "x", 4]], [[key, "x", -4]], "text", {"a": 1},
                      [[key, "x", True]], [[key, "x"]], [[key, "x", 4]] * 17, None, []):
        cache.take(described, memoryview(data))
        assert cache.items() == []
    cache.take([[key, "x", len(data)]], memoryview(b"outputs before it" + data))
    assert cache.items() == [(key, "x", data)]
    cache.take([[key, "x", 4]], memoryview(b"evil"))
    assert cache.items() == [(key, "x", data)], "a later build replaced what other workers load"


OUTPUT = """Error building extension 'k': [1/2] /usr/local/cuda/bin/nvcc --generate-dependencies -c cuda.cu -o cuda.o
FAILED: cuda.o
/tmp/x/cuda.cu(12): {first}

1 error detected in the compilation of "/tmp/x/cuda.cu".
ninja: build stopped: subcommand failed.
"""


@pytest.mark.parametrize(("text", "kind", "line"), [
    (OUTPUT.format(first='error: identifier "foo" is undefined'), BuildError,
     'cuda.cu:12: error: identifier "foo" is undefined'),
    (OUTPUT.format(first='error: namespace "at::cuda" has no member "getApplyGrid"'), ToolchainError,
     'cuda.cu:12: error: namespace "at::cuda" has no member "getApplyGrid"'),
    ("Error building extension 'k': main.cpp:3:10: fatal error: THC/THC.h: No such file or directory",
     ToolchainError, "fatal error"),
    ("Ninja is required to load C++ extensions (pip install ninja to get it)", ToolchainError, "Ninja is required"),
    ("Error building extension 'k': nvcc fatal   : Unsupported gpu architecture 'compute_30'", ToolchainError,
     "nvcc fatal"),
    ("Error building extension 'k': main.cpp:7:5: error: expected ';' before 'return'", BuildError,
     "expected ';' before 'return'"),
])
def test_errors_of_compilers_are_one_line_and_toolchains_are_told_apart(text: str, kind: type[Exception],
                                                                        line: str) -> None:
    error = explained(RuntimeError(text))
    assert type(error) is kind
    assert line in str(error)
    assert "\n" not in str(error)
    assert first_error("nothing to see") == "nothing to see"


def test_other_errors_of_a_build_stay_what_they_are() -> None:
    error = ValueError("functions must be a list")
    assert explained(error) is error


@compilers
@pytest.mark.slow
def test_sources_that_do_not_compile_are_a_fault_and_say_where(zygote: Zygote) -> None:
    broken = parse_candidate(CANDIDATE.replace("long n = a.size(-1);", "long n = a.siz(-1);"))
    report = verify_task(parse_task(TASK), broken, options=OPTIONS, zygote=zygote)
    assert report.label is Label.REJECTED
    assert any("siz" in str(f.actual) for f in report.findings), report.findings


BARE = """
#include <torch/extension.h>
__global__ void relu(const float* x, const float* s, float* y, int n, long total) {
  long i = blockIdx.x * (long)blockDim.x + threadIdx.x;
  if (i < total) y[i] = (x[i] < 0 ? 0.0f : x[i]) * s[i % n];
}
torch::Tensor forward(torch::Tensor x, torch::Tensor s) {
  auto a = x.contiguous(); auto b = s.contiguous(); auto y = torch::empty_like(a);
  long total = a.numel();
  if (total) relu<<<(total + 255) / 256, 256, 0, at::cuda::getCurrentCUDAStream()>>>(
      a.data_ptr<float>(), b.data_ptr<float>(), y.data_ptr<float>(), a.size(-1), total);
  return y;
}
PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("forward", &forward); }
""".replace("#include <torch/extension.h>", "#include <torch/extension.h>\n#include <ATen/cuda/CUDAContext.h>")


def test_a_bare_cuda_file_is_a_candidate_that_needs_a_gpu(tmp_path: Path, zygote: Zygote) -> None:
    file = tmp_path / "scaled relu.cu"
    file.write_text(BARE)
    candidate = load_candidate(file)
    assert (candidate.language, candidate.entry, candidate.defect) == ("cuda", "ModelNew", None)
    report = verify_task(parse_task(TASK), candidate, options=OPTIONS, zygote=zygote)
    assert report.label is Label.SCREENED
    values = next(g for g in report.gates if g.slug == "values")
    assert values.outcome is Outcome.INCONCLUSIVE
    assert Reason.NEEDS_GPU in values.undecided


def test_a_cuda_file_without_a_binding_says_what_to_add() -> None:
    assert "PYBIND11_MODULE" in str(parse_candidate("__global__ void k() {}", path="k.cu", strict=False).defect)
