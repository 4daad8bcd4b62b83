"""What a benchmark rests on: the label `contract`, decided on a GPU or now, under the same contract."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.doubling import REFERENCE, RIGHT

from assay.bench.basis import basis_of
from assay.cli.bench import refusal
from assay.contract import Contract
from assay.evidence.ids import with_ids
from assay.evidence.store import Store
from assay.report.model import Report
from assay.run.process import Zygote
from assay.task import Candidate, Task, parse_candidate, parse_task
from assay.verify import Options, verify_task
from assay.vocabulary import EffortTier, Label

OPTIONS = Options(device="cpu", tier=EffortTier.QUICK, seed=3, only=("values", "residency"))


@pytest.fixture(scope="module")
def task() -> Task:
    return parse_task(REFERENCE)


@pytest.fixture(scope="module")
def right() -> Candidate:
    return parse_candidate(RIGHT)


@pytest.fixture(scope="module")
def report(task: Task, right: Candidate, zygote: Zygote) -> Report:
    return verify_task(task, right, options=OPTIONS, zygote=zygote)


def kept(folder: Path, report: Report, task: Task, candidate: Candidate, contract: Contract) -> str:
    with Store.open(folder, create=True) as store:
        store.put_report(with_ids(report), task, candidate, contract)
    return str(folder)


def with_store(store: str) -> Options:
    return Options(device="cpu", tier=EffortTier.QUICK, seed=3, only=("values", "residency"), store=store)


def test_a_wrong_candidate_has_no_basis(task: Task, zygote: Zygote, capsys: pytest.CaptureFixture[str]) -> None:
    wrong = parse_candidate(RIGHT.replace("x + x", "x * 2.001"))
    basis = basis_of(task, wrong, Contract(), OPTIONS, zygote)
    assert (basis.holds, basis.origin) == (False, "now")
    assert basis.report.label is Label.REJECTED
    assert refusal(basis, "reference.py", "wrong.py") == 1
    told = capsys.readouterr().err
    assert told.startswith("assay: not timed: the verdict is `rejected` (values), and only `contract` is timed")
    assert told.count("\n") == 1


def test_a_verdict_of_a_gpu_is_taken_from_the_store(tmp_path: Path, report: Report, task: Task, right: Candidate,
                                                    zygote: Zygote) -> None:
    real = report.model_copy(update={"scope": "NVIDIA H200"})
    basis = basis_of(task, right, Contract(), with_store(kept(tmp_path, real, task, right, Contract())), zygote)
    assert basis.holds
    assert basis.to_json() == {"label": "contract", "scope": "NVIDIA H200", "tier": "quick", "origin": "store"}


def test_an_emulated_verdict_is_no_basis_for_times(tmp_path: Path, report: Report, task: Task, right: Candidate,
                                                   zygote: Zygote) -> None:
    assert report.scope == "cpu-emulation"
    store = kept(tmp_path, report, task, right, Contract())
    assert basis_of(task, right, Contract(), with_store(store), zygote).origin == "now"


def test_a_verdict_under_another_contract_is_no_basis(tmp_path: Path, report: Report, task: Task, right: Candidate,
                                                      zygote: Zygote) -> None:
    real = report.model_copy(update={"scope": "NVIDIA H200"})
    store = kept(tmp_path, real, task, right, Contract())
    other = Contract.from_data({"determinism": "none"})
    assert basis_of(task, right, other, with_store(store), zygote).origin == "now"
