"""The life of workers: what ends one, what that costs, and that nothing is ever left."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.run.peek import DEVICE, load

from assay.probe.model import Call, Draw, Probe
from assay.probe.record import Observation
from assay.run.candidate import CandidateSession
from assay.run.lanes import Budget, Run
from assay.run.process import Death, Limits, Zygote
from assay.run.reference import ReferenceSession
from assay.task import parse_task

TASK = """
import torch
class Model(torch.nn.Module):
    def forward(self, x):
        return torch.relu(x)
ROWS = 4
def get_inputs():
    return [torch.randn(ROWS, 8)]
def get_init_inputs():
    return []
"""
CANDIDATE = """
import ctypes, os, signal, time
import torch
class ModelNew(torch.nn.Module):
    def forward(self, x):
        if x[0, 0] > 0:
            {deed}
        return torch.relu(x)
"""


def children(pid: int | None = None) -> set[int]:
    """Pids of all processes below this one."""
    found: set[int] = set()
    queue = [pid or os.getpid()]
    while queue:
        for task in Path(f"/proc/{queue.pop()}/task").glob("*"):
            try:
                below = {int(text) for text in (task / "children").read_text().split()}
            except OSError:
                continue
            found |= below
            queue += below
    return found


def descriptors() -> dict[str, str]:
    """Open descriptors of this process, by number."""
    return {name: os.readlink(f"/proc/self/fd/{name}") for name in os.listdir("/proc/self/fd")
            if os.path.lexists(f"/proc/self/fd/{name}")}


def until(true: Callable[[], bool], seconds: float = 20.0) -> bool:
    """Whether something becomes true in time."""
    end = time.monotonic() + seconds
    while not (found := true()) and time.monotonic() < end:
        threading.Event().wait(0.02)
    return found


@pytest.fixture
def run_plan(zygote: Zygote) -> Iterator[Callable[..., list[Observation]]]:
    opened: list[ReferenceSession | CandidateSession] = []

    def run(deed: str, count: int = 6, patience: float = 30.0) -> list[Observation]:
        reference = ReferenceSession(zygote, parse_task(TASK))
        reference.study()
        session = CandidateSession(zygote, CANDIDATE.format(deed=deed), ["ModelNew"], DEVICE,
                                   Limits(address_space=8 << 30))
        opened.extend((reference, session))
        plan = [Probe(id=f"values/draw-{i}", gate=f"values-{i}", draws=(Draw(seed=i),), calls=(Call(),))
                for i in range(count)]
        budget = Budget(time.monotonic() + 300, floor=patience)
        return [r.observation for r in Run(reference, [session], budget, 1).all(plan)]

    yield run
    for session in opened:
        session.close()


@pytest.mark.parametrize(("deed", "status", "code"), [
    ("os._exit(7)", "exited", 7),
    ("raise SystemExit(0)", "exited", 0),
    ("os.kill(os.getpid(), signal.SIGKILL)", "signalled", signal.SIGKILL),
    ("ctypes.string_at(0)", "signalled", signal.SIGSEGV),
    ("os.abort()", "signalled", signal.SIGABRT),
    ("raise ValueError('no')", "raised", None),
    ("os.close(200); time.sleep(60)", "closed", None),
    ("os.write(200, b'not a frame, and longer than a prefix')", "forged", None),
    ("bytearray(64 << 30)", "memory", None),
])
def test_an_end_costs_one_probe_and_is_named(
    run_plan: Callable[..., list[Observation]], deed: str, status: str, code: int | None,
) -> None:
    seen = run_plan(deed)
    bad = [o for o in seen if o.status != "ok"]
    assert 0 < len(bad) < len(seen)
    assert {(o.status, o.code) for o in bad} == {(status, code)}
    assert [o.probe for o in seen] == [f"values/draw-{i}" for i in range(6)]


def test_a_hang_costs_its_probe(run_plan: Callable[..., list[Observation]]) -> None:
    seen = run_plan("time.sleep(600)", patience=1.5)
    assert {o.status for o in seen} == {"ok", "timed_out"}


def test_processes_left_behind_are_counted_and_ended(run_plan: Callable[..., list[Observation]]) -> None:
    before = children()
    seen = run_plan("os.fork() or (os.setsid(), os.fork() or time.sleep(60), os._exit(0))")
    assert any(o.left for o in seen)
    assert {o.status for o in seen} == {"ok"}
    assert until(lambda: len(children()) <= len(before) + 4)


def test_a_child_that_ended_is_no_leftover(run_plan: Callable[..., list[Observation]]) -> None:
    seen = run_plan("__import__('subprocess').run(['true'], check=True); "
                    "os.fork() or os._exit(0)")
    assert {(o.status, o.left) for o in seen} == {("ok", 0)}


@pytest.mark.parametrize("mode", ["auto", "off"])
def test_two_hundred_workers_leave_nothing(zygote: Zygote, mode: str) -> None:
    zygote.spawn("candidate", confinement=mode).close()
    before, open_before, threads = children(), descriptors(), threading.active_count()
    count = 100
    for turn in range(count):
        worker = zygote.spawn("candidate", confinement=mode)
        if turn % 10 == 0:
            os.kill(worker.pid, signal.SIGKILL)
        assert isinstance(worker.close(), Death)
        assert not os.path.exists(worker.directory)
    assert until(lambda: children() <= before)
    assert descriptors().keys() == open_before.keys()
    assert threading.active_count() == threads


JUDGE = """
import sys, time
sys.path[:0] = {path!r}
from assay.run.process import Limits, Zygote
from tests.run.peek import DEVICE, load
zygote = Zygote()
workers = [zygote.spawn("candidate", options=DEVICE), zygote.spawn("reference")]
source = '''
import os, time
for _ in range(3):
    if os.fork() == 0:
        os.setsid()
        time.sleep(600)
class ModelNew: pass
'''
load(workers[0], source)
try:
    print(zygote._directory, flush=True)
    load(workers[0], "import time; time.sleep(600)")
