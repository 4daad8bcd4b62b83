"""A finding replays from the store to the same bits, and says what differs from the day it was found."""

from __future__ import annotations

import dataclasses
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.evidence.kinds import KINDS, RIGHT, TASK

from assay.evidence import Evidence, FindingRecord, Store, VerdictRecord
from assay.evidence.first import patient
from assay.evidence.replay import Outcome, replay
from assay.probe.model import Draw, Probe
from assay.probe.record import Observation, Record, Truth
from assay.report.model import Report
from assay.run.process import Zygote
from assay.task import Task, parse_candidate, parse_task
from assay.verify import Options, verify_task
from assay.vocabulary import EffortTier, Label, Reason

SPECIAL = next(k for k in KINDS if k.name == "special values")


@dataclass(frozen=True)
class Kept:
    """A store with one finding of the kind `special values`."""

    store: Store
    folder: Path
    finding: FindingRecord
    verdict: VerdictRecord


@pytest.fixture(scope="module")
def verified(tmp_path_factory: pytest.TempPathFactory, zygote: Zygote) -> tuple[Path, str]:
    """A folder with a store, and the id of a finding in it; not to be written to."""
    folder = tmp_path_factory.mktemp("verified")
    task = parse_task(TASK, path="reference.py", id="scaled tanh")
    report = verify_task(task, parse_candidate(SPECIAL.source, path="candidate.py"), zygote=zygote, options=Options(
        device="cpu", seed=7, tier=EffortTier.QUICK, only=("nonfinite",), store=str(folder / "s")))
    return folder, report.findings[0].id


@pytest.fixture
def kept(tmp_path: Path, verified: tuple[Path, str]) -> Iterator[Kept]:
    shutil.copytree(verified[0] / "s", tmp_path / "s")
    with Store.open(tmp_path / "s") as store:
        found = store.finding(verified[1])
        yield Kept(store, tmp_path / "s", found, store.verdict(found.verdict))


def _again(kept: Kept, change: Callable[[VerdictRecord], VerdictRecord]) -> None:
    """Keep the verdict a second time, as another day or another candidate would have left it."""
    changed = change(kept.verdict)
    assert kept.finding.bundle is not None
    kept.store.put_report(changed.report.model_copy(update={"seed": 99}), changed.task, changed.candidate,
                          changed.contract, Evidence(changed.context, {kept.finding.id: kept.finding.bundle}))


def test_the_finding_its_inputs_and_its_tensors_are_those_of_then(kept: Kept, zygote: Zygote) -> None:
    again = replay(kept.store, kept.finding.id, zygote)
    assert again.outcome is Outcome.REPRODUCED
    assert again.same_inputs
    assert again.differences == ()
    assert again.found is not None
    recorded = kept.finding.finding
    assert (again.found.expected, again.found.actual, again.found.index) == (
        recorded.expected, recorded.actual, recorded.index)
    tensors = kept.store.tensors(kept.finding)
    assert again.record is not None
    fed = again.record.truths[0].inputs[0]
    assert torch.equal(torch.nan_to_num(fed, nan=77.0), torch.nan_to_num(tensors["input.0.0"], nan=77.0))
    assert recorded.index is not None
    assert torch.isnan(tensors["expected.0.0"][recorded.index])
    assert not torch.isnan(tensors["actual.0.0"]).any()


def test_another_environment_is_named(kept: Kept, zygote: Zygote) -> None:
    def older(verdict: VerdictRecord) -> VerdictRecord:
        environment = {**verdict.report.environment, "torch": "1.0"}
        return _replaced(verdict, report=verdict.report.model_copy(update={"environment": environment}))

    _again(kept, older)
    again = replay(kept.store, kept.finding.id, zygote)
    assert again.outcome is Outcome.REPRODUCED
    assert [(name, then) for name, then, _ in again.differences] == [("torch", "1.0")]


def test_a_candidate_that_was_put_right_does_not_show_it(kept: Kept, zygote: Zygote) -> None:
    _again(kept, lambda verdict: _replaced(verdict, candidate=parse_candidate(RIGHT, path="candidate.py")))
    assert replay(kept.store, kept.finding.id, zygote).outcome is Outcome.NOT_REPRODUCED


