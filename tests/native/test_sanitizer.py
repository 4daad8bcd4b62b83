"""Candidates under compute-sanitizer: a wrong kernel for each tool beside its right twin, in Triton and CUDA C++."""

from __future__ import annotations

import math
import shutil
from collections.abc import Iterator
from typing import Any

import pytest
import torch

from assay.gates import GATES, Context
from assay.probe.model import Draw, Probe
from assay.probe.record import Record
from assay.run.build_cache import BuildCache
from assay.run.candidate import CandidateSession
from assay.run.lanes import Budget, Run
from assay.run.process import Limits, Zygote
from assay.run.reference import ReferenceSession
from assay.run.sanitizer import find_tool
from assay.task import parse_candidate, parse_task
from assay.verify import Options, verify_task
from assay.vocabulary import EffortTier, Label, Outcome, Reason

TASK = """
import torch
N = 37
class Model(torch.nn.Module):
    def forward(self, x):
        return 2.0 * x
def get_inputs():
    return [torch.randn(5, N)]
def get_init_inputs():
    return []
"""
TRITON = '''
import torch
import triton
import triton.language as tl


@triton.jit
def scale(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = i < n
    y = tl.load(y_ptr + i, mask=inside, other=0.0)
    x = tl.load(x_ptr + i, mask=inside, other=0.0)
    tl.store(y_ptr + i, 2.0 * x + y, mask=inside)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        x = x.contiguous()
        y = torch.zeros_like(x)
        scale[(triton.cdiv(x.numel(), 64),)](x, y, x.numel(), BLOCK=64)
        return y
'''
BEYOND = TRITON.replace("tl.load(x_ptr + i, mask=inside, other=0.0)", "tl.load(x_ptr + i)")
UNWRITTEN = TRITON.replace("zeros_like", "empty_like")
CUDA = '''
import os

import torch
from torch.utils.cpp_extension import load

SOURCE = r"""
#include <ATen/ATen.h>
#include <torch/library.h>
__global__ void copy_within(const float* x, float* y, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = 2.0f * x[i];
}
__global__ void copy_beyond(const float* x, float* y, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i <= n) y[i] = 2.0f * x[i];
}
__global__ void add_to(const float* x, float* y, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] += 2.0f * x[i];
}
__global__ void through_shared(const float* x, float* y, int n) {
  __shared__ float s[256];
  int t = threadIdx.x, i = blockIdx.x * blockDim.x + t;
  s[255 - t] = i < n ? x[i] : 0.0f;
  __syncthreads();
  if (i < n) y[i] = 2.0f * s[255 - t];
}
__global__ void neighbour_early(const float* x, float* y, int n) {
  __shared__ float s[256];
  int t = threadIdx.x, i = blockIdx.x * blockDim.x + t;
  s[(t + 32) % 256] = i < n ? x[i] : 0.0f;
  float seen = s[t];
  __syncthreads();
  if (i < n) y[i] = 2.0f * s[(t + 32) % 256] + 0.0f * (seen - seen);
}
__global__ void leaves_early(const float* x, float* y, int n) {
  __shared__ float s[256];
  int t = threadIdx.x, i = blockIdx.x * blockDim.x + t;
  if (i >= n) return;
  s[t] = x[i];
  __syncthreads();
  y[i] = 2.0f * s[t];
}
__global__ void odd_threads_wait(const float* x, float* y, int n) {
  __shared__ float s[256];
  int t = threadIdx.x, i = blockIdx.x * blockDim.x + t;
  s[t] = i < n ? x[i] : 0.0f;
  if (t % 2) __syncthreads();
  if (i < n) y[i] = 2.0f * s[t];
}
at::Tensor run(const at::Tensor& x, int64_t which) {
  auto a = x.contiguous();
  auto y = which == 3 ? at::zeros_like(a) : at::empty_like(a);
  int n = a.numel(), blocks = (n + 255) / 256;
  const float* from = a.data_ptr<float>();
  float* to = y.data_ptr<float>();
  switch (which) {
    case 0: copy_within<<<blocks, 256>>>(from, to, n); break;
    case 1: copy_beyond<<<blocks, 256>>>(from, to, n); break;
    case 2: add_to<<<blocks, 256>>>(from, to, n); break;
    case 3: add_to<<<blocks, 256>>>(from, to, n); break;
    case 4: through_shared<<<blocks, 256>>>(from, to, n); break;
    case 5: neighbour_early<<<blocks, 256>>>(from, to, n); break;
    case 6: leaves_early<<<blocks, 256>>>(from, to, n); break;
    case 7: odd_threads_wait<<<blocks, 256>>>(from, to, n); break;
  }
  return y;
}
TORCH_LIBRARY(sanitized_kernels, m) { m.def("run(Tensor x, int which) -> Tensor", &run); }
"""
with open("kernels.cu", "w") as file:
    file.write(SOURCE)
load("sanitized_kernels", [os.path.abspath("kernels.cu")], is_python_module=False)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        return torch.ops.sanitized_kernels.run(x, {which})
'''
WITHIN, COPY_BEYOND, ADD_TO_EMPTY, ADD_TO_ZEROS, THROUGH_SHARED, RACES, LEAVES_EARLY, ODD_WAIT = range(8)
BUILDS = BuildCache("kernels of these tests")


