"""One benchmark, end to end: truths, contenders, rounds, report."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

from assay import seeds
from assay.bench import ceilings, machine
from assay.bench.cache import TaskCache
from assay.bench.contender import Contender
from assay.bench.judging import baseline_of, clocks_of, findings_of, times_of, why_left_out
from assay.bench.learned import Learned, learned
from assay.bench.making import Maker, open_gauge
from assay.bench.model import BenchFinding, BenchReport, Concern, Standing, Steadiness, Times
from assay.bench.options import BenchOptions, timing_device
from assay.bench.roofline import impossible, speed_of_light
from assay.bench.rounds import CANDIDATE, Rounds, buffers_for
from assay.bench.schedule import Schedule
from assay.bench.statistics import drift
from assay.contract import Contract, merge
from assay.environment import describe as describe_environment
from assay.errors import InputError
from assay.run.process import Zygote
from assay.run.references import References
from assay.task import Candidate, Task

Progress = Callable[[str, int, int], None]
ROUNDS_LEAST = 3


def bench_task(task: Task, candidate: Candidate, *, standing: Standing = "unverified",
               verdict: dict[str, Any] | None = None, contract: Contract | None = None,
               options: BenchOptions | None = None, zygote: Zygote, references: References | None = None,
               tasks: TaskCache[Learned] | None = None, baselines: TaskCache[dict[str, Contender]] | None = None,
               gauge: ceilings.Gauge | None = None, progress: Progress | None = None) -> BenchReport:
    """Time a candidate against its reference, eager and compiled.

    Args:
        task: the task.
        candidate: the source under test.
        standing: what is known of its rightness.
        verdict: what that rests on.
        contract: the obligations; they decide the domain of the inputs, the tolerances and the baselines' mode.
        options: how to time.
        zygote: a warm parent.
        references: reference workers kept between calls.
        tasks: keeps what was learned of a task between calls that give the same `inputs_seed`.
        baselines: keeps baselines loaded between such calls.
        gauge: ceilings of this device, kept between calls; None measures them for this call.
        progress: called with (phase, done, total).

    Raises:
        InputError: the task, the contract or an option is at fault, or there is no GPU.
    """
    with prepare(task, candidate, standing=standing, verdict=verdict, contract=contract, options=options, zygote=zygote,
                 references=references, tasks=tasks, baselines=baselines, gauge=gauge, progress=progress) as ready:
        return ready.run()


def prepare(task: Task, candidate: Candidate, *, standing: Standing = "unverified",
            verdict: dict[str, Any] | None = None, contract: Contract | None = None,
            options: BenchOptions | None = None, zygote: Zygote, references: References | None = None,
            tasks: TaskCache[Learned] | None = None, baselines: TaskCache[dict[str, Contender]] | None = None,
            gauge: ceilings.Gauge | None = None, progress: Progress | None = None) -> Prepared:
    """Everything of a benchmark but its rounds; arguments and errors as `bench_task`.

    Several may be prepared at a time. Only one may run at a time, and nothing else beside it.
    """
    options, progress = options or BenchOptions(), progress or (lambda *_: None)
    device, drawn = timing_device(options), seeds.draw(options.seed)
    if task.handle is not None:
        raise InputError("live functions cannot be timed", "the reference", "write the reference to a file")
    contract = merge(Contract.from_data(task.stated), contract or Contract())
    phases = _Phases(progress)
    with ExitStack() as stack:
        if references is None:
            references = stack.enter_context(References(zygote))
        facts = learned(task, contract, options, device, references,
                        drawn.value if options.inputs_seed is None else options.inputs_seed, tasks, phases.enter)
        buffers = buffers_for(facts.known, options.memory, options.buffers)
        tf32 = contract.numerics.matmul == "tf32"
        maker = Maker(task, candidate, options, device, zygote, facts, buffers, tf32)
        own, others = maker.own(), maker.baselines()
        stack.callback(own.close)
        if gauge is None and options.light:
            gauge = stack.enter_context(open_gauge(zygote, device, options))
        phases.enter("load")
        if baselines is None:
            for contender in others.values():
                stack.callback(contender.close)
        with ThreadPoolExecutor(3) as pool:
            cache = machine.cache_bytes(device)
            jobs: list[Future[Any]] = [pool.submit(_measure, gauge, cache), pool.submit(maker.load, {CANDIDATE: own})]
            if baselines is None:
                jobs.append(pool.submit(maker.load, others))
            else:
                others = baselines.get(maker.key, lambda: maker.load(others))
            for job in jobs:
                job.result()
        contenders = {CANDIDATE: own, **others}
        rounds = Rounds(contenders, facts.known, Schedule(drawn.value, buffers))
        base = BenchReport(
            task=task.id, task_sha256=task.digest, candidate_sha256=candidate.digest, standing=standing,
            verdict=verdict or {}, device=_name(device), environment=describe_environment(device, "sm_90"),
            sizes=options.sizes, tf32=tf32, rounds=0, calls=buffers, seed_commitment=drawn.commitment,
            seed=drawn.value, seed_nonce=drawn.nonce)
        phases.ended()
        return Prepared(base, options, device, facts, contenders, rounds, gauge, phases, progress, stack.pop_all())



@dataclass
class Prepared:
    """A benchmark whose contenders are loaded and warm. Use as a context manager, or call `close`."""

    _base: BenchReport
    _options: BenchOptions
    _device: str
    _learned: Learned
    _contenders: dict[str, Contender]
    _rounds: Rounds
    _gauge: ceilings.Gauge | None
    _phases: _Phases
    _progress: Progress
    _stack: ExitStack

    def run(self) -> BenchReport:
        """Run the rounds, and judge them. Raises nothing for what the candidate does."""
        options, rounds = self._options, self._rounds
        self._phases.enter("rounds")
        began = time.monotonic()
        before, fixed, done = self._clocks(), [], 0
        for number in range(options.rounds):
            late = number >= ROUNDS_LEAST and time.monotonic() - began > options.seconds
            if late or not rounds.sound(CANDIDATE):
                break
            self._progress("rounds", number, options.rounds)
            rounds.one(number, options.rounds)
            if self._gauge is not None:
                fixed.append(self._gauge.fixed())
            done += 1
        after = self._clocks()
        rounds.finish()
        self._phases.enter("judging")
        found = self._judged()
        moved = drift(fixed)
        data = {
            "rounds": done, "checked": rounds.seen[CANDIDATE].checked, "times": tuple(found.times),
            "baselines": found.baselines(), "left_out": found.left_out, "findings": tuple(found.findings),
            "speed_of_light": found.light, "ceilings": self._gauge.ceilings if self._gauge is not None else None,
            "steadiness": Steadiness(drift=moved, before=before, after=after, steady=moved <= machine.DRIFT),
        }
        phases = self._phases.ended()
        return self._base.model_copy(update={**data, "phases": phases, "seconds": round(sum(phases.values()), 3)})

    def _clocks(self) -> dict[str, str]:
        return machine.clocks() if self._device == "cuda" else {}

    def _judged(self) -> _Found:
        """Times, and what is wrong with them."""
        found, seen = _Found(), self._rounds.seen
        trusted = clocks_of(seen["eager"], self._options.allowance)
        for name, each in seen.items():
            clocks = clocks_of(each, self._options.allowance, trusted if name == CANDIDATE else None)
            if name == CANDIDATE:
                found.findings = findings_of(each, clocks, self._contenders[name].facts)
            elif (why := why_left_out(each, self._contenders[name].compiled)) is not None:
                if seen[CANDIDATE].stopped is None or each.stopped is not None:
                    found.left_out[name] = why
                continue
            if len(clocks) == 2:
                found.times.append(times_of(name, clocks, self._contenders[name].peak,
                                            trusted=name != CANDIDATE))
        own, cost = found.own(), self._learned.cost
        if own is not None and cost is not None and self._gauge is not None and self._gauge.ceilings is not None:
            found.light = speed_of_light(cost, self._learned.study, self._gauge.ceilings, own.cold.value,
                                         tf32=self._base.tf32)
            if impossible(found.light, own.cold.high):
                found.findings.append(BenchFinding(concern=Concern.IMPOSSIBLE_SPEED, kind="cold", detail={
                    "seconds": own.cold.value, "floor_s": found.light.floor_s}))
        return found

    def close(self) -> None:
        """End the contenders."""
        self._stack.close()

    def __enter__(self) -> Prepared:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class _Phases:
    """Seconds of each part of the work."""

    def __init__(self, progress: Progress) -> None:
        self._progress, self._began, self._name = progress, time.monotonic(), ""
        self._spent: dict[str, float] = {}

    def enter(self, name: str) -> None:
        self.ended()
        self._name = name
        self._progress(name, 0, 0)

    def ended(self) -> dict[str, float]:
        now = time.monotonic()
        if self._name:
            self._spent[self._name] = round(now - self._began, 3)
        self._began, self._name = now, ""
        return self._spent


@dataclass
class _Found:
    times: list[Times] = field(default_factory=list)
    findings: list[BenchFinding] = field(default_factory=list)
    left_out: dict[str, str] = field(default_factory=dict)
    light: Any = None

    def own(self) -> Times | None:
        return next((t for t in self.times if t.name == CANDIDATE), None)

    def baselines(self) -> tuple[Any, ...]:
        own = self.own()
        return tuple(baseline_of(t, own) for t in self.times if own is not None and t is not own)


def _measure(gauge: ceilings.Gauge | None, cache: int) -> None:
    if gauge is not None:
        gauge.measure(cache)


def _name(device: str) -> str:
    if device == "cpu":
        return "cpu"
    import torch

    return str(torch.cuda.get_device_properties(0).name)


