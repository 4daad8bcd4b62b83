"""One verification, end to end: study, pilot, plan, run, judge."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from assay import pilot, seeds
from assay.contract import Contract, merge
from assay.contract.domain import declared
from assay.environment import DeviceState, free_bytes
from assay.environment import describe as describe_environment
from assay.errors import InputError
from assay.evidence import first
from assay.evidence.keep import keep
from assay.evidence.model import Bundle
from assay.explaining import names_intrinsics, with_modes
from assay.gates import BATTERY, GATES, Context
from assay.illustration import entry_line
from assay.judging import is_blocking, make_report, rejects, visible
from assay.oracle.cache import TruthCache, default_directory
from assay.planning import (
    COMPILED_ELEMENTS,
    INTERPRETED_ELEMENTS,
    chosen_gates,
    make_plan,
    restricted,
)
from assay.probe import memory as memory_planning
from assay.probe import sizes as size_planning
from assay.probe.model import Probe
from assay.probe.record import Observation, Record
from assay.report.model import Binary, CandidateInfo, Report, TaskInfo, Timing
from assay.run import lanes
from assay.run.build_cache import BuildCache
from assay.run.candidate import CandidateSession, ends_its_worker
from assay.run.lanes import Budget, Run
from assay.run.process import Limits, Zygote
from assay.run.reference import ReferenceFailed, ReferenceSession
from assay.run.references import References
from assay.run.resource_numbers import ResourceNumbers
from assay.run.sandbox import Level
from assay.run.static import Scan
from assay.run.threads import at_most
from assay.task import Candidate, Task, load_candidate, load_task
from assay.vocabulary import EffortTier

THREADS_BESIDE_A_GPU = 4
SECONDS = {EffortTier.QUICK: 30.0, EffortTier.STANDARD: 180.0, EffortTier.DEEP: 1800.0}
LIBRARY_BYTES = 4 << 30
MEMORY_STEP = 512 << 20
SHARED_SECONDS = 90.0
"""Least time for a verdict on a GPU, which a neighbour's endless kernel may slow down for a while."""
COMPILING = 3.0
"""Factor on the patience with a call on a GPU, which may compile kernels for sizes that it has not seen."""
BACKWARD = re.compile(r"autograd\.Function|\bregister_autograd\b|\bdef\s+backward\s*\(|\bsetup_context\b")
"""What a candidate that supports training says somewhere in its source."""

Progress = Callable[[str, int, int], None]


@dataclass(frozen=True)
class Options:
    """How to verify.

    Attributes:
        device: `auto`, `cpu` or `cuda`.
        tier: effort.
        only: slugs of the gates to run; None for all.
        seed: seed of the plan; None draws one.
        timeout: seconds for the whole verification; None for the tier's own.
        fail_fast: stop at the first finding that rejects.
        memory: bytes that one probe may take; None for a quarter of what is free.
        target: device that CPU emulation answers as.
        sandbox: `auto`, `strict` or `off`: how candidates are confined; None for the warm parent's own.
        patience: seconds that a call may always take before it counts as hung; the first gets six times that.
        lanes: candidate processes at a time; None for as many as suit the device and its neighbours.
        neighbours: judges beside this one, each with a candidate of its own.
        cache: keep truths on disk, and take them from there, where candidates are confined from them.
        nonce: hexadecimal digits that hide `seed` in the report's commitment; empty for a seed that is no secret.
        store: folder of the store that keeps the verdict, and whose failures of the task are tried first; None
            keeps nothing.
    """

    device: str = "auto"
    tier: EffortTier = EffortTier.STANDARD
    only: tuple[str, ...] | None = None
    seed: int | None = None
    timeout: float | None = None
    fail_fast: bool = False
    memory: int | None = None
    target: str = "sm_90"
    lanes: int | None = None
    neighbours: int = 0
    sandbox: str | None = None
    patience: float = 10.0
    cache: bool = True
    nonce: str = ""
    store: str | None = None


