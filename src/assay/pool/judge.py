"""A judge of a pool: one process that decides jobs, one after another, from its own warm parent.

Started as `python -m assay.pool.judge FD SANDBOX JUDGES`, with the number of judges in its pool. It takes
(number, job) over the inherited socket and answers ("done", number, report, problem, at_fault, seconds), with
("phase", number, phase, done, total) before. Both ends are ours; nothing that a candidate sent is ever unpickled.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import sys
import threading
import time
from dataclasses import replace
from multiprocessing.connection import Connection
from typing import Any

import torch

from assay import seeds
from assay.errors import InputError
from assay.pool.model import Job
from assay.run.process import Zygote
from assay.run.references import References

ROTATION = 64
"""Verdicts on one task after which its hidden seed is drawn anew."""
TASKS = 256
_PR_SET_PDEATHSIG = 1
_PHASE_SECONDS = 0.2


class Seeds:
    """One hidden seed per task, for a number of verdicts: truths of a task are shared for that long."""

    def __init__(self, rotation: int = ROTATION) -> None:
        self._rotation = rotation
        self._drawn: dict[str, tuple[seeds.Seed, int]] = {}

    def of(self, task: str) -> seeds.Seed:
        """The seed of a task, by its digest."""
        seed, used = self._drawn.pop(task, (seeds.draw(None), 0))
        if used >= self._rotation:
            seed, used = seeds.draw(None), 0
        self._drawn[task] = seed, used + 1
        if len(self._drawn) > TASKS:
            self._drawn.pop(next(iter(self._drawn)))
        return seed


def main() -> None:
    """Decide jobs until the channel closes."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, _terminated)
    parent = os.getppid()
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    # judges compare side by side: threads of each would only wait for each other
    torch.set_num_threads(1)
    channel, judges = Connection(int(sys.argv[1])), int(sys.argv[3])
    if os.getppid() != parent:
        sys.exit(0)
    try:
        _serve(channel, judges)
    finally:
        # nothing is left to end: raised now, it would only be told of by the interpreter on its way out
        signal.signal(signal.SIGTERM, signal.SIG_IGN)


def _serve(channel: Connection, judges: int) -> None:
    drawn = Seeds()
    with Zygote(sys.argv[2]) as zygote, References(zygote) as references:
        zygote.wait_ready()
        channel.send(("ready", os.getpid()))
        while True:
            try:
                number, job = channel.recv()
            except (EOFError, OSError):
                return
            began = time.monotonic()
            report, problem, at_fault = _decide(job, number, channel, zygote, references, drawn, judges)
            with contextlib.suppress(OSError):
                channel.send(("done", number, report, problem, at_fault, time.monotonic() - began))
            if not zygote.alive:
                return
            references.get_ready()


def _terminated(*_: object) -> None:
    # as an exception, so that the warm parent and the workers are ended on the way out
    raise SystemExit(128 + signal.SIGTERM)


def _decide(job: Job, number: int, channel: Connection, zygote: Zygote, references: References,
            drawn: Seeds, judges: int) -> tuple[Any, str | None, str]:
    from assay.screen import screen_task
    from assay.verify import resolve_device, verify_task

    said: tuple[float, str] = (0.0, "")
    lock = threading.Lock()
    early = False

    def progress(phase: str, done: int, total: int) -> None:
        nonlocal said, early
        now = time.monotonic()
        with lock:
            if phase == "probes" and early:
                # the next candidate comes at once, and its processes take as long to start as this verdict
                early = False
                with contextlib.suppress(RuntimeError, OSError):
                    references.get_ready()
            if phase == said[1] and done < total and now - said[0] < _PHASE_SECONDS:
                return
            said = now, phase
            with contextlib.suppress(OSError):
                channel.send(("phase", number, phase, done, total))

    try:
        options = replace(job.options, neighbours=judges - 1)
        early = judges > 1 and resolve_device(options.device) == "cuda"
        if job.kind == "screen":
            return screen_task(job.task, job.candidate, variant=job.variant, precision=job.precision,
                               device=options.device, target=options.target, timeout=options.timeout or 300.0,
                               zygote=zygote), None, ""
        if options.seed is None:
            hidden = drawn.of(job.task.digest)
            options = replace(options, seed=hidden.value, nonce=hidden.nonce)
        return verify_task(job.task, job.candidate, contract=job.contract, options=options, zygote=zygote,
                           references=references, progress=progress), None, ""
    except InputError as error:
        return None, " ".join(str(error).split()), "input"
    except Exception as error:
        return None, " ".join(f"{type(error).__name__}: {error}".split())[:500], "judge"


if __name__ == "__main__":
    main()
