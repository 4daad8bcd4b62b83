"""Candidates under compute-sanitizer: a wrong kernel for each tool beside its right twin, in Triton and CUDA C++."""

from __future__ import annotations

import fcntl
import math
import os
import shutil
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from tests.native.kernels import (
    ADD_TO_EMPTY,
    ADD_TO_ZEROS,
    BEYOND,
    COPY_BEYOND,
    CUDA,
    LEAVES_EARLY,
    ODD_WAIT,
    RACES,
    TASK,
    THROUGH_SHARED,
    TRITON,
    UNWRITTEN,
    WITHIN,
)

from assay.gates import GATES, Context, Verdict
from assay.oracle.cache import TruthCache
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


def _under(zygote: Zygote, reference: ReferenceSession, source: str, gate: str, tool: str,
           builds: BuildCache | None = None) -> Record:
    """One probe of a candidate under a tool."""
    session = CandidateSession(zygote, source, ["ModelNew"], {"device": "cuda", "mode": "sanitize"}, Limits(),
                               build_cache=builds)
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


@pytest.fixture(scope="module")
def builds(zygote: Zygote, tmp_path_factory: pytest.TempPathFactory) -> BuildCache:
    """The extension of the candidates of CUDA C++, built once, whatever the number of test processes."""
    if not torch.cuda.is_available():
        pytest.skip("needs a CUDA device")
    if shutil.which("ninja") is None or shutil.which("g++") is None:
        pytest.skip("needs ninja and g++")
    root = tmp_path_factory.getbasetemp()
    root = root.parent if "PYTEST_XDIST_WORKER" in os.environ else root
    with open(root / "sanitized-kernels.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        kept = BuildCache("sanitized kernels", TruthCache(root / "sanitized-kernels"))
        if not kept.items():
            session = CandidateSession(zygote, _cuda(WITHIN), ["ModelNew"], {"device": "cuda"}, Limits(),
                                       build_cache=kept)
            failed = session._ensure_loaded("build", math.inf)
            session.close()
            if failed is not None and failed.status == "toolchain":
                pytest.skip(f"the compilers here do not build it: {failed.error or failed.text}")
            assert failed is None, failed
    assert kept.items()
    return kept


def _cuda(which: int) -> str:
    """A candidate of CUDA C++ that calls one of the kernels."""
    return CUDA.replace("{which}", str(which))


DEEP = Options(device="cuda", seed=3, tier=EffortTier.DEEP, only=("bounds",))
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
                                                    reference: ReferenceSession, builds: BuildCache) -> None:
    facts = _facts(_under(zygote, reference, _cuda(which), gate, tool, builds))
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
                                                    reference: ReferenceSession, builds: BuildCache) -> None:
    facts = _facts(_under(zygote, reference, _cuda(which), gate, tool, builds))
    assert (facts["state"], facts["reports"]) == ("ran", []), facts


@pytest.mark.gpu
@pytest.mark.usefixtures("gpu")
def test_a_gate_of_the_deep_tier_tells_kernel_and_line(zygote: Zygote) -> None:
    report = verify_task(parse_task(TASK), parse_candidate(BEYOND), options=DEEP, zygote=zygote)
    assert report.label is Label.REJECTED
    told = next(f for f in report.findings if f.reason is Reason.OUT_OF_BOUNDS_READ)
    assert told.detail["kernel"] == "scale"
    assert told.source is not None


@pytest.mark.gpu
@pytest.mark.usefixtures("gpu")
def test_a_right_kernel_passes_the_gate_of_the_deep_tier(zygote: Zygote) -> None:
    right = verify_task(parse_task(TASK), parse_candidate(TRITON), options=DEEP, zygote=zygote)
    assert right.findings == ()
    judged = next(g for g in right.gates if g.slug == "bounds")
    assert judged.outcome is Outcome.PASS
    assert judged.undecided == {}, judged.note


@pytest.mark.gpu
@pytest.mark.usefixtures("gpu")
def test_a_result_that_depends_on_unwritten_memory_learns_its_line(zygote: Zygote,
                                                                   reference: ReferenceSession) -> None:
    options = Options(device="cuda", seed=3, only=("initialization",))
    report = verify_task(parse_task(TASK), parse_candidate(UNWRITTEN), options=options, zygote=zygote)
    found = report.findings[0]
    record = _under(zygote, reference, UNWRITTEN, "initialization", "initcheck")
    gate, verdict = GATES["initialization"], Verdict(findings=[found])
    gate._reads([record], verdict)  # type: ignore[attr-defined]
    assert verdict.findings[0].detail["kernel"] == "scale"
    assert verdict.findings[0].detail["line"] == _line("tl.load(y_ptr + i", UNWRITTEN)


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