@dataclass
class _Clock:
    began: float = field(default_factory=time.monotonic)
    start: float = 0.0
    state: DeviceState | None = None
    study: float = 0.0
    judging: float = 0.0


def verify_task(task: Task, candidate: Candidate, *, contract: Contract | None = None,
                options: Options | None = None, zygote: Zygote | None = None,
                references: References | None = None, progress: Progress | None = None) -> Report:
    """Decide whether a candidate is the same program as its task's reference.

    Args:
        task: the task.
        candidate: the source under test.
        contract: the obligations; None for the defaults.
        options: how to verify.
        zygote: a warm parent to use; None starts one for this call.
        references: reference workers of that warm parent, kept between calls; None uses one for this call alone.
        progress: called with (phase, done, total).

    Raises:
        InputError: the task, the contract or an option is at fault.
    """
    options = options or Options()
    contract = merge(Contract.from_data(task.stated), contract or Contract())
    if options.only is not None:
        for slug in options.only:
            if slug not in GATES:
                raise InputError(f"no gate `{slug}`", "--only", f"known gates: {', '.join(GATES)}")
    options = replace(options, store=first.usable(options.store))
    clock = _Clock()
    try:
        if zygote is not None:
            return _verify(task, candidate, contract, options, zygote, references, progress or _quiet, clock)
        with Zygote() as own:
            return _verify(task, candidate, contract, options, own, None, progress or _quiet, clock)
    finally:
        if clock.state is not None:
            clock.state.close()


def _quiet(phase: str, done: int, total: int) -> None:
    return None


def resolve_device(wanted: str) -> str:
    """`cuda` when asked for or when there is one, else `cpu`. Raises InputError for cuda without a device."""
    if wanted not in ("auto", "cpu", "cuda"):
        raise InputError(f"unknown device `{wanted}`", "--device", "use auto, cpu or cuda")
    if wanted == "cpu":
        return "cpu"
    import torch

    if torch.cuda.is_available():
        return "cuda"
    if wanted == "cuda":
        raise InputError("no CUDA device is visible to torch", "--device", "use --device cpu, or see `assay doctor`")
    return "cpu"


def _cache(options: Options, level: Level) -> TruthCache | None:
    """Where truths are kept; None where a candidate could read or forge them."""
    directory = default_directory() if options.cache else None
    if directory is None:
        return None
    # another user may not open it; one of the same number sees the judge's home empty
    out_of_reach = level.uid is not None or (level.full and directory.is_relative_to(Path.home()))
    return TruthCache(directory) if out_of_reach else None


