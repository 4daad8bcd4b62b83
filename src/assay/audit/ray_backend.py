"""Verdicts over Ray: many machines and GPUs, the same judges, the same rows.

A worker is an actor that owns one warm judge. The jobs themselves stay with the driver until they are answered,
so a worker, a GPU or a machine that is lost costs what it was deciding, which is decided again.
"""

from __future__ import annotations

import contextlib
import os
import socket
import threading
from collections import OrderedDict
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from typing import Any

from assay.errors import InputError
from assay.pool import Done, Job, Pool
from assay.run.lanes import LANES_ON_A_GPU

ATTEMPTS = 3
"""How often a job is begun: losing a machine says less about a candidate than losing a judge does."""

REACH_SECONDS = 10.0
"""How long the head of a cluster may take to answer a connection."""


@dataclass
class _Ticket:
    job: Job
    future: Future[Done] = field(default_factory=Future)
    tries: int = 0


class Worker:
    """What runs in an actor: a pool of one judge, in the process that Ray gives a GPU to.

    Args:
        sandbox: how candidates are confined.
        lanes: processes of one candidate at a time, where its job does not say.
    """

    def __init__(self, sandbox: str, lanes: int) -> None:
        self._pool, self._lanes = Pool(1, sandbox=sandbox), lanes

    def judge(self, job: Job) -> Done:
        """Decide one job. The answer holds no copy of the job: the driver has it."""
        own = replace(job, options=replace(job.options, lanes=job.options.lanes or self._lanes))
        done = self._pool.submit(own).result()
        return replace(done, job=None)  # type: ignore[arg-type]

    def pid(self) -> int:
        """The process of this actor."""
        return os.getpid()

    def end(self) -> None:
        """End the judge."""
        self._pool.close()


