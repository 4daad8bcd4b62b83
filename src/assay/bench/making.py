"""Contenders of a benchmark, each in a worker of its own."""

from __future__ import annotations

import contextlib
import json
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from assay.bench import ceilings, machine
from assay.bench.cache import TaskCache
from assay.bench.contender import Contender
from assay.bench.learned import Learned
from assay.bench.options import BenchOptions
from assay.bench.rounds import CANDIDATE, Rounds
from assay.bench.schedule import Schedule
from assay.mutants.experiments import resized
from assay.run.candidate import CandidateSession
from assay.run.process import Limits, Zygote
from assay.task import Candidate, Task
from assay.verify import address_space, entries

FLUSH_BYTES = 384 << 20
"""Bytes written at least before a cold call: long enough for the processor to queue the call meanwhile."""


@dataclass(frozen=True)
class Maker:
    """Makes the contenders of a benchmark, each in a worker of its own."""

    task: Task
    candidate: Candidate
    options: BenchOptions
    device: str
    zygote: Zygote
    facts: Learned
    buffers: int
    tf32: bool

    @property
    def key(self) -> str:
        """What baselines depend on."""
        return json.dumps([self.facts.key, self.options.compiled, self.buffers, self.tf32])

    def own(self) -> Contender:
        """The candidate."""
        session = self._session(self.candidate.source, entries(self.task, self.candidate))
        # what it leaves to torch is as narrow as the baselines' products, and no narrower unless it asks for that
        return Contender(CANDIDATE, session, self.facts.weights, tf32=True if self.tf32 else None,
                         patience=self.options.patience)

    def baselines(self) -> dict[str, Contender]:
        """The reference, eager and compiled."""
        sizes = self.options.sizes
        source = resized(self.task.source, sizes) if sizes else self.task.source
        return {name: Contender(name, self._session(source, [self.task.entry]), self.facts.weights,
                                compile=name == "compiled", tf32=self.tf32, patience=self.options.patience)
                for name in (("eager", "compiled") if self.options.compiled else ("eager",))}

    def load(self, contenders: dict[str, Contender]) -> dict[str, Contender]:
        """Load some of them at the same time, and let them warm up."""
        flush = max(3 * machine.cache_bytes(self.device), FLUSH_BYTES) if self.device == "cuda" else 1 << 20
        with ThreadPoolExecutor(len(contenders)) as pool:
            for job in [pool.submit(c.load, self.facts.known, buffers=self.buffers, flush=flush)
                        for c in contenders.values()]:
                job.result()
        warming = Rounds(contenders, self.facts.known, Schedule(0, self.buffers))
        warming.warm_up(list(contenders))
        for name, contender in contenders.items():
            contender.stopped = warming.seen[name].stopped
        return contenders

    def _session(self, source: str, names: list[str]) -> CandidateSession:
        hide = [self.task.path] if self.task.path else []
        return CandidateSession(self.zygote, source, names, worker_options(self.device),
                                Limits(address_space=address_space(self.device)), sandbox=self.options.sandbox,
                                hide=hide, patience=self.options.patience)


def baseline_cache(limit: int = 4) -> TaskCache[dict[str, Contender]]:
    """Keeps the loaded and warm baselines of the tasks seen last, and makes them anew where one of them ended.

    Several benchmarks may be prepared with it at a time; as always, only one may run.

    Args:
        limit: sets of baselines kept; of the tasks that are prepared at a time none may be left out.
    """
    return TaskCache(limit, usable=_all_usable, close_one=_close_all)


def _all_usable(baselines: dict[str, Contender]) -> bool:
    return all(contender.usable for contender in baselines.values())


def _close_all(baselines: dict[str, Contender]) -> None:
    for contender in baselines.values():
        contender.close()


def worker_options(device: str) -> dict[str, Any]:
    """Options of a worker whose candidate is timed."""
    return {"device": device, "target": "sm_90", "mode": "time"}


def open_gauge(zygote: Zygote, device: str, options: BenchOptions) -> contextlib.closing[ceilings.Gauge]:
    """A context in which ceilings of the device can be measured."""
    session = CandidateSession(zygote, ceilings.SOURCE, [ceilings.ENTRY], worker_options(device),
                               Limits(address_space=address_space(device)), sandbox=options.sandbox)
    return contextlib.closing(ceilings.Gauge(session, device, options.allowance))