def _verify(task: Task, candidate: Candidate, contract: Contract, options: Options, zygote: Zygote,
            references: References | None, progress: Progress, clock: _Clock) -> Report:
    device = resolve_device(options.device)
    clock.state = DeviceState(device)
    progress("start", 0, 0)
    zygote.wait_ready()
    clock.start = time.monotonic() - clock.began
    level = zygote.level(options.sandbox)
    cache = _cache(options, level)
    if references is not None:
        reference = references.session(task, numerics(contract), device=device, cache=cache)
    else:
        reference = ReferenceSession(zygote, task, numerics(contract), device=device, cache=cache)
    limits = Limits(address_space=address_space(device))
    failures: list[Observation] = []
    hide = [*filter(None, [task.path]), *first.hidden(options.store)]
    confinement: dict[str, Any] = {"sandbox": options.sandbox, "hide": hide,
                                   "failures": failures, "kills": [], "patience": options.patience,
                                   "build_cache": BuildCache(candidate.digest, cache)}
    ahead = references.ahead if references is not None else None
    stubs = references.stubs if references is not None and device == "cuda" else None
    if stubs is not None:
        stubs.share(cache)
    sessions = [
        CandidateSession(zygote, candidate.source, entries(task, candidate),
                         {"device": device, "target": options.target}, limits, ahead=ahead, stubs=stubs,
                         **confinement)
        for _ in range(options.lanes or lanes.count(device, options.neighbours, device_bytes(device)))
    ]
    compilers: dict[str, CandidateSession] = {}
    # extensions of CUDA are refused elsewhere without a GPU, and compiled there
    refused: list[Observation] = []
    sanitizers: list[CandidateSession] = []

    def compiler(target: str) -> CandidateSession:
        if target not in compilers:
            compilers[target] = CandidateSession(zygote, candidate.source, entries(task, candidate),
                                                 {"device": "cpu", "mode": "compile", "target": target}, limits,
                                                 **{**confinement, "failures": refused})
        return compilers[target]

    def sanitizer() -> CandidateSession:
        # what happens to it happens to no other session
        if not sanitizers:
            sanitizers.append(CandidateSession(zygote, candidate.source, entries(task, candidate),
                                               {"device": device, "mode": "sanitize"}, limits,
                                               **{**confinement, "failures": []}))
        return sanitizers[0]

    run = Run(reference, sessions, Budget(0.0), 0, compilers=compiler,
              sanitizer=sanitizer if device == "cuda" else None,
              numbers=ResourceNumbers(candidate.digest, task.digest, candidate.languages, cache))
    scan = Scan(candidate.source)
    try:
        # on a GPU outputs are large, and no worker computes on the processor meanwhile
        with at_most(1 if device == "cpu" else THREADS_BESIDE_A_GPU):
            report = _with_run(task, candidate, contract, options, device, run, progress, clock)
        about = report.candidate.model_copy(update={"hints": scan.hints()})
        return report.model_copy(update={"candidate": about})
    except BaseException:
        if references is not None:
            references.drop(reference)
        raise
    finally:
        scan.close()
        used = [*sessions, *compilers.values(), *sanitizers]
        if references is None:
            reference.close()
            for session in used:
                session.close()
        else:
            references.expect([session.wanted for session in sessions])
            references.leave(used)