except KeyboardInterrupt:
    for worker in workers:
        worker.close()
    zygote.close()
    print("interrupted", flush=True)
"""


@pytest.fixture
def judge() -> Iterator[tuple[subprocess.Popen[str], set[int], Path]]:
    process = subprocess.Popen([sys.executable, "-c", JUDGE.format(path=sys.path)], stdout=subprocess.PIPE,
                               text=True, start_new_session=True)
    assert process.stdout is not None
    directory = Path(process.stdout.readline().strip())
    yield process, children(process.pid), directory
    process.kill()
    process.wait()
    process.stdout.close()


def test_a_killed_judge_leaves_neither_process_nor_directory(
    judge: tuple[subprocess.Popen[str], set[int], Path],
) -> None:
    process, below, directory = judge
    assert len(below) >= 6
    assert directory.is_dir()
    process.kill()
    process.wait()
    assert until(lambda: not any(os.path.exists(f"/proc/{pid}") for pid in below))
    assert until(lambda: not directory.exists())


def test_a_signal_to_the_whole_group_leaves_nothing(
    judge: tuple[subprocess.Popen[str], set[int], Path],
) -> None:
    process, below, directory = judge
    os.killpg(process.pid, signal.SIGTERM)
    assert process.wait(30) == -signal.SIGTERM
    assert until(lambda: not any(os.path.exists(f"/proc/{pid}") for pid in below))
    assert until(lambda: not directory.exists())


def test_an_interrupt_ends_everything(judge: tuple[subprocess.Popen[str], set[int], Path]) -> None:
    process, below, directory = judge
    process.send_signal(signal.SIGINT)
    assert process.wait(30) == 0
    assert process.stdout is not None
    assert process.stdout.read().strip() == "interrupted"
    assert until(lambda: not any(os.path.exists(f"/proc/{pid}") for pid in below))
    assert not directory.exists()


def test_a_dead_warm_parent_is_a_clear_error() -> None:
    with Zygote() as own:
        worker = own.spawn("candidate", options=DEVICE)
        own._process.kill()
        own._process.wait()
        with pytest.raises(RuntimeError, match="warm parent of the workers is gone"):
            own.spawn("candidate")
        # the signal that ends what the warm parent left reaches its workers a little later
        assert until(lambda: isinstance(load(worker, "class ModelNew: pass"), Death))
        assert worker.death is not None
        assert worker.death.kind == "guardian_lost"
        assert not own.alive


def test_an_interrupted_plan_ends_its_workers(zygote: Zygote) -> None:
    source = textwrap.dedent("""
        import time
        class ModelNew:
            def __call__(self, x):
                time.sleep(600)
    """)
    reference = ReferenceSession(zygote, parse_task(TASK))
    reference.study()
    before = children()
    session = CandidateSession(zygote, source, ["ModelNew"], DEVICE, Limits(address_space=8 << 30))
    plan = [Probe(id=f"values/draw-{i}", gate="values", draws=(Draw(seed=i),), calls=(Call(),))
            for i in range(3)]
    run = Run(reference, [session], Budget(time.monotonic() + 300, floor=100.0), 1)

    def interrupt() -> None:
        until(lambda: session._worker is not None)
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

    threading.Thread(target=interrupt).start()
    with pytest.raises(KeyboardInterrupt):
        run.all(plan)
    session.close()
    reference.close()
    assert until(lambda: children() <= before)
