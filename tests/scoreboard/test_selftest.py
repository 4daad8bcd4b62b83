"""A gate that works passes what is right and rejects what is wrong; any other is named."""

from __future__ import annotations

import pytest

from assay.gates import BATTERY
from assay.pool import Done, Job
from assay.selftest import CONTROLS, Trust, judged, selftest


def test_every_gate_that_needs_no_gpu_has_a_control() -> None:
    assert {c.gate for c in CONTROLS} == {g.slug for g in BATTERY} - {"streams"}
    for control in CONTROLS:
        assert control.wrong != control.right
        compile(control.wrong, control.gate, "exec")


def test_gates_that_work_are_said_to_work() -> None:
    found = {c.gate: c for c in selftest(quick=True, gates=["nonfinite", "streams"], workers=1)}
    assert {g: c.trust for g, c in found.items()} == {"nonfinite": Trust.WORKS, "streams": Trust.ELSEWHERE}


@pytest.fixture(scope="module")
def verdicts() -> dict[str, Done]:
    from assay import corpus
    from assay.pool import Pool
    from assay.verify import Options

    entry = corpus.entry("relu")
    control = next(c for c in CONTROLS if c.gate == "nonfinite")
    options = Options(device="cpu", seed=3, only=("nonfinite",))
    with Pool(workers=1) as pool:
        jobs = [Job("right", entry.task, entry.candidate, options=options),
                Job("wrong", entry.task, entry.candidate_from(control.wrong, "wrong"), options=options)]
        return {done.job.id: done for done in pool.run(jobs)}


def test_a_gate_that_sees_no_difference_cannot_be_trusted(verdicts: dict[str, Done]) -> None:
    right, wrong = verdicts["right"], verdicts["wrong"]
    assert judged("nonfinite", right, wrong).trust is Trust.WORKS
    assert judged("nonfinite", right, right).trust is Trust.PASSES_WRONG
    assert judged("nonfinite", wrong, wrong).trust is Trust.REJECTS_RIGHT
    assert judged("nonfinite", right, Done(right.job, None, "its judge was lost", "judge")).trust is Trust.UNDECIDED


@pytest.mark.slow
def test_every_gate_works_here() -> None:
    found = list(selftest(workers=1))
    assert {c.gate for c in found if c.trust is not Trust.WORKS} == {"streams"}, found
