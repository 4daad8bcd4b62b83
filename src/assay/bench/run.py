"""One benchmark, end to end: truths, contenders, rounds, report."""

from __future__ import annotations

import contextlib
import hashlib
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

from assay import seeds
from assay.bench import ceilings, machine
from assay.bench.contender import Contender, Stopped
from assay.bench.draws import Known, known_draws
from assay.bench.judging import baseline_of, clocks_of, findings_of, times_of, why_left_out
from assay.bench.model import BenchFinding, BenchReport, Concern, SpeedOfLight, Standing, Steadiness, Times
from assay.bench.options import BenchOptions, timing_device
from assay.bench.roofline import impossible, speed_of_light
from assay.bench.rounds import CANDIDATE, Rounds, Seen, buffers_for
from assay.bench.schedule import Schedule
from assay.bench.statistics import spread
from assay.contract import Contract, merge
from assay.contract.domain import declared
from assay.environment import describe as describe_environment
from assay.errors import InputError
from assay.mutants.experiments import resized
from assay.planning import restricted
from assay.run.candidate import CandidateSession, Weights
from assay.run.process import Limits, Zygote
from assay.run.reference import ReferenceFailed, ReferenceSession
from assay.run.references import References
from assay.task import Candidate, Task
from assay.task.facts import Study
from assay.verify import address_space, entries, numerics

Progress = Callable[[str, int, int], None]
TRUTH_SHARE = 0.25
"""Share of the time that truths may take before no more are made."""
ROUNDS_LEAST = 3
FLUSH_BYTES = 192 << 20
"""Bytes written at least before a cold call: long enough for the processor to queue the call meanwhile."""


