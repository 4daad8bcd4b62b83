"""What a kernel takes on a chip is learned once: from launches there, or from one compilation."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch
from tests.native.kernels import TASK

from assay.oracle.cache import TruthCache
from assay.probe.model import Draw, Probe
from assay.probe.record import Observation, Record
from assay.run.candidate import CandidateSession
from assay.run.lanes import Budget, Run
from assay.run.process import Limits, Zygote
from assay.run.reference import ReferenceSession
from assay.run.resource_numbers import ResourceNumbers
from assay.task import parse_candidate, parse_task
from assay.verify import Options, verify_task
from assay.vocabulary import Outcome

CANDIDATE = '''
import torch
import triton
import triton.language as tl


@triton.jit
def doubled(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y_ptr + i, 2.0 * tl.load(x_ptr + i, mask=i < n), mask=i < n)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        doubled[(triton.cdiv(x.numel(), 128),)](x, y, x.numel(), BLOCK=128)
        return y
'''


def _probe(target: str, **sizes: int) -> Probe:
    return Probe(id=f"resources/{target}", gate="resources", kind="compile", sizes=sizes, draws=(Draw(seed=1),),
                 conditions=(f"compile:{target}",))


def _numbers(cache: TruthCache | None, candidate: str = "a",
             languages: tuple[str, ...] = ("triton",)) -> ResourceNumbers:
    return ResourceNumbers(candidate, "task", languages, cache)


def test_a_compilation_is_kept_for_the_same_candidate_target_and_sizes(zygote: Zygote, tmp_path: Path) -> None:
    cache = TruthCache(tmp_path / "cache")
    reference = ReferenceSession(zygote, parse_task(TASK), {}, device="cpu")
    session = CandidateSession(zygote, CANDIDATE, ["ModelNew"], {"device": "cpu", "mode": "compile", "target": "sm_90"},
                               Limits())
    try:
        reference.study()
        first = Run(reference, [], Budget(math.inf), 3, compilers=lambda target: session, numbers=_numbers(cache))
        made = first.one(_probe("sm_90"), session).observation
        assert [k["kernel"] for k in made.facts["compiled"]] == ["doubled"], made
        again = Run(reference, [], Budget(math.inf), 3, numbers=_numbers(cache))
        assert again.one(_probe("sm_90"), session).observation.facts["compiled"] == made.facts["compiled"]
        for numbers, probe in ((_numbers(cache, "b"), _probe("sm_90")), (_numbers(cache), _probe("sm_80")),
                               (_numbers(cache), _probe("sm_90", N=2))):
            assert numbers.find(probe, probe.conditions[0].removeprefix("compile:")) is None
    finally:
        session.close()
        reference.close()


def test_what_failed_for_want_of_a_tool_is_tried_again() -> None:
    numbers, probe = _numbers(None), _probe("sm_90")
    told = {"kernel": "k", "launch": 0, "error": "nvcc is not installed", "error_type": "ToolchainError"}
    numbers.keep(probe, "sm_90", Observation(probe=probe.id, status="ok", facts={"compiled": [told]}))
    assert numbers.find(probe, "sm_90") is None


@pytest.mark.parametrize(("languages", "target", "known"), [
    (("triton",), "sm_90", True), (("triton", "cuda"), "sm_90", False), (("triton",), "sm_100", False)])
def test_launches_are_taken_for_the_chip_that_they_ran_on_alone(languages: tuple[str, ...], target: str,
                                                                known: bool) -> None:
    told = {"kernel": "k", "target": "sm_90", "launch": 0, "error": None, "over": None, "shared": 0, "tensor_memory": 0}
    probe = Probe(id="values/draw-0", gate="values", draws=(Draw(seed=1),))
    numbers = _numbers(None, languages=languages)
    numbers.learn(Record(probe, (), Observation(probe=probe.id, status="ok", facts={"compiled": [told]})), target)
    assert (numbers.find(_probe(target), target) is not None) == known


@pytest.mark.gpu
def test_launches_on_a_gpu_tell_what_compiling_for_it_does(zygote: Zygote) -> None:
    if not torch.cuda.is_available():
        pytest.skip("needs a CUDA device")
    major, minor = torch.cuda.get_device_capability()
    reports = [verify_task(parse_task(TASK), parse_candidate(CANDIDATE), zygote=zygote, options=Options(
        device=device, seed=3, target=f"sm_{major}{minor}", only=("resources",))) for device in ("cuda", "cpu")]
    for report in reports:
        assert report.gates[0].outcome is Outcome.PASS, report
    assert reports[0].candidate.binaries == reports[1].candidate.binaries
    assert reports[0].gates[0].note == reports[1].gates[0].note