def _line(text: str, source: str) -> int:
    """Line of the file with the kernels that a text stands in."""
    lines = source.split('r"""')[1].split("\n") if 'r"""' in source else source.split("\n")
    return next(number for number, line in enumerate(lines, 1) if text in line)


@pytest.fixture
def gpu() -> None:
    if not torch.cuda.is_available():
        pytest.skip("needs a CUDA device")
    if find_tool() is None:
        pytest.skip("needs compute-sanitizer")


@pytest.fixture(scope="module")
def reference(zygote: Zygote) -> Iterator[ReferenceSession]:
    session = ReferenceSession(zygote, parse_task(TASK), {}, device="cuda" if torch.cuda.is_available() else "cpu")
    session.study()
    yield session
    session.close()


def _under(zygote: Zygote, reference: ReferenceSession, source: str, gate: str, tool: str) -> Record:
    """One probe of a candidate under a tool."""
    session = CandidateSession(zygote, source, ["ModelNew"], {"device": "cuda", "mode": "sanitize"}, Limits(),
                               build_cache=BUILDS)
    run = Run(reference, [], Budget(math.inf), 3, sanitizer=lambda: session)
    probe = Probe(id=f"{gate}/{tool}", gate=gate, kind="sanitize", draws=(Draw(seed=5),),
                  conditions=(f"sanitize:{tool}",))
    try:
        return run.one(probe, session)
    finally:
        session.close()


def _facts(record: Record) -> dict[str, Any]:
    facts = record.observation.facts.get("sanitizer")
    assert isinstance(facts, dict), record.observation
    return facts


def _cuda(which: int, zygote: Zygote) -> str:
    """A candidate of CUDA C++, whose extension an ordinary worker has built for all of these tests."""
    if shutil.which("ninja") is None or shutil.which("g++") is None:
        pytest.skip("needs ninja and g++")
    source = CUDA.replace("{which}", str(which))
    if not BUILDS.items():
        session = CandidateSession(zygote, source, ["ModelNew"], {"device": "cuda"}, Limits(), build_cache=BUILDS)
        failed = session._ensure_loaded("build", math.inf)
        session.close()
        if failed is not None and failed.status == "toolchain":
            pytest.skip(f"the compilers here do not build it: {failed.error or failed.text}")
        assert failed is None, failed
    assert BUILDS.items()
    return source


WRONG_TRITON = [
    pytest.param(BEYOND, "bounds", "memcheck", "read", "tl.load(x_ptr + i)", id="memcheck"),
    pytest.param(UNWRITTEN, "initialization", "initcheck", "unwritten", "tl.load(y_ptr + i", id="initcheck"),
]
WRONG_CUDA = [
    pytest.param(COPY_BEYOND, "bounds", "memcheck", ("read", "write"), "copy_beyond", "if (i <= n)", id="memcheck"),
    pytest.param(ADD_TO_EMPTY, "initialization", "initcheck", ("unwritten",), "add_to", "y[i] +=", id="initcheck"),
    pytest.param(RACES, "repeatability", "racecheck", ("race",), "neighbour_early", "", id="racecheck"),
    pytest.param(ODD_WAIT, "faults", "synccheck", ("barrier",), "odd_threads_wait", "if (t % 2)", id="synccheck"),
]
RIGHT_CUDA = [
    pytest.param(WITHIN, "bounds", "memcheck", id="memcheck"),
    pytest.param(ADD_TO_ZEROS, "initialization", "initcheck", id="initcheck"),
    pytest.param(WITHIN, "initialization", "initcheck", id="initcheck-of-an-empty-output"),
    pytest.param(THROUGH_SHARED, "repeatability", "racecheck", id="racecheck"),
    pytest.param(THROUGH_SHARED, "faults", "synccheck", id="synccheck"),
    pytest.param(LEAVES_EARLY, "faults", "synccheck", id="synccheck-of-threads-that-leave-early"),
]


@pytest.mark.gpu
@pytest.mark.usefixtures("gpu")
@pytest.mark.parametrize(("source", "gate", "tool", "kind", "text"), WRONG_TRITON)
def test_a_wrong_triton_kernel_is_named_with_its_line(source: str, gate: str, tool: str, kind: str, text: str,
                                                      zygote: Zygote, reference: ReferenceSession) -> None:
    facts = _facts(_under(zygote, reference, source, gate, tool))
    assert facts["reports"], facts
    first = facts["reports"][0]
    assert (first["kind"], first["kernel"], first["file"]) == (kind, "scale", "candidate.py")
    assert first["line"] == _line(text, source)


