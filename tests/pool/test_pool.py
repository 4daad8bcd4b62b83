"""Pools of judges: real verdicts, judges killed under way, cancelled jobs, input at fault."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from assay.errors import InputError
from assay.pool import Job, Pool
from assay.run.process import Zygote
from assay.run.references import References
from assay.task import parse_candidate, parse_task
from assay.verify import Options, load_pair
from assay.vocabulary import EffortTier, Label

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
QUICK = Options(device="cpu", tier=EffortTier.QUICK, only=("values", "shapes"))
REFERENCE = """
import torch

class Model(torch.nn.Module):
    def forward(self, x):
        return x.sum(dim=-1)

N = 24

def get_inputs():
    return [torch.randn(4, N)]

def get_init_inputs():
    return []
"""
ENDLESS = "import torch\nclass ModelNew(torch.nn.Module):\n    def forward(self, x):\n        while True: pass\n"


def job(name: str, file: str, id: str | None = None, **changes: object) -> Job:
    task, candidate = load_pair(EXAMPLES / name / "reference.py", EXAMPLES / name / file)
    return Job(id or f"{name}/{file}", task, candidate, options=QUICK, **changes)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def pool() -> Iterator[Pool]:
    with Pool(2, sandbox="auto") as shared:
        yield shared


def test_every_job_gets_the_verdict_it_deserves(pool: Pool) -> None:
    jobs = [job("softmax", "right.py"), job("softmax", "wrong_padding_lanes.py"), job("row_argmax", "right.py")]
    found = {done.job.id: done for done in pool.run(iter(jobs), ahead=2)}
    labels = {name: done.verdict.label for name, done in found.items()}
    assert labels["softmax/wrong_padding_lanes.py"] is Label.REJECTED
    assert Label.REJECTED not in (labels["softmax/right.py"], labels["row_argmax/right.py"])
    assert len(found) == 3
    assert all(done.problem is None and done.tries == 1 for done in found.values())


def test_candidates_of_one_task_share_a_hidden_seed_and_closing_may_drain() -> None:
    one = Pool(1)
    futures = [one.submit(job("softmax", file)) for file in ("right.py", "wrong_padding_lanes.py")]
    one.close(drain=True)
    first, second = (future.result(timeout=0).verdict for future in futures)
    assert first.seed == second.seed
    assert first.seed_nonce
    assert second.label is Label.REJECTED
    with pytest.raises(RuntimeError, match="closed"):
        one.submit(job("softmax", "right.py"))


def test_a_task_at_fault_is_one_line_and_stops_nothing(pool: Pool) -> None:
    broken = parse_task(REFERENCE.replace("x.sum(dim=-1)", "x.no_such_method()"))
    jobs = [Job("broken", broken, parse_candidate("class ModelNew: pass\n", entries=("ModelNew",))),
            job("softmax", "right.py")]
    found = {done.job.id: done for done in pool.run(jobs)}
    assert found["broken"].report is None
    assert found["broken"].at_fault == "input"
    problem = found["broken"].problem
    assert problem is not None
    assert "no_such_method" in problem
    assert "\n" not in problem
    with pytest.raises(ValueError, match="no_such_method"):
        _ = found["broken"].verdict
    assert found["softmax/right.py"].problem is None


def test_a_screen_is_a_job_too(pool: Pool) -> None:
    (done,) = pool.run([job("softmax", "wrong_padding_lanes.py", kind="screen")])
    assert done.screened.passed, "the usual check accepts this kernel"


def test_live_callables_are_refused(pool: Pool) -> None:
    ordinary = job("softmax", "right.py")
    live = ordinary.task.model_copy(update={"handle": "f-1"})
    with pytest.raises(InputError, match="live callables"):
        pool.submit(Job("live", live, ordinary.candidate))



def _endless(id: str) -> Job:
    task = parse_task(REFERENCE)
    options = Options(device="cpu", only=("values",), patience=60.0, timeout=100.0)
    return Job(id, task, parse_candidate(ENDLESS, entries=("ModelNew",)), options=options)


def test_judges_that_die_cost_at_most_their_own_job() -> None:
    killed: list[str] = []

    def progress(id: str, phase: str, done: int, total: int) -> None:
        if phase == "pilot" and (id == "fatal" or (id == "once" and "once" not in killed)):
            killed.append(id)
            for pid in one.processes():
                os.kill(pid, signal.SIGKILL)

    with Pool(1, progress=progress) as one:
        found = {done.job.id: done for done in one.run([
            job("softmax", "right.py", id="fatal"), job("softmax", "wrong_padding_lanes.py", id="once")])}
    assert (found["once"].verdict.label, found["once"].tries) == (Label.REJECTED, 2)
    assert found["fatal"].report is None
    assert (found["fatal"].at_fault, found["fatal"].tries) == ("judge", 2)
    assert killed.count("fatal") == 2
    assert one.lost == 3


def test_a_running_job_is_cancelled_and_the_next_one_decided() -> None:
    begun: dict[str, threading.Event] = {"endless": threading.Event(), "last": threading.Event()}

    def progress(id: str, phase: str, done: int, total: int) -> None:
        if phase == "pilot" and id in begun:
            begun[id].set()

    with Pool(1, progress=progress) as one:
        endless, waiting = one.submit(_endless("endless")), one.submit(_endless("waiting"))
        following = one.submit(job("softmax", "wrong_padding_lanes.py"))
        assert begun["endless"].wait(120)
        assert one.cancel("waiting")
        assert one.cancel("endless")
        assert not one.cancel("never-submitted")
        assert following.result(timeout=240).verdict.label is Label.REJECTED
        assert endless.cancelled()
        assert waiting.cancelled()
        last = one.submit(_endless("last"))
        assert begun["last"].wait(120)
    assert last.cancelled(), "closing ended what ran"


def test_a_job_whose_judge_comes_up_is_cancelled_and_the_judge_kept() -> None:
    with Pool(1) as one:
        endless = one.submit(_endless("endless"))
        while "endless" not in one.running:
            time.sleep(0.01)
        assert not one.processes(), "its judge is on its way"
        following = one.submit(job("softmax", "wrong_padding_lanes.py"))
        assert one.cancel("endless")
        assert endless.cancelled(), "at once"
        assert not one.cancel("endless")
        assert following.result(timeout=240).verdict.label is Label.REJECTED
        assert one.lost == 0
        last = one.submit(_endless("last"))
    assert last.cancelled(), "closing ended what was about to run"


def test_reference_workers_are_kept_for_the_tasks_seen_last(zygote: Zygote) -> None:
    with References(zygote, limit=2) as kept:
        tasks = [parse_task(REFERENCE.replace("24", str(n)), id=str(n)) for n in (16, 24, 32)]
        first = kept.session(tasks[0], {}, device="cpu")
        study = first.study()
        assert kept.session(tasks[0], {}, device="cpu") is first
        assert first.study() is study, "it was studied again"
        assert kept.session(tasks[0], {"matmul": "tf32"}, device="cpu") is not first
        kept.session(tasks[1], {}, device="cpu")
        assert kept.session(tasks[0], {}, device="cpu") is not first, "the oldest one was to go"
        again = kept.session(tasks[0], {}, device="cpu")
        kept.drop(again)
        assert kept.session(tasks[0], {}, device="cpu") is not again


def test_no_workers_is_bad_input() -> None:
    with pytest.raises(InputError, match="workers"):
        Pool(0)