def _with_run(task: Task, candidate: Candidate, contract: Contract, options: Options, device: str, run: Run,
              progress: Progress, clock: _Clock) -> Report:
    reference, sessions = run.reference, run.sessions
    progress("study", 0, 0)
    began = time.monotonic()
    try:
        found = reference.study()
        study = restricted(found, contract)
        clauses = declared(found, contract)
        reference.declare(study, clauses)
    except ReferenceFailed as error:
        raise InputError(f"the reference could not be studied: {error}", task.shown, "make it run on its own") from None
    clock.study = time.monotonic() - began
    if study.raises is not None:
        raise InputError(f"the reference raises on its own inputs: {study.raises}", task.shown,
                         "make forward run on what get_inputs returns")
    drawn = seeds.draw(options.seed) if options.seed is None else seeds.Seed(options.seed, options.nonce)
    seed = drawn.value
    progress(f"seed {drawn.commitment}", 0, 0)
    seconds = options.timeout if options.timeout is not None else max(
        SECONDS[options.tier], SHARED_SECONDS if device == "cuda" else 0.0)
    run.seed, run.random = seed, study.random
    run.budget = Budget(time.monotonic() + seconds, floor=options.patience * (COMPILING if device == "cuda" else 1.0),
                        firm=options.timeout is not None)
    ctx = Context(
        study=study, contract=contract, tier=options.tier, seed=seed, device=device, language=candidate.language,
        languages=tuple(candidate.languages), target=_target(device, options),
        device_bytes=device_bytes(device),
        defines_backward=bool(BACKWARD.search(candidate.source)),
        blocks=size_planning.block_constants(candidate.source), sizes=dict(study.sizes), small=dict(study.small),
        element_limit=INTERPRETED_ELEMENTS if device == "cpu" else COMPILED_ELEMENTS,
        memory=max(0, address_space(device) - LIBRARY_BYTES),
    )
    memory = options.memory if options.memory is not None else free_bytes() // 4
    if device == "cuda":
        run.sessions = sessions[: memory_planning.side_by_side(study, ctx.device_bytes)]
    run.fits = lambda probe: memory_planning.fits(study, probe, memory)
    progress("pilot", 0, 0)
    ctx, pilots = pilot.learn(ctx, run, sessions[0], options.patience)
    if run.numbers is not None:
        for tried in pilots:
            run.numbers.learn(tried, ctx.target)
    gates = chosen_gates(BATTERY, contract, options.only)
    began = time.monotonic()
    plan = [p for p in make_plan(gates, ctx) if p.id not in {r.probe.id for r in pilots}]
    clock.judging = time.monotonic() - began
    done = len(pilots)
    total = done + len(plan)

    def on_record(record: Record) -> None:
        nonlocal done
        done += 1
        progress("probes", done, total)

    run.approximate = names_intrinsics(candidate.source)

    def explained(some: Sequence[Record]) -> list[Record]:
        return with_modes(some, run.with_modes, lambda: time.monotonic() < run.budget.deadline)

    def decisive(some: Sequence[Record]) -> bool:
        if options.fail_fast and contract.policy.allow_tiers:
            some = explained(some)
        return options.fail_fast and any(
            rejects(found, ctx, True) for gate in gates if is_blocking(gate, ctx)
            for found in gate.judge(ctx, visible(gate, some)).findings)

    run.on_record = on_record
    failed = first.earlier(options.store, task, ctx)
    # a given seed stands for exactly its own plan, in whatever order
    given = options.seed is not None and not options.nonce
    trials = first.trials([] if given else failed, run, [g.slug for g in gates],
                          lambda trial: decisive(trial.records))
    if trials and decisive(trials[-1].records):
        run.budget.deadline = 0.0
    if options.fail_fast:
        run.stop = lambda record: decisive([record])
    own = [r for r in pilots if r.probe.gate in {g.slug for g in gates}]
    records = explained([*own, *_in_order(plan, run, failed)])
    for session in sessions:
        session.end()
    report = _report(task, candidate, ctx, gates, records, sessions, options, run, clock, drawn, trials)
    if options.store is None:
        return report
    return keep(options.store, report, task, candidate, ctx, clauses, records, trials)


def _in_order(plan: Sequence[Probe], run: Run, failed: Sequence[Bundle]) -> list[Record]:
    """Run a plan in an order that does not give it away, what failed before first; the records as planned."""
    # a process is not used again after inference mode: last, so that none has to start anew
    mixed = sorted(seeds.shuffled(plan, run.seed), key=ends_its_worker)
    order = first.foremost(mixed, failed)
    by_id = {record.probe.id: record for record in run.all(order)}
    return [by_id[probe.id] for probe in plan if probe.id in by_id]


def _report(task: Task, candidate: Candidate, ctx: Context, gates: Sequence[Any], records: list[Record],
            sessions: Sequence[CandidateSession], options: Options, run: Run, clock: _Clock,
            drawn: seeds.Seed, trials: Sequence[first.Trial]) -> Report:
    kernels = sorted({str(launch.get("kernel")) for r in records
                      for launch in r.observation.facts.get("launches", [])})
    weights = next((r.observation.weights for r in records if r.observation.weights != "none"), None)
    environment = describe_environment(ctx.device, options.target)
    environment["sandbox"] = sessions[0].level.to_json()
    scope = "cpu-emulation" if ctx.device == "cpu" else str(environment["gpu"])
    began = time.monotonic()
    report = make_report(
        gates, ctx, records,
        task=TaskInfo(id=task.id, format=task.format, sha256=task.digest, weak=tuple(ctx.study.weak)),
        candidate=CandidateInfo(language=candidate.language, entry=sessions[0].entry or candidate.entry or "",
                                line=entry_line(candidate.source, sessions[0].entry or candidate.entry or ""),
                                sha256=candidate.digest, kernels=tuple(kernels[:40]), weights=weights,
                                binaries=binaries(records)),
        scope=scope, environment=environment, source=candidate.source,
        trials=[(t.bundle.gate, t.records) for t in trials],
        seed_commitment=drawn.commitment, seed_nonce=drawn.nonce,
        timing=Timing(total_s=round(time.monotonic() - clock.began, 3), start_s=round(clock.start, 3),
                      study_s=round(clock.study, 3), oracle_s=round(run.oracle_seconds, 3),
                      candidate_s=round(run.candidate_seconds, 3),
                      load_s=round(sum(s.load_seconds for s in sessions), 3),
                      context_s=_spent(records, "context"), compile_s=_spent(records, "compile", "stubs")),
    )
    judging = clock.judging + time.monotonic() - began
    timing = report.timing.model_copy(update={"judging_s": round(judging, 3),
                                              "total_s": round(time.monotonic() - clock.began, 3),
                                              "device_state": clock.state.read() if clock.state else {}})
    return report.model_copy(update={"timing": timing})


