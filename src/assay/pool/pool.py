"""Many verdicts on one machine: judges that stay warm, jobs that are never lost."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, CancelledError, Future, InvalidStateError, wait
from dataclasses import dataclass, field
from multiprocessing.connection import Connection

from assay.errors import InputError
from assay.pool.model import Done, Job
from assay.pool.size import judges
from assay.run.process import checked_mode as checked_mode

Progress = Callable[[str, str, int, int], None]
ATTEMPTS = 2
AHEAD = 4
RECENT = 4
START_SECONDS = 180.0
IDLE_SECONDS = 3.0
END_SECONDS = 10.0


@dataclass
class _Ticket:
    number: int
    job: Job
    future: Future[Done] = field(default_factory=Future)
    tries: int = 0
    cancelled: bool = False


class _Judge:
    """One judge process, seen from the pool. Started and used by one thread, which it outlives by no moment."""

    def __init__(self, number: int, sandbox: str, gpu: str | None, judges: int) -> None:
        ours, theirs = socket.socketpair()
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
        if gpu is not None:
            environment["CUDA_VISIBLE_DEVICES"] = gpu
        self.process = subprocess.Popen(
            [sys.executable, "-m", "assay.pool.judge", str(theirs.fileno()), sandbox, str(judges)],
            pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL, env=environment)
        theirs.close()
        self.number = number
        self.channel = Connection(ours.detach())
        self.recent: OrderedDict[str, None] = OrderedDict()

    def answer(self, ticket: _Ticket, progress: Progress | None) -> Done | None:
        """Have a job decided; None when the judge was lost over it."""
        try:
            self.channel.send((ticket.number, ticket.job))
            while True:
                message = self.channel.recv()
                if message[0] == "phase" and progress is not None:
                    progress(ticket.job.id, *message[2:])
                elif message[0] == "done" and message[1] == ticket.number:
                    _, _, report, problem, at_fault, seconds = message
                    return Done(ticket.job, report, problem, at_fault, round(seconds, 3), self.number, ticket.tries)
        except (EOFError, OSError):
            return None

    def remember(self, task: str) -> None:
        """Note that the reference of a task is warm here."""
        self.recent.pop(task, None)
        self.recent[task] = None
        while len(self.recent) > RECENT:
            self.recent.popitem(last=False)

    def kill(self) -> None:
        """Order its end from any thread."""
        with contextlib.suppress(ProcessLookupError):
            self.process.terminate()

    def close(self) -> int:
        """End it; its exit status."""
        self.channel.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            # one that waits for work ends by itself
            return self.process.wait(IDLE_SECONDS)
        self.kill()
        try:
            return self.process.wait(END_SECONDS)
        except subprocess.TimeoutExpired:
            self.process.kill()
            return self.process.wait()


class Pool:
    """Judges of one machine, each with its own warm parent. Use as a context manager, or call `close`.

    Jobs of one task go to the judge that has its reference warm, as far as that leaves no judge idle. A judge
    that dies is replaced and its job begun again once.

    Args:
        workers: judges; None for as many as the machine takes: see `size.judges`.
        sandbox: how candidates are confined, where a job does not say.
        gpus: values of `CUDA_VISIBLE_DEVICES` that the judges take in turn; None leaves the environment's.
        device: where most jobs are judged, `cpu`, `cuda` or `auto`.
        progress: called with (job id, phase, done, total) from the pool's threads.

    Raises:
        InputError: `workers` is no positive number, or `sandbox` cannot be had here.
    """

    def __init__(self, workers: int | None = None, *, sandbox: str = "auto", gpus: Sequence[str] | None = None,
                 device: str = "auto", progress: Progress | None = None) -> None:
        workers = judges(device, len(gpus or ())) if workers is None else workers
        if workers < 1:
            raise InputError(f"{workers} workers can do nothing", "--workers", "give 1 or more")
        self.sandbox, self.workers = checked_mode(sandbox), workers
        self._gpus, self._progress = list(gpus or []), progress
        self._changed = threading.Condition()
        self._waiting: OrderedDict[int, _Ticket] = OrderedDict()
        self._starting: dict[int, _Ticket] = {}
        self._running: dict[int, tuple[_Ticket, _Judge]] = {}
        self._warm: dict[int, OrderedDict[str, None]] = {}
        self._next = 0
        self._closed = False
        self.lost = 0
        self._threads = [threading.Thread(target=self._serve, args=(n,), daemon=True, name=f"judge-{n}")
                         for n in range(workers)]
        for thread in self._threads:
            thread.start()

    def submit(self, job: Job) -> Future[Done]:
        """Queue a job. Its future never raises but for cancellation.

        Raises:
            InputError: the job's task or candidate lives in this process only.
            RuntimeError: the pool is closed.
        """
        if job.task.handle is not None:
            raise InputError("live callables cannot be judged by other processes", job.task.shown,
                             "give a reference file or its source")
        with self._changed:
            if self._closed:
                raise RuntimeError("the pool is closed")
            ticket = _Ticket(self._next, job)
            self._next += 1
            self._waiting[ticket.number] = ticket
            self._changed.notify()
        return ticket.future

    def run(self, jobs: Iterable[Job], ahead: int | None = None) -> Iterator[Done]:
        """Decide jobs, pulled from an iterator as there is room; yields them as they end.

        Args:
            jobs: what to decide.
            ahead: jobs queued or running at once; None for several per judge.
        """
        limit = ahead or AHEAD * self.workers
        source = iter(jobs)
        pending: set[Future[Done]] = set()
        exhausted = False
        try:
            while pending or not exhausted:
                while not exhausted and len(pending) < limit:
                    try:
                        pending.add(self.submit(next(source)))
                    except StopIteration:
                        exhausted = True
                if not pending:
                    return
                ended, pending = wait(pending, timeout=1.0, return_when=FIRST_COMPLETED)
                for future in ended:
                    with contextlib.suppress(CancelledError):
                        yield future.result()
        finally:
            for future in pending:
                future.cancel()

    def cancel(self, id: str) -> bool:
        """Cancel a job that waits or runs; False when there is none of that id. A running one loses its judge."""
        with self._changed:
            found = next((t for t in self._waiting.values() if t.job.id == id), None)
            taken = next((t for t in self._starting.values() if t.job.id == id and not t.cancelled), None)
            if found is not None:
                del self._waiting[found.number]
            elif taken is not None:
                # its judge comes up, and will have nothing to do
                taken.cancelled, found = True, taken
            else:
                for ticket, judge in self._running.values():
                    if ticket.job.id == id:
                        ticket.cancelled = True
                        judge.kill()
                        return True
        if found is None:
            return False
        # outside the lock: whoever waits for it may ask this pool in turn
        _cancel(found.future)
        return True

    @property
    def waiting(self) -> int:
        """Jobs that have not begun."""
        return len(self._waiting)

    @property
    def running(self) -> tuple[str, ...]:
        """Ids of the jobs that are being decided."""
        with self._changed:
            tickets = [*self._starting.values(), *(ticket for ticket, _ in self._running.values())]
            return tuple(ticket.job.id for ticket in tickets)

    def processes(self) -> tuple[int, ...]:
        """Process ids of the judges at work."""
        with self._changed:
            return tuple(judge.process.pid for _, judge in self._running.values())

    def close(self, drain: bool = False) -> None:
        """End the judges.

        Args:
            drain: let what waits and runs end first; otherwise it is cancelled.
        """
        dropped: list[_Ticket] = []
        with self._changed:
            self._closed = True
            if not drain:
                dropped = list(self._waiting.values())
                self._waiting.clear()
                for ticket in self._starting.values():
                    if not ticket.cancelled:
                        ticket.cancelled = True
                        dropped.append(ticket)
                for ticket, judge in self._running.values():
                    ticket.cancelled = True
                    judge.kill()
            self._changed.notify_all()
        for ticket in dropped:
            _cancel(ticket.future)
        for thread in self._threads:
            thread.join()

    def __enter__(self) -> Pool:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _serve(self, number: int) -> None:
        judge: _Judge | None = None
        try:
            while (ticket := self._take(number)) is not None:
                if judge is None:
                    judge, problem = self._start(number)
                    if judge is None:
                        with self._changed:
                            self._starting.pop(number, None)
                        if not ticket.cancelled:
                            self._settle(ticket, Done(ticket.job, None, problem, "judge", 0.0, number, ticket.tries))
                        continue
                judge = self._decide(number, judge, ticket)
        finally:
            if judge is not None:
                judge.close()

    def _start(self, number: int) -> tuple[_Judge | None, str]:
        """A new judge, ready; or none, and why."""
        gpu = self._gpus[number % len(self._gpus)] if self._gpus else None
        judge = _Judge(number, self.sandbox, gpu, self.workers)
        with contextlib.suppress(EOFError, OSError):
            if judge.channel.poll(START_SECONDS) and judge.channel.recv()[0] == "ready":
                self._warm[number] = judge.recent
                return judge, ""
        return None, f"a judge did not come up (status {judge.close()})"

    def _decide(self, number: int, judge: _Judge, ticket: _Ticket) -> _Judge | None:
        """Have one job decided; the judge, or None when it was lost."""
        with self._changed:
            self._starting.pop(number, None)
            if ticket.cancelled:
                # whoever cancelled it has told its owner
                return judge
            self._running[number] = (ticket, judge)
            if self._closed and ticket.future.cancelled():
                judge.kill()
        ticket.tries += 1
        done = judge.answer(ticket, self._progress)
        with self._changed:
            self._running.pop(number, None)
        if done is not None:
            judge.remember(ticket.job.task.digest)
            self._settle(ticket, done)
            return judge
        status = judge.close()
        self._warm.pop(number, None)
        if ticket.cancelled:
            self._settle(ticket, None)
            return None
        self.lost += 1
        if ticket.tries < ATTEMPTS:
            with self._changed:
                self._waiting[ticket.number] = ticket
                self._waiting.move_to_end(ticket.number, last=False)
                self._changed.notify()
        else:
            text = f"its judge ended {ticket.tries} times before it answered (status {status})"
            self._settle(ticket, Done(ticket.job, None, text, "judge", 0.0, number, ticket.tries))
        return None

    @staticmethod
    def _settle(ticket: _Ticket, done: Done | None) -> None:
        """Answer a future, unless somebody cancelled it."""
        if done is None or ticket.future.cancelled():
            _cancel(ticket.future)
            return
        try:
            ticket.future.set_result(done)
        except InvalidStateError:
            # cancelled in this very moment
            _cancel(ticket.future)

    def _take(self, number: int) -> _Ticket | None:
        """The next job for a judge: one whose task it knows, else one that no other judge knows, else the first."""
        with self._changed:
            while True:
                for ticket in [t for t in self._waiting.values() if t.future.cancelled()]:
                    # cancelled by its owner, whose callbacks have been called; this wakes who waits for it
                    del self._waiting[ticket.number]
                    _cancel(ticket.future)
                if self._waiting:
                    break
                if self._closed:
                    return None
                self._changed.wait()
            mine = self._warm.get(number, OrderedDict())
            others = {task for n, tasks in self._warm.items() if n != number for task in tasks}
            others |= {ticket.job.task.digest for ticket, _ in self._running.values()}
            others |= {ticket.job.task.digest for ticket in self._starting.values()}
            tickets = list(self._waiting.values())
            chosen = next((t for t in tickets if t.job.task.digest in mine), None)
            chosen = chosen or next((t for t in tickets if t.job.task.digest not in others), tickets[0])
            del self._waiting[chosen.number]
            self._starting[number] = chosen
            return chosen


def _cancel(future: Future[Done]) -> None:
    """Cancel a future that has no result, and wake whoever waits for it."""
    future.cancel()
    with contextlib.suppress(InvalidStateError, RuntimeError):
        future.set_running_or_notify_cancel()