@pytest.mark.gpu
@pytest.mark.usefixtures("gpu")
@pytest.mark.parametrize("tool", ["memcheck", "initcheck", "racecheck", "synccheck"])
def test_a_right_triton_kernel_leaves_every_tool_silent(tool: str, zygote: Zygote,
                                                        reference: ReferenceSession) -> None:
    facts = _facts(_under(zygote, reference, TRITON, "bounds", tool))
    assert (facts["state"], facts["reports"]) == ("ran", []), facts


@pytest.mark.gpu
@pytest.mark.usefixtures("gpu")
@pytest.mark.parametrize(("which", "gate", "tool", "kinds", "kernel", "text"), WRONG_CUDA)
def test_a_wrong_cuda_kernel_is_named_with_its_line(which: int, gate: str, tool: str, kinds: tuple[str, ...],
                                                    kernel: str, text: str, zygote: Zygote,
                                                    reference: ReferenceSession) -> None:
    facts = _facts(_under(zygote, reference, _cuda(which, zygote), gate, tool))
    assert facts["reports"], facts
    first = facts["reports"][0]
    assert first["kind"] in kinds
    assert (first["kernel"], first["file"]) == (kernel, "kernels.cu")
    if text:
        assert first["line"] == _line(text, CUDA)


@pytest.mark.gpu
@pytest.mark.usefixtures("gpu")
@pytest.mark.parametrize(("which", "gate", "tool"), RIGHT_CUDA)
def test_a_right_cuda_kernel_leaves_its_tool_silent(which: int, gate: str, tool: str, zygote: Zygote,
                                                    reference: ReferenceSession) -> None:
    facts = _facts(_under(zygote, reference, _cuda(which, zygote), gate, tool))
    assert (facts["state"], facts["reports"]) == ("ran", []), facts


@pytest.mark.gpu
@pytest.mark.usefixtures("gpu")
@pytest.mark.parametrize(("source", "gate", "reason"), [
    (BEYOND, "bounds", Reason.OUT_OF_BOUNDS_READ), (UNWRITTEN, "initialization", Reason.UNINITIALISED)])
def test_a_gate_of_the_deep_tier_tells_kernel_and_line(source: str, gate: str, reason: Reason,
                                                       zygote: Zygote) -> None:
    options = Options(device="cuda", seed=3, tier=EffortTier.DEEP, only=(gate,))
    report = verify_task(parse_task(TASK), parse_candidate(source), options=options, zygote=zygote)
    assert report.label is Label.REJECTED
    told = next(f for f in report.findings if f.reason is reason)
    assert told.detail["kernel"] == "scale"
    assert told.source is not None
    right = verify_task(parse_task(TASK), parse_candidate(TRITON), options=options, zygote=zygote)
    assert right.findings == ()
    judged = next(g for g in right.gates if g.slug == gate)
    assert judged.outcome is Outcome.PASS
    assert judged.undecided == {}, judged.note


def test_without_the_tool_the_probe_decides_nothing_and_says_why(zygote: Zygote, reference: ReferenceSession,
                                                                 monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")
    monkeypatch.setenv("CUDA_HOME", "/nonexistent")
    record = _under(zygote, reference, BEYOND, "bounds", "memcheck")
    assert _facts(record)["state"] == "absent"
    verdict = GATES["bounds"].judge(_context(reference), [record])
    assert verdict.findings == []
    assert verdict.undecided == {Reason.TOOLCHAIN: 1}
    assert "memcheck not judged: compute-sanitizer is not installed" in str(verdict.note)


@pytest.mark.parametrize("gate", ["bounds", "initialization", "repeatability", "faults"])
def test_the_tools_are_planned_in_the_deep_tier_on_a_gpu_alone(gate: str, reference: ReferenceSession) -> None:
    def planned(tier: EffortTier, device: str, language: str) -> set[str]:
        probes = GATES[gate].plan(_context(reference, tier=tier, device=device, language=language))
        return {c for p in probes if p.kind == "sanitize" for c in p.conditions}

    tool = {"bounds": "memcheck", "initialization": "initcheck", "repeatability": "racecheck", "faults": "synccheck"}
    assert planned(EffortTier.DEEP, "cuda", "cuda") == {f"sanitize:{tool[gate]}"}
    for tier, device, language in ((EffortTier.STANDARD, "cuda", "cuda"), (EffortTier.DEEP, "cpu", "cuda"),
                                   (EffortTier.DEEP, "cuda", "torch")):
        assert planned(tier, device, language) == set()
    # a compiler places the barriers of a Triton kernel
    by_compiler = planned(EffortTier.DEEP, "cuda", "triton")
    assert bool(by_compiler) == (gate in ("bounds", "initialization"))


def _context(reference: ReferenceSession, **given: Any) -> Context:
    from assay.contract import Contract

    common = {"tier": EffortTier.DEEP, "device": "cuda", "language": "triton"} | given
    return Context(study=reference.study(), contract=Contract(), seed=3, **common)
