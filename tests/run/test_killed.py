"""Who ended a worker with SIGKILL: the kernel for want of memory, somebody outside, or the candidate itself."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.run.peek import DEVICE
from tests.run.test_workers import TASK, children, until

from assay.probe.model import Call, Draw, Probe
from assay.probe.record import Observation
from assay.run import killed
from assay.run.candidate import CandidateSession
from assay.run.lanes import Budget, Run
from assay.run.process import Limits, Zygote
from assay.run.reference import ReferenceSession
from assay.task import parse_task

SLOW = """
import time, torch
class ModelNew(torch.nn.Module):
    def forward(self, x):
        time.sleep(2)
        return torch.relu(x)
"""
ENDS_ITSELF = """
import os, signal, torch
class ModelNew(torch.nn.Module):
    def forward(self, x):
        os.kill(os.getpid(), signal.SIGKILL)
"""
HUNGRY = """
import time, torch
class ModelNew(torch.nn.Module):
    def forward(self, x):
        while "assay-test-killed" not in open("/proc/self/cgroup").read():
            time.sleep(0.01)
        held = bytearray(1 << 30)
        return torch.relu(x)
"""
GROUP = Path("/sys/fs/cgroup/memory/assay-test-killed")
Meanwhile = Callable[[CandidateSession, threading.Event], None]


@pytest.fixture
def answer(zygote: Zygote) -> Iterator[Callable[..., Observation]]:
    """What a candidate does on a probe, while something else happens to its session."""
    opened: list[ReferenceSession | CandidateSession] = []

    def run(source: str, meanwhile: Meanwhile = lambda session, ended: None) -> Observation:
        reference = ReferenceSession(zygote, parse_task(TASK))
        reference.study()
        session = CandidateSession(zygote, source, ["ModelNew"], DEVICE, Limits(address_space=8 << 30))
        opened.extend((reference, session))
        probe = Probe(id="values/draw-0", gate="values", draws=(Draw(seed=1),), calls=(Call(),))
        ended = threading.Event()
        thread = threading.Thread(target=meanwhile, args=(session, ended))
        thread.start()
        try:
            record = Run(reference, [session], Budget(time.monotonic() + 300, floor=60.0), 1).one(probe, session)
        finally:
            ended.set()
            thread.join()
        return record.observation

    yield run
    for each in opened:
        each.close()


def workers_of(session: CandidateSession) -> set[int]:
    """Processes that run the candidate now: what its guardian has started."""
    worker = session._worker
    return children(worker.pid) if worker is not None and worker.alive else set()


def kill_once(session: CandidateSession, ended: threading.Event) -> None:
    assert until(lambda: bool(workers_of(session)), 60)
    for pid in workers_of(session):
        os.kill(pid, signal.SIGKILL)


def confine(session: CandidateSession, ended: threading.Event) -> None:
    while not ended.wait(0.01):
        for pid in workers_of(session):
            with contextlib.suppress(OSError):
                (GROUP / "cgroup.procs").write_text(str(pid))


def test_one_that_is_killed_from_outside_and_answers_when_asked_again_is_not_accused(answer) -> None:
    seen = answer(SLOW, kill_once)
    assert (seen.status, seen.text) == ("machine", killed.FROM_OUTSIDE)


def test_one_that_kills_itself_does_so_again(answer) -> None:
    seen = answer(ENDS_ITSELF)
    assert (seen.status, seen.code) == ("signalled", signal.SIGKILL)


def test_one_that_is_killed_on_a_second_probe_kills_itself_now_and_then() -> None:
    ended = Observation(probe="a", status="signalled", code=signal.SIGKILL)
    right = Observation(probe="a", status="ok")
    kills: list[str] = []
    assert killed.decided(ended, lambda: right, kills).status == "machine"
    assert killed.decided(ended, lambda: right, kills) == ended


def test_other_signals_are_its_own_and_are_not_asked_about() -> None:
    ended = Observation(probe="a", status="signalled", code=signal.SIGSEGV)
    assert killed.decided(ended, lambda: pytest.fail("asked again"), []) == ended


def test_one_that_the_kernel_ends_for_want_of_memory_is_not_accused(answer) -> None:
    try:
        GROUP.mkdir()
        (GROUP / "memory.limit_in_bytes").write_text(str(600 << 20))
    except OSError as error:
        pytest.skip(f"no control group of memory can be made here: {error}")
    before = killed.counted()
    try:
        seen = answer(HUNGRY, confine)
    finally:
        assert until(_removed)
    assert killed.moved(before)
    assert (seen.status, seen.text) == ("machine", killed.OUT_OF_MEMORY)


def _removed() -> bool:
    """Whether the group is gone: it can be removed once its last process has ended."""
    with contextlib.suppress(OSError):
        GROUP.rmdir()
    return not GROUP.exists()


def test_both_versions_of_control_groups_are_read(tmp_path: Path) -> None:
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "proc/vmstat").write_text("nr_free_pages 5\noom_kill 3\n")
    (tmp_path / "proc/self/cgroup").write_text("4:cpu,memory:/a/b\n0::/c\n")
    for place, text in (("memory/a/b/memory.oom_control", "oom_kill_disable 0\noom_kill 1\n"),
                        ("c/memory.events", "low 0\noom 9\noom_kill 2\n")):
        path = tmp_path / "sys/fs/cgroup" / place
        path.parent.mkdir(parents=True)
        path.write_text(text)
    assert sorted(killed.counted(tmp_path).values()) == [1, 2, 3]