class RayBackend:
    """Judges in Ray actors. Use as a context manager, or call `close`.

    Args:
        workers: actors; None for what the cluster has room for.
        address: of a cluster; None starts one on this machine, which ends with the backend.
        sandbox: how candidates are confined.
        gpus: GPUs of each worker, also a fraction; None for 1 where the cluster has any.
        cpus: processors of each worker.

    Raises:
        InputError: Ray is not installed, the cluster does not answer, or it has no room for one worker.
    """

    def __init__(self, workers: int | None = None, *, address: str | None = None, sandbox: str = "auto",
                 gpus: float | None = None, cpus: float = 1.0) -> None:
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        try:
            import ray
        except ImportError:
            raise InputError("the ray backend needs ray", "--backend ray", "pip install 'assay[ray]'") from None
        self._ray = ray
        self._own = not ray.is_initialized()
        if self._own:
            _reach(address)
            try:
                # an unset address would also be taken from the environment
                ray.init(address=address or "local", include_dashboard=False, log_to_driver=False,
                         logging_level="ERROR", **({} if address else {"num_cpus": max(workers or 0, _processors())}))
            except (ConnectionError, OSError, RuntimeError, ValueError) as error:
                raise InputError(f"no Ray cluster: {' '.join(str(error).split())[:200]}",
                                 address or "--backend ray", "start one with `ray start --head`") from None
        resources = ray.cluster_resources()
        if gpus is None:
            gpus = 1.0 if resources.get("GPU", 0) else 0.0
        room = int(min(resources.get("CPU", 0) / cpus, resources.get("GPU", 0) / gpus if gpus else float("inf")))
        if room < 1:
            self.close()
            raise InputError("the cluster has no room for a worker", address or "--backend ray",
                             f"each takes {cpus:g} processors and {gpus:g} GPUs")
        self.workers = min(workers or room, room)
        self._class = ray.remote(Worker).options(num_cpus=cpus, num_gpus=gpus)
        self._sandbox, self._lanes = sandbox, max(1, min(LANES_ON_A_GPU, int(cpus)))
        self._changed = threading.Condition()
        self._waiting: OrderedDict[int, _Ticket] = OrderedDict()
        self._last: dict[int, str] = {}
        self._actors: dict[int, Any] = {}
        self._next = 0
        self._closed = False
        self.lost = 0
        self._threads = [threading.Thread(target=self._serve, args=(n,), daemon=True, name=f"ray-{n}")
                         for n in range(self.workers)]
        for thread in self._threads:
            thread.start()

    def submit(self, job: Job) -> Future[Done]:
        """Queue a job. Its future never raises but for cancellation. Raises RuntimeError when closed."""
        ticket = _Ticket(job)
        with self._changed:
            if self._closed:
                raise RuntimeError("the backend is closed")
            self._waiting[self._next] = ticket
            self._next += 1
            self._changed.notify()
        return ticket.future

    def processes(self) -> list[int]:
        """Process ids of the workers that are up and idle enough to say so."""
        actors = list(self._actors.values())
        return [int(pid) for pid in self._ray.get([actor.pid.remote() for actor in actors], timeout=60)]

    def close(self) -> None:
        """End the workers, and the cluster where this backend started it. What waits or runs is cancelled."""
        if hasattr(self, "_changed"):
            with self._changed:
                self._closed = True
                for ticket in self._waiting.values():
                    ticket.future.cancel()
                self._waiting.clear()
                self._changed.notify_all()
            ended = []
            for actor in self._actors.values():
                with contextlib.suppress(Exception):
                    ended.append(actor.end.remote())
            with contextlib.suppress(Exception):
                # a judge in the middle of a verdict is ended with its actor
                self._ray.wait(ended, num_returns=len(ended), timeout=0.5)
            for actor in self._actors.values():
                with contextlib.suppress(Exception):
                    self._ray.kill(actor)
            for thread in self._threads:
                thread.join()
        if self._own:
            self._ray.shutdown()

    def __enter__(self) -> RayBackend:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _serve(self, number: int) -> None:
        """One worker's life: its jobs one after another, in an actor that is replaced when it is lost."""
        while (ticket := self._take(number)) is not None:
            done = self._decide(number, ticket)
            if done is not None:
                ticket.future.set_result(done)
            elif self._closed:
                ticket.future.set_exception(RuntimeError("the backend was closed"))
            else:
                with self._changed:
                    key = min(self._waiting, default=self._next) - 1
                    self._waiting[key] = ticket
                    self._waiting.move_to_end(key, last=False)
                    self._changed.notify()

    def _decide(self, number: int, ticket: _Ticket) -> Done | None:
        """How a job ended; None when its worker was lost and it is to be begun again."""
        ticket.tries += 1
        try:
            if number not in self._actors:
                self._actors[number] = self._class.remote(self._sandbox, self._lanes)
            done: Done = self._ray.get(self._actors[number].judge.remote(ticket.job))
            return replace(done, job=ticket.job, judge=number, tries=ticket.tries + done.tries - 1)
        except self._ray.exceptions.RayError as error:
            actor = self._actors.pop(number, None)
            with contextlib.suppress(Exception):
                self._ray.kill(actor)
            if self._closed:
                return None
            self.lost += 1
            if ticket.tries < ATTEMPTS:
                return None
            text = " ".join(f"its worker was lost {ticket.tries} times: {type(error).__name__}".split())
            return Done(ticket.job, None, text, "judge", 0.0, number, ticket.tries)

    def _take(self, number: int) -> _Ticket | None:
        """The next job: of the task that is warm here, else of one that is warm nowhere, else the first."""
        with self._changed:
            while True:
                while self._waiting:
                    mine = self._last.get(number)
                    others = {task for n, task in self._last.items() if n != number}
                    keys = list(self._waiting)
                    tasks = {key: self._waiting[key].job.task.digest for key in keys}
                    chosen = next((k for k in keys if tasks[k] == mine), None)
                    if chosen is None:
                        chosen = next((k for k in keys if tasks[k] not in others), keys[0])
                    ticket = self._waiting.pop(chosen)
                    self._last[number] = ticket.job.task.digest
                    if ticket.tries or ticket.future.set_running_or_notify_cancel():
                        return ticket
                if self._closed:
                    return None
                self._changed.wait()


def _reach(address: str | None) -> None:
    """Say at once that nobody listens at HOST:PORT: Ray would try for minutes. Raises InputError."""
    host, _, port = (address or "").removeprefix("ray://").rpartition(":")
    if not host or not port.isdecimal():
        return
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=REACH_SECONDS).close()
    except OSError as error:
        raise InputError(f"no Ray cluster: {error.strerror or error}", f"{address}",
                         "start one with `ray start --head`") from None


def _processors() -> int:
    return len(os.sched_getaffinity(0))
