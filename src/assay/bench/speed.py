"""The speed of candidates of a training loop, behind their verdicts."""

from __future__ import annotations

import secrets
import threading
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

from assay.bench.cache import TaskCache
from assay.bench.ceilings import Gauge
from assay.bench.learned import Learned
from assay.bench.making import baseline_cache, open_gauge
from assay.bench.model import BenchReport
from assay.bench.options import BenchOptions, timing_device
from assay.bench.run import bench_task
from assay.contract import Contract
from assay.errors import InputError
from assay.report.model import Report
from assay.reward.scoring import EMULATED
from assay.run.process import Zygote
from assay.run.references import References
from assay.task import Candidate, Task
from assay.vocabulary import Label


class BenchSpeed:
    """Times what has the label `contract`, one at a time: the `speed` of `assay.reward.judge.KernelReward`.

    A call gives the lower limit of the speedup over the fastest baseline, cold, so that noise earns nothing; None
    where the times do not count. Use as a context manager, or call `close`. Nothing else may use the GPU while it
    times, verdicts included: give the pool another one, or one worker.

    Args:
        options: how to time; None for few rounds and the eager reference alone.

    Raises:
        InputError: there is no GPU.
    """

    def __init__(self, options: BenchOptions | None = None) -> None:
        self.options = options or BenchOptions(rounds=6, compiled=False, seconds=20.0)
        self._device = timing_device(self.options)
        self._lock, self._stack = threading.Lock(), ExitStack()
        self._zygote: Zygote | None = None
        self._references: References | None = None
        self._gauge: Gauge | None = None
        # inputs of a task are evaluated once, and nobody else knows them
        self._tasks, self._baselines = TaskCache[Learned](limit=16), baseline_cache(limit=4)
        self._inputs = secrets.randbits(31)
        self.last: BenchReport | None = None

    def __call__(self, task: Task, candidate: Candidate, report: Report) -> float | None:
        """The speedup that counts; None for what has no label, was emulated, or cheated the clock."""
        if report.label is not Label.CONTRACT or report.scope == EMULATED:
            return None
        verdict: dict[str, Any] = {"label": report.label.value, "scope": report.scope, "tier": report.tier,
                                   "origin": "now"}
        with self._lock:
            if self._zygote is None:
                self._zygote = self._stack.enter_context(Zygote())
                self._stack.callback(self._baselines.close)
                self._references = self._stack.enter_context(References(self._zygote))
                if self.options.light:
                    self._gauge = self._stack.enter_context(open_gauge(self._zygote, self._device, self.options))
            try:
                self.last = bench_task(
                    task, candidate, standing="contract", verdict=verdict, contract=Contract.from_data(report.contract),
                    options=replace(self.options, inputs_seed=self._inputs), zygote=self._zygote,
                    references=self._references, tasks=self._tasks, baselines=self._baselines, gauge=self._gauge)
            except InputError:
                # what cannot be timed is right all the same
                return None
        speedup = self.last.speedup
        return None if speedup is None else speedup.low

    def close(self) -> None:
        """End its workers."""
        self._stack.close()
        self._zygote = self._references = self._gauge = None

    def __enter__(self) -> BenchSpeed:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