def _spent(records: Sequence[Record], *what: str) -> float:
    """Seconds that the candidate's processes say went into some of what they did."""
    spent = (r.observation.facts.get("spent") or {} for r in records)
    return round(sum(int(times.get(name, 0)) for times in spent for name in what) / 1e6, 3)


def binaries(records: Sequence[Record]) -> tuple[Binary, ...]:
    """Every kernel that a compiling probe made, once for each target and content."""
    compiled = [item for r in records if r.probe.kind == "compile" for item in r.observation.facts.get("compiled", [])]
    # the worker's own words, so a hash has to be one
    found = {(str(c.get("kernel"))[:200], str(c.get("target"))[:40], str(c.get("sha256"))) for c in compiled
             if re.fullmatch("[0-9a-f]{64}", str(c.get("sha256")))}
    return tuple(Binary(kernel=kernel, target=target, sha256=digest) for kernel, target, digest in sorted(found)[:100])


def _target(device: str, options: Options) -> str:
    """The GPU that kernels are compiled for: the one at hand, or the emulated one."""
    if device != "cuda":
        return options.target
    import torch

    from assay.run.emulation import TARGETS

    major, minor = torch.cuda.get_device_capability()
    return f"sm_{major}{minor}" if f"sm_{major}{minor}" in TARGETS else options.target


def device_bytes(device: str) -> int:
    """Memory of the GPU at hand, bytes; 0 on a CPU."""
    if device != "cuda":
        return 0
    import torch

    return int(torch.cuda.get_device_properties(0).total_memory)


def numerics(contract: Contract) -> dict[str, Any]:
    """The contract's numerics as options of the oracle."""
    chosen: dict[str, Any] = {"matmul": contract.numerics.matmul, "fast_math": contract.numerics.fast_math}
    if contract.numerics.accumulate != "auto":
        chosen["accumulate"] = contract.numerics.accumulate
    if contract.numerics.operands == "exact":
        chosen["operands"] = None
    return chosen


def entries(task: Task, candidate: Candidate) -> list[str]:
    """Names that the candidate's entry point may have, in the order tried."""
    names = [candidate.entry] if candidate.entry else []
    return list(dict.fromkeys([*names, *task.candidate_entries]))


def address_space(device: str) -> int:
    """Bytes of address space of a candidate worker: a quarter of the free memory beside its libraries; 0 on a GPU.

    In steps, so that what other processes do changes little: a worker started ahead serves where it would be the same.
    """
    share = free_bytes() // 4
    return 0 if device == "cuda" else LIBRARY_BYTES + max(share - share % MEMORY_STEP, min(share, MEMORY_STEP))


def load_pair(reference: str | Path | Task, candidate: str | Path | Candidate) -> tuple[Task, Candidate]:
    """Task and candidate from paths, or as they are. Raises InputError."""
    task = reference if isinstance(reference, Task) else load_task(reference)
    found = candidate if isinstance(candidate, Candidate) else load_candidate(
        candidate, entries=task.candidate_entries, strict=False)
    return task, found
