"""Workers started before their candidate: used where they fit, given up where they do not, never left over."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

from assay import corpus
from assay.run.ahead import Ahead, Wanted
from assay.run.candidate import CandidateSession
from assay.run.process import Limits, Worker, Zygote
from assay.run.references import References
from assay.task import parse_candidate, parse_task
from assay.verify import Options, verify_task

EMULATED = Wanted({"device": "cpu", "target": "sm_90"}, Limits())


def _gone(worker: Worker) -> bool:
    for _ in range(200):
        if not Path(f"/proc/{worker.pid}").exists():
            return True
        time.sleep(0.05)
    return False


def test_what_was_started_with_the_same_is_taken_once(zygote: Zygote) -> None:
    with Ahead(zygote) as ahead:
        ahead.prepare([EMULATED])
        other = Wanted({**EMULATED.options, "target": "sm_80"}, EMULATED.limits)
        assert ahead.take(other) is None
        worker = ahead.take(EMULATED)
        assert worker is not None
        assert ahead.take(EMULATED) is None
        worker.close()


def test_no_more_than_the_limit_are_kept_and_the_oldest_go_first(zygote: Zygote) -> None:
    with Ahead(zygote, limit=1) as ahead:
        ahead.prepare([EMULATED])
        [kept] = ahead._kept[EMULATED.key]
        hiding = Wanted(EMULATED.options, EMULATED.limits, hide=("/etc/hostname",))
        ahead.prepare([hiding])
        assert _gone(kept.worker)
        assert ahead.take(EMULATED) is None
        worker = ahead.take(hiding)
        assert worker is not None
    assert Path(f"/proc/{worker.pid}").exists(), "what was taken is its owner's"
    worker.close()


def test_one_that_was_killed_meanwhile_is_replaced(zygote: Zygote) -> None:
    entry = corpus.entry("relu", "float32")
    with Ahead(zygote) as ahead:
        ahead.prepare([EMULATED])
        [started] = ahead._kept[EMULATED.key]
        started.thread.join()
        os.kill(started.worker.pid, signal.SIGKILL)
        assert _gone(started.worker)
        session = CandidateSession(zygote, entry.kernel, ["ModelNew"], dict(EMULATED.options), EMULATED.limits,
                                   ahead=ahead)
        assert session._ensure_loaded("a probe", 60.0) is None
        session.close()


def _waiting(references: References) -> list[Worker]:
    """Workers that were started ahead and await a candidate."""
    return [one.worker for kept in references.ahead._kept.values() for one in kept]


def test_verdicts_are_the_same_and_nothing_stays(zygote: Zygote) -> None:
    entry = corpus.entry("softmax_row", "float32")
    task, candidate = parse_task(entry.reference), parse_candidate(entry.kernel)
    options = Options(device="cpu", seed=4, only=("values", "integrity", "provenance", "statelessness"), lanes=1)
    alone = verify_task(task, candidate, options=options, zygote=zygote)
    with References(zygote) as references:
        for _ in range(2):
            # the second shows that workers are wanted with the same again
            verify_task(task, candidate, options=options, zygote=zygote, references=references)
        for _ in range(5):
            references.get_ready()
            waiting = _waiting(references)
            again = verify_task(task, candidate, options=options, zygote=zygote, references=references)
            taken = [one for one in waiting if one not in _waiting(references)]
            if taken:
                break
            # free memory has moved by a step meanwhile, and with it what a worker may have
        [worker] = taken
        assert _gone(worker)
        references.get_ready()
        left = _waiting(references)
    assert left
    assert all(map(_gone, left))
    assert again.label == alone.label
    assert [g.model_dump() for g in again.gates] == [g.model_dump() for g in alone.gates]