def bench_task(task: Task, candidate: Candidate, *, standing: Standing = "unverified",
               verdict: dict[str, Any] | None = None, contract: Contract | None = None,
               options: BenchOptions | None = None, zygote: Zygote, references: References | None = None,
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
        gauge: ceilings of this device, kept between calls; None measures them for this call.
        progress: called with (phase, done, total).

    Raises:
        InputError: the task, the contract or an option is at fault, or there is no GPU.
    """
    options = options or BenchOptions()
    device = timing_device(options)
    if task.handle is not None:
        raise InputError("live functions cannot be timed", "the reference", "write the reference to a file")
    contract = merge(Contract.from_data(task.stated), contract or Contract())
    began = time.monotonic()
    with ExitStack() as stack:
        if references is None:
            references = stack.enter_context(References(zygote))
        reference = references.session(task, numerics(contract), device=device)
        try:
            return _bench(task, candidate, standing, verdict or {}, contract, options, device, zygote, reference,
                          gauge, progress or (lambda *_: None), began, stack)
        except ReferenceFailed as error:
            raise InputError(f"the reference failed: {error}", task.shown, "make it run on its own") from None


def _bench(task: Task, candidate: Candidate, standing: Standing, verdict: dict[str, Any], contract: Contract,
           options: BenchOptions, device: str, zygote: Zygote, reference: ReferenceSession,
           gauge: ceilings.Gauge | None, progress: Progress, began: float, stack: ExitStack) -> BenchReport:
    phases = _Phases(progress)
    phases.enter("study")
    study = restricted(reference.study(), contract)
    reference.declare(study, declared(study, contract))
    unknown = set(options.sizes) - {size.name for size in study.integers}
    if unknown:
        raise InputError(f"the task has no size `{min(unknown)}`", "--size",
                         f"one of {', '.join(s.name for s in study.integers) or 'none'}")
    drawn = seeds.draw(options.seed)
    phases.enter("truths")
    known = known_draws(reference, study, options.sizes, _numbers(drawn.value, 2 * options.pairs),
                        TRUTH_SHARE * options.seconds)
    weights = reference.weights(options.sizes)
    cache = machine.cache_bytes(device)
    buffers = buffers_for(known, options.memory, options.buffers)
    schedule = Schedule(drawn.value, buffers)
    tf32 = contract.numerics.matmul == "tf32"
    contenders = _contenders(task, candidate, options, device, zygote, weights, tf32)
    for contender in contenders.values():
        stack.callback(contender.close)
    if gauge is None and options.light:
        gauge = stack.enter_context(open_gauge(zygote, device, options))
    phases.enter("load")
    rounds = Rounds(contenders, known, schedule)
    flush = max(3 * cache, FLUSH_BYTES) if device == "cuda" else 1 << 20
    with ThreadPoolExecutor(len(contenders) + 1) as pool:
        measuring = pool.submit(_measure, gauge, cache)
        preparing = {name: pool.submit(_prepare, c, known, buffers, flush) for name, c in contenders.items()}
        for name, job in preparing.items():
            rounds.seen[name].stopped = job.result()
        measuring.result()
    phases.enter("warm-up")
    rounds.warm_up()
    phases.enter("rounds")
    before, fixed, done = machine.clocks() if device == "cuda" else {}, [], 0
    for number in range(options.rounds):
        spent = time.monotonic() - began
        if rounds.seen[CANDIDATE].stopped is not None or (number >= ROUNDS_LEAST and spent > options.seconds):
            break
        progress("rounds", number, options.rounds)
        rounds.one(number, options.rounds)
        if gauge is not None:
            fixed.append(gauge.fixed())
        done += 1
    after = machine.clocks() if device == "cuda" else {}
    for name, contender in contenders.items():
        if rounds.seen[name].stopped is None:
            try:
                contender.finish()
            except Stopped as stop:
                rounds.seen[name].stopped = stop
    phases.enter("judging")
    found = _judged(rounds.seen, contenders, options)
    light = None
    own = next((t for t in found.times if t.name == CANDIDATE), None)
    if own is not None and gauge is not None and gauge.ceilings is not None:
        light = _light(reference, study, options, gauge.ceilings, own, tf32)
        if impossible(light, own.cold.high):
            found.findings.append(BenchFinding(concern=Concern.IMPOSSIBLE_SPEED, kind="cold", detail={
                "seconds": own.cold.value, "floor_s": light.floor_s}))
    drift = spread(fixed) if fixed else 0.0
    return BenchReport(
        task=task.id, task_sha256=task.digest, candidate_sha256=candidate.digest, standing=standing, verdict=verdict,
        device=_name(device), environment=describe_environment(device, "sm_90"), sizes=options.sizes, tf32=tf32,
        rounds=done, calls=buffers, checked=rounds.seen[CANDIDATE].checked, times=tuple(found.times),
        baselines=tuple(baseline_of(t, own) for t in found.times if own is not None and t.name != CANDIDATE),
        left_out=found.left_out, findings=tuple(found.findings), speed_of_light=light,
        ceilings=gauge.ceilings if gauge is not None else None,
        steadiness=Steadiness(drift=drift, before=before, after=after, steady=drift <= machine.DRIFT),
        seed_commitment=drawn.commitment, seed=drawn.value, seed_nonce=drawn.nonce,
        phases=phases.ended(), seconds=round(time.monotonic() - began, 3))


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


def _judged(seen: dict[str, Seen], contenders: dict[str, Contender], options: BenchOptions) -> _Found:
    found = _Found()
    for name, each in seen.items():
        clocks = clocks_of(each, options.allowance)
        if name == CANDIDATE:
            found.findings = findings_of(each, clocks, contenders[name].facts)
        elif (why := why_left_out(each, contenders[name].compiled)) is not None:
            if seen[CANDIDATE].stopped is None or each.stopped is not None:
                found.left_out[name] = why
            continue
        if len(clocks) == 2:
            found.times.append(times_of(name, clocks, contenders[name].peak))
    return found


def _contenders(task: Task, candidate: Candidate, options: BenchOptions, device: str, zygote: Zygote,
                weights: Weights, tf32: bool) -> dict[str, Contender]:
    """Candidate and baselines, each in a worker of its own."""
    limits, hide = Limits(address_space=address_space(device)), [task.path] if task.path else []

    def session(source: str, names: list[str]) -> CandidateSession:
        return CandidateSession(zygote, source, names, _worker(device), limits, sandbox=options.sandbox, hide=hide,
                                patience=options.patience)

    own = Contender(CANDIDATE, session(candidate.source, entries(task, candidate)), weights, patience=options.patience)
    found = {CANDIDATE: own}
    source = resized(task.source, options.sizes) if options.sizes else task.source
    for name in ("eager", "compiled") if options.compiled else ("eager",):
        found[name] = Contender(name, session(source, [task.entry]), weights, compile=name == "compiled", tf32=tf32,
                                patience=options.patience)
    return found


def _worker(device: str) -> dict[str, Any]:
    """Options of a worker whose candidate is timed."""
    return {"device": device, "target": "sm_90", "mode": "time"}


def open_gauge(zygote: Zygote, device: str, options: BenchOptions) -> Any:
    """A context in which ceilings of the device can be measured."""
    session = CandidateSession(zygote, ceilings.SOURCE, [ceilings.ENTRY], _worker(device),
                               Limits(address_space=address_space(device)), sandbox=options.sandbox)
    return contextlib.closing(ceilings.Gauge(session, device, options.allowance))


def _measure(gauge: ceilings.Gauge | None, cache: int) -> None:
    if gauge is not None:
        gauge.measure(cache)


def _prepare(contender: Contender, known: Known, buffers: int, flush: int) -> Stopped | None:
    """Load a contender and hand it its inputs; why that failed."""
    try:
        contender.prepare(known.truths[0].tree, known.forms, buffers=buffers, flush=flush)
        for number, truth in enumerate(known.truths):
            contender.feed(number, truth)
    except Stopped as stop:
        return stop
    return None


def _light(reference: ReferenceSession, study: Study, options: BenchOptions, limits: Any, own: Times,
           tf32: bool) -> SpeedOfLight:
    cost = reference.cost(options.sizes, 0)
    return speed_of_light(cost, study, limits, own.cold.value, tf32=tf32)


def _name(device: str) -> str:
    if device == "cpu":
        return "cpu"
    import torch

    return str(torch.cuda.get_device_properties(0).name)


def _numbers(seed: int, count: int) -> list[int]:
    """Seeds of draws, all different, that nobody knows who does not know the seed."""
    return [int.from_bytes(hashlib.sha256(f"{seed}/bench/{i}".encode()).digest()[:4], "big") >> 1
            for i in range(count)]
