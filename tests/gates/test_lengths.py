"""Which size is lengthened so that a reduction is long, and what happens where a device is too small for that."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

import pytest

from assay.contract import Contract
from assay.gates import GATES, Context
from assay.gates.numeric_plan import lengths
from assay.pilot import SLOW_CALL_SECONDS, learn, within_resources
from assay.run.candidate import CandidateSession
from assay.run.lanes import Budget, Run
from assay.run.process import Limits, Zygote
from assay.run.reference import ReferenceSession
from assay.task import load_task
from assay.vocabulary import EffortTier

ATTENTION = Path(__file__).resolve().parents[2] / "examples" / "causal_attention" / "reference.py"


@pytest.fixture(scope="module")
def attention(zygote: Zygote) -> Context:
    session = ReferenceSession(zygote, load_task(ATTENTION), {})
    try:
        study = session.study()
    finally:
        session.close()
    return Context(study=study, contract=Contract(), tier=EffortTier.STANDARD, seed=1, device="cuda",
                   language="triton", element_limit=1 << 24)


def test_a_refused_size_is_lengthened_after_the_others(attention: Context) -> None:
    first = lengths(attention)[1]
    assert first.name.startswith("WIDTH=")
    other = lengths(replace(attention, refused={"WIDTH": first.value}))[1]
    assert other.name.startswith("LENGTH=")
    assert other.sizes.get("WIDTH", 32) <= 32, "the refused size stays small"


def test_where_every_size_is_refused_it_is_lengthened_less_or_not_at_all(attention: Context) -> None:
    names = ("WIDTH", "LENGTH", "HEADS")
    less = lengths(replace(attention, refused=dict.fromkeys(names, 2048)))[1]
    assert less.name == "WIDTH=512"
    assert lengths(replace(attention, refused=dict.fromkeys(names, 512)))[1].value == 0, "not worth a probe"


NARROW = """
import torch

class OutOfResources(RuntimeError):
    pass

class ModelNew(torch.nn.Module):
    def forward(self, q, k, v):
        if q.shape[-1] > {most}:
            raise OutOfResources("shared memory")
        length = q.shape[-2]
        scores = q @ k.transpose(-2, -1) * q.shape[-1] ** -0.5
        scores = scores.masked_fill(~torch.ones(length, length, dtype=torch.bool).tril(), float("-inf"))
        return torch.softmax(scores, -1) @ v
"""


@pytest.mark.parametrize(("most", "refused"), [(64, {"WIDTH": 512}), (4096, {})])
def test_what_a_device_refuses_is_learnt_before_planning(attention: Context, most: int, refused: dict[str, int],
                                                         zygote: Zygote) -> None:
    session = CandidateSession(zygote, NARROW.format(most=most), ["ModelNew"], {"device": "cpu", "target": "sm_90"},
                               Limits())
    reference = ReferenceSession(zygote, load_task(ATTENTION), {})
    try:
        reference.study()
        run = Run(reference, [session], Budget(time.monotonic() + 120.0), 3)
        ctx, records = within_resources(attention, run, session, 10.0)
    finally:
        session.close()
        reference.close()
    assert ctx.refused == refused
    [record] = records
    assert record.observation.ran
    assert record.probe.id in {p.id for p in GATES["accumulation"].plan(ctx)}, "it is not run again"


@pytest.mark.parametrize("most", [64, 4096])
def test_probes_that_run_side_by_side_teach_what_they_teach_in_turn(attention: Context, most: int,
                                                                    zygote: Zygote) -> None:
    ctx = replace(attention, sizes=dict(attention.study.sizes), small=dict(attention.study.small))
    learnt = []
    for lanes in (1, 3):
        sessions = [CandidateSession(zygote, NARROW.format(most=most), ["ModelNew"],
                                     {"device": "cpu", "target": "sm_90"}, Limits()) for _ in range(lanes)]
        reference = ReferenceSession(zygote, load_task(ATTENTION), {})
        try:
            reference.study()
            run = Run(reference, sessions, Budget(time.monotonic() + 120.0), 3)
            found, records = learn(ctx, run, sessions[0], 10.0)
        finally:
            for session in sessions:
                session.close()
            reference.close()
        # what a call took is the machine's, and decides of sizes only where calls are slow
        assert found.call_seconds < SLOW_CALL_SECONDS
        learnt.append((found.refused, found.sizes, found.small, found.blocks,
                       [(r.probe, r.observation.status, len(r.observation.calls)) for r in records]))
    assert learnt[0] == learnt[1]
    assert learnt[0][0] == ({"WIDTH": 512} if most == 64 else {})


NEVER_DONE = """
import time, torch

class DeviceHung(RuntimeError):
    pass

class ModelNew(torch.nn.Module):
    def forward(self, q, k, v):
        # what a worker says whose device was not done, some time after the call had returned
        time.sleep(0.7)
        raise DeviceHung("the device was not done")
"""


def test_what_never_ends_does_not_teach_how_long_a_call_takes(attention: Context, zygote: Zygote) -> None:
    """Else one endless kernel would be waited for dozens of times as long by each later probe."""
    ctx = replace(attention, sizes=dict(attention.study.sizes), small=dict(attention.study.small))
    session = CandidateSession(zygote, NEVER_DONE, ["ModelNew"], {"device": "cpu", "target": "sm_90"}, Limits())
    reference = ReferenceSession(zygote, load_task(ATTENTION), {})
    try:
        reference.study()
        run = Run(reference, [session], Budget(time.monotonic() + 120.0, floor=10.0), 3)
        found, records = learn(ctx, run, session, 10.0)
    finally:
        session.close()
        reference.close()
    assert {r.observation.status for r in records} == {"timed_out"}
    assert all(r.observation.seconds > 0.5 for r in records)
    assert found.call_seconds <= SLOW_CALL_SECONDS
    assert run.budget.timeout(records[0].probe) == 10.0
