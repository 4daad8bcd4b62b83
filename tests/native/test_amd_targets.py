"""Kernels compiled for chips of AMD on any machine: what they take, and what does not fit."""

from __future__ import annotations

import pytest

from assay.contract import Contract
from assay.contract.model import Resources
from assay.report.model import GateResult, Report
from assay.run.compile_only import amdgcn_usage
from assay.run.process import Zygote
from assay.task import parse_candidate, parse_task
from assay.verify import Options, verify_task
from assay.vocabulary import Outcome, Reason

METADATA = """
	.p2align	8
mm:
	s_load_dwordx2 s[0:1], s[4:5], 0x0
	.set mm.private_seg_size, 916
	.amdgpu_metadata
---
amdhsa.kernels:
  - .agpr_count:     0
    .args:
      - .address_space:  global
    .group_segment_fixed_size: 1024
    .kernarg_segment_size: 40
    .max_flat_workgroup_size: 512
    .name:           mm
    .private_segment_fixed_size: 916
    .sgpr_count:     69
    .sgpr_spill_count: 2
    .vgpr_count:     256
    .vgpr_spill_count: 312
    .wavefront_size: 64
"""
TASK = """
import torch
class Model(torch.nn.Module):
    def forward(self, a, b):
        return a @ b
def get_inputs():
    return [torch.randn(128, 512), torch.randn(512, 128)]
def get_init_inputs():
    return []
"""
CANDIDATE = '''
import torch
import triton
import triton.language as tl


@triton.jit
def product(a_ptr, b_ptr, c_ptr, K, BLOCK_K: tl.constexpr, SIZE: tl.constexpr):
    m, n, k = tl.arange(0, SIZE), tl.arange(0, SIZE), tl.arange(0, BLOCK_K)
    total = tl.zeros((SIZE, SIZE), tl.float32)
    for start in range(0, K, BLOCK_K):
        a = tl.load(a_ptr + m[:, None] * K + start + k[None, :])
        b = tl.load(b_ptr + (start + k[:, None]) * SIZE + n[None, :])
        total = tl.dot(a, b, total, input_precision="ieee")
    tl.store(c_ptr + m[:, None] * SIZE + n[None, :], total)


class ModelNew(torch.nn.Module):
    def forward(self, a, b):
        c = torch.empty((128, 128), device=a.device)
        product[(1,)](a.contiguous(), b.contiguous(), c, 512, BLOCK_K=BLOCK, SIZE=128, num_warps=8, num_stages=2)
        return c
'''


def _judged(zygote: Zygote, source: str, *targets: str) -> tuple[Report, GateResult]:
    report = verify_task(parse_task(TASK), parse_candidate(source), zygote=zygote,
                         contract=Contract(resources=Resources(targets=targets)),
                         options=Options(device="cpu", seed=3, only=("resources",)))
    return report, report.gates[0]


def test_metadata_of_a_code_object_is_read() -> None:
    assert amdgcn_usage(METADATA) == {"registers": 256, "scalar_registers": 69, "stack": 916, "spilled": 4 * 314,
                                      "shared": 1024}
    assert amdgcn_usage(None) == amdgcn_usage("s_endpgm") == {}


def test_a_kernel_that_fits_passes_on_chips_of_both_vendors(zygote: Zygote) -> None:
    report, gate = _judged(zygote, CANDIDATE.replace("BLOCK_K=BLOCK", "BLOCK_K=16"), "gfx942", "gfx950", "sm_90")
    assert gate.outcome is Outcome.PASS, (gate, report.findings)
    assert {b.target for b in report.candidate.binaries} == {"gfx942", "gfx950", "sm_90"}
    assert "product on gfx942" in str(gate.note)
    assert "None registers" not in str(gate.note)


def test_local_data_beyond_a_chips_share_is_found_on_that_chip_alone(zygote: Zygote) -> None:
    source = CANDIDATE.replace("BLOCK_K=BLOCK", "BLOCK_K=128")
    report, gate = _judged(zygote, source, "gfx942")
    assert gate.outcome is Outcome.FAIL
    (found,) = report.findings
    assert (found.reason, found.expected) == (Reason.SHARED_MEMORY, "at most 65536 shared memory bytes on gfx942")
    larger, gate = _judged(zygote, source, "gfx950")
    assert gate.outcome is Outcome.PASS, (gate, larger.findings)


@pytest.mark.parametrize("target", ["gfx942"])
def test_an_extension_of_cuda_is_not_checked_there(target: str, zygote: Zygote) -> None:
    source = """
import torch
from torch.utils.cpp_extension import load_inline
ext = load_inline("doubled", "", "__global__ void k(float* x) {}", no_implicit_headers=True)
class ModelNew(torch.nn.Module):
    def forward(self, a, b):
        return ext.doubled(a)
"""
    report, gate = _judged(zygote, source, target)
    assert report.findings == ()
    assert (gate.outcome, gate.reason) == (Outcome.INCONCLUSIVE, Reason.TOOLCHAIN)
    assert "CUDA C++ is not compiled for it" in str(gate.note)