def test_a_fault_that_lets_others_come_and_go_is_named(kept: Kept, zygote: Zygote) -> None:
    def restless(verdict: VerdictRecord) -> VerdictRecord:
        first = verdict.report.findings[0]
        other = first.model_copy(update={"id": "feed" * 3, "slug": "initialization", "reason": Reason.UNINITIALISED})
        report = verdict.report.model_copy(update={"findings": (*verdict.report.findings, other)})
        return _replaced(verdict, report=report, candidate=parse_candidate(RIGHT, path="candidate.py"))

    _again(kept, restless)
    again = replay(kept.store, kept.finding.id, zygote)
    assert again.outcome is Outcome.NOT_REPRODUCED
    assert again.unsteady is not None
    assert again.unsteady.id == "feed" * 3


def test_other_inputs_decide_nothing(kept: Kept, zygote: Zygote) -> None:
    assert kept.finding.bundle is not None
    bundle = kept.finding.bundle
    other = bundle.model_copy(update={"inputs": dict.fromkeys(bundle.inputs, ("0" * 64,))})
    right = parse_candidate(RIGHT, path="candidate.py")
    kept.store.put_report(kept.verdict.report.model_copy(update={"seed": 98}), kept.verdict.task, right,
                          kept.verdict.contract, Evidence(kept.verdict.context, {kept.finding.id: other}))
    again = replay(kept.store, kept.finding.id, zygote)
    assert again.outcome is Outcome.COULD_NOT_RUN
    assert again.same_inputs is False


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU here")
def test_what_was_found_on_a_gpu_needs_one(kept: Kept, zygote: Zygote) -> None:
    _again(kept, lambda verdict: _replaced(verdict, context={**verdict.context, "device": "cuda"}))
    again = replay(kept.store, kept.finding.id, zygote)
    assert again.outcome is Outcome.COULD_NOT_RUN
    assert "no CUDA device" in again.why
    assert replay(kept.store, kept.finding.id, zygote, device="cpu").outcome is Outcome.REPRODUCED


def _replaced(verdict: VerdictRecord, **changes: object) -> VerdictRecord:
    return dataclasses.replace(verdict, **changes)  # type: ignore[arg-type]


@pytest.fixture
def task() -> Task:
    return parse_task(TASK, path="reference.py", id="scaled tanh")


def test_what_failed_before_is_tried_first_and_takes_nothing_from_a_right_candidate(
        kept: Kept, task: Task, zygote: Zygote) -> None:
    def verify(source: str, **options: Any) -> Report:
        return verify_task(task, parse_candidate(source, path="candidate.py"), zygote=zygote, options=Options(
            device="cpu", tier=EffortTier.QUICK, only=("nonfinite", "values"), store=str(kept.folder),
            **options))

    right = verify(RIGHT)
    assert right.label is Label.CONTRACT
    assert right.coverage.probes_replayed > 0
    # another candidate with the same fault fails at once
    same_fault = SPECIAL.source.replace("torch.nan_to_num(x)", "torch.where(torch.isnan(x), 0.0, x)")
    wrong = verify(same_fault, fail_fast=True)
    assert wrong.label is Label.REJECTED
    assert wrong.findings[0].probe.endswith("~1")
    assert wrong.coverage.probes_run <= 3
    # and what it failed replays by its own name
    assert replay(kept.store, wrong.findings[0].id, zygote).outcome is Outcome.REPRODUCED
    # a given seed stands for its own plan alone
    assert verify(RIGHT, seed=3).coverage.probes_replayed == 0


def test_other_obligations_are_not_held_against_a_candidate(kept: Kept, task: Task) -> None:
    assert kept.store.failures(task.digest, kept.verdict.contract, "cpu")
    waived = kept.verdict.contract.model_copy(update={"determinism": "none"})
    assert kept.store.failures(task.digest, waived, "cpu") == []
    assert kept.store.failures(task.digest, kept.verdict.contract, "cuda") == []


def test_a_candidate_that_is_slower_than_another_is_not_accused_of_it() -> None:
    probe = Probe(id="values/wide10~1", gate="values", draws=(Draw(seed=1),))
    truth = Truth(status="ok")
    slow = Record(probe, (truth,), Observation(probe=probe.id, status="timed_out"))
    assert patient(slow).observation.status == "not_run"
    crashed = Record(probe, (truth,), Observation(probe=probe.id, status="signalled", code=11))
    assert patient(crashed) == crashed
