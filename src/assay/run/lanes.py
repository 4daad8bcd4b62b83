"""Running a plan: truths from one process, candidates in several lanes, every probe ends as a record."""

from __future__ import annotations

import hashlib
import math
import os
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Any

from assay.errors import InputError
from assay.probe.model import Probe
from assay.probe.record import FAULTS, Observation, Record, Truth
from assay.run.backlog import Backlog
from assay.run.candidate import CandidateSession, Weights, ends_its_worker
from assay.run.reference import ReferenceFailed, ReferenceSession
from assay.run.resource_numbers import ResourceNumbers

LANES = 2
LANES_ON_A_GPU = 4
CONTEXT_BYTES = 640 << 20
"""GPU memory that a process with a context takes, at the least."""
CONTEXTS_SHARE = 8
"""Processes of candidates may take one part in so many of a GPU's memory for their contexts."""
HANGS_PER_GATE = 2
HANGS_IN_ALL = 5
DEATHS_PER_GATE = 6
DEATHS_IN_ALL = 24
DEATH_ON_A_GPU = 3
"""Deaths that one counts for where each costs a context and kernels compiled anew."""
COMPILE_SECONDS = 180.0
SANITIZE_SECONDS = 300.0


@dataclass
class Budget:
    """How long things may take.

    Attributes:
        deadline: monotonic time at which no further probe starts.
        call_seconds: expected seconds of one candidate call.
        floor: smallest timeout of a probe, seconds.
        firm: whether the deadline also ends what has started; a probe that it ends decides nothing.
    """

    deadline: float
    call_seconds: float = 0.0
    floor: float = 10.0
    firm: bool = False

    def timeout(self, probe: Probe) -> float:
        """Seconds that one probe may take before it counts as hung."""
        return max(self.floor, 40.0 * self.call_seconds * len(probe.calls))

    def left(self) -> float:
        """Seconds that a probe which starts now may take at most."""
        return max(self.floor, self.deadline - time.monotonic()) if self.firm else math.inf


@dataclass
class _Job:
    position: int
    probe: Probe
    truths: tuple[Truth, ...] = ()
    weights: Weights | None = None
    failure: str = ""


@dataclass
class Run:
    """What running a plan needs and leaves behind."""

    reference: ReferenceSession
    sessions: Sequence[CandidateSession]
    budget: Budget
    seed: int
    random: bool = False
    approximate: bool = False
    """Whether approximate intrinsics count as a coarser arithmetic: the candidate's source names some."""
    compilers: Callable[[str], CandidateSession] | None = None
    numbers: ResourceNumbers | None = None
    """What is known of the candidate's kernels on some target."""
    sanitizer: Callable[[], CandidateSession] | None = None
    """Gives the session whose probes run under compute-sanitizer."""
    fits: Callable[[Probe], bool] | None = None
    stop: Callable[[Record], bool] | None = None
    on_record: Callable[[Record], None] | None = None
    truth_cache: dict[str, Truth] = field(default_factory=dict)
    hangs: dict[str, int] = field(default_factory=dict)
    deaths: dict[str, int] = field(default_factory=dict)
    compiled: dict[str, set[int]] = field(default_factory=dict)
    """Which sessions, by position, have compiled for what."""
    compile_lock: threading.Lock = field(default_factory=threading.Lock)
    oracle_seconds: float = 0.0
    candidate_seconds: float = 0.0

    def prepare(self, probe: Probe) -> tuple[tuple[Truth, ...], Weights]:
        """Truths of a probe's draws, and the weights at its sizes. Raises ReferenceFailed or InputError."""
        if self.fits is not None and not self.fits(probe):
            text = "estimated to need more than the memory budget"
            return (Truth(status="memory", text=text),), Weights("", ((), {}), {}, (), 0, None)
        began = time.monotonic()
        try:
            truths = tuple(self._truth(probe, i) for i in range(len(probe.draws)))
            if not all(t.ok for t in truths):
                return truths, Weights("", ((), {}), {}, (), 0, None)
            weights = self.reference.weights(probe.sizes, probe.parameters)
            seeds = {d.parameters for d in probe.draws if d.parameters is not None} - {probe.parameters}
            if seeds:
                weights = replace(weights, others={s: self.reference.weights(probe.sizes, s) for s in sorted(seeds)})
            return truths, weights
        finally:
            self.oracle_seconds += time.monotonic() - began

    def with_modes(self, record: Record, settled: str | None) -> Record:
        """An answered record with what coarser arithmetic would leave in its truths; as it is where none is had.

        Of a mode that is settled only how much it grants.
        """
        used = {call.draw for call in record.probe.calls[: len(record.observation.calls)]}
        try:
            truths = tuple(
                self._truth(record.probe, i, modes=settled or "all") if i in used else truth
                for i, truth in enumerate(record.truths))
        except (ReferenceFailed, InputError):
            return record
        return Record(record.probe, truths, record.observation, settled) if all(t.ok for t in truths) else record

    def _truth(self, probe: Probe, index: int, modes: str = "") -> Truth:
        draw = probe.draws[index]
        call_seed = _call_seed(self.seed, "reference", draw.seed)
        parameters = probe.parameters if draw.parameters is None else draw.parameters
        key = f"{sorted(probe.sizes.items())}/{probe.dtype}/{draw.model_dump_json()}/{parameters}/{_cotangent(probe)}"
        backward = _backward(probe)
        key += f"/{sorted(backward.items())}"
        modes = modes or ("few" if "modes:1" in probe.conditions else "")
        key += f"/modes:{modes}"
        buffers = next((c.removeprefix("state:") for c in probe.conditions if c.startswith("state:")), "")
        key += f"/{buffers}"
        if key not in self.truth_cache:
            truth = self.reference.truth(probe.sizes, probe.dtype, draw, call_seed,
                                         parameters=parameters, grad=_cotangent(probe), modes=modes,
                                         approximate=bool(modes) and self.approximate,
                                         buffers=tuple(buffers.split(",")) if buffers else (),
                                         backward=backward)
            if len(self.truth_cache) > 8:
                self.truth_cache.pop(next(iter(self.truth_cache)))
            self.truth_cache[key] = truth
        return self.truth_cache[key]

    def call_seeds(self, probe: Probe) -> list[int]:
        """RNG seeds of a probe's calls: the reference's own where it draws numbers, else all different."""
        if self.random:
            return [_call_seed(self.seed, "reference", probe.draws[c.draw].seed) for c in probe.calls]
        return [_call_seed(self.seed, probe.id, i) for i in range(len(probe.calls))]

    def one(self, probe: Probe, session: CandidateSession, timeout: float | None = None) -> Record:
        """Run one probe on one session."""
        try:
            truths, weights = self.prepare(probe)
        except (ReferenceFailed, InputError) as error:
            return _unanswered(probe, str(error))
        if session in self.sessions:
            self.compiled.setdefault(_compiled_for(probe), set()).add(self.sessions.index(session))
        return self._answer(probe, truths, weights, session, timeout)

    def _answer(self, probe: Probe, truths: tuple[Truth, ...], weights: Weights, session: CandidateSession,
                timeout: float | None = None) -> Record:
        if not all(t.ok for t in truths):
            return Record(probe, truths, Observation(probe=probe.id, status="not_run", text="no truth"))
        target = next((c.removeprefix("compile:") for c in probe.conditions if c.startswith("compile:")), None)
        if target is not None:
            return self._compile(probe, truths, weights, target)
        if any(c.startswith("sanitize:") for c in probe.conditions):
            return self._sanitize(probe, truths, weights)
        began = time.monotonic()
        observation = session.run(probe, truths, weights, self.call_seeds(probe),
                                  timeout or self.budget.timeout(probe), self.budget.left())
        self.candidate_seconds += time.monotonic() - began
        return Record(probe, truths, observation)

    def _compile(self, probe: Probe, truths: tuple[Truth, ...], weights: Weights, target: str) -> Record:
        """Compile what the candidate launches for a target, where that is not known yet; nothing runs."""
        if self.numbers is not None and (known := self.numbers.find(probe, target)) is not None:
            return Record(probe, truths, known)
        if self.compilers is None:
            return Record(probe, truths, Observation(probe=probe.id, status="toolchain", text="no compiler here"))
        with self.compile_lock:
            session = self.compilers(target)
            observation = session.run(probe, truths, weights, self.call_seeds(probe), COMPILE_SECONDS)
        if self.numbers is not None:
            self.numbers.keep(probe, target, observation)
        return Record(probe, truths, observation)

    def _sanitize(self, probe: Probe, truths: tuple[Truth, ...], weights: Weights) -> Record:
        """Run a probe under compute-sanitizer; an end of that process says nothing of the candidate."""
        if self.sanitizer is None:
            return Record(probe, truths, Observation(probe=probe.id, status="toolchain", text="no GPU here"))
        with self.compile_lock:
            seen = self.sanitizer().run(probe, truths, weights, self.call_seeds(probe), SANITIZE_SECONDS,
                                        self.budget.left())
        if seen.status not in ("ok", "not_run"):
            seen = Observation(probe=probe.id, status="toolchain", text=f"{seen.status} {seen.text}"[:300])
        return Record(probe, truths, seen)

    @property
    def _on_gpu(self) -> bool:
        return any(session.wanted.options.get("device") == "cuda" for session in self.sessions)

    def side_by_side(self, probes: Sequence[Probe], timeouts: Sequence[float]) -> list[Record]:
        """Run a few probes at once, each on a session of its own, and have the other sessions load the candidate.

        Args:
            probes: at most one for each session.
            timeouts: seconds for each.
        """
        prepared = []
        for probe in probes:
            try:
                prepared.append(self.prepare(probe))
            except (ReferenceFailed, InputError) as error:
                prepared.append(((Truth(status="failed", text=str(error)),), Weights("", ((), {}), {}, (), 0, None)))
        with ThreadPoolExecutor(len(self.sessions)) as pool:
            for session in self.sessions[len(probes):]:
                pool.submit(session.load, self.budget.left())
            for lane, probe in enumerate(probes):
                self.compiled.setdefault(_compiled_for(probe), set()).add(lane)
            answers = [pool.submit(self._answer, probe, *ready, session, timeout) for probe, ready, session, timeout
                       in zip(probes, prepared, self.sessions, timeouts, strict=False)]
            return [answer.result() for answer in answers]

    def all(self, plan: Sequence[Probe]) -> list[Record]:
        """Run every probe of a plan; one record each, in the plan's order."""
        records: list[Record | None] = [None] * len(plan)
        # on a GPU, what a process has compiled decides what it is given
        ready: Backlog[_Job] = Backlog(self._on_gpu and len(self.sessions) > 1, self.compiled)
        stopped = threading.Event()
        lock = threading.Lock()
        broken: list[BaseException] = []

        def produce() -> None:
            try:
                for position, probe in enumerate(plan):
                    job = _Job(position, probe)
                    if not (stopped.is_set() or time.monotonic() > self.budget.deadline):
                        try:
                            job.truths, job.weights = self.prepare(probe)
                        except (ReferenceFailed, InputError) as error:
                            job.failure = str(error)
                    ready.put(job, _compiled_for(probe), _held(job.truths), ends_its_worker(probe))
            except BaseException as error:
                broken.append(error)
            finally:
                ready.close()

        def consume(lane: int, session: CandidateSession) -> None:
            while (job := ready.take(lane)) is not None:
                try:
                    record = self._one_job(job, session, stopped, lock)
                except BaseException as error:
                    broken.append(error)
                    stopped.set()
                    record = _unanswered(job.probe, f"{type(error).__name__}: {error}")
                records[job.position] = record
                with lock:
                    if self.on_record is not None:
                        self.on_record(record)
                    if self.stop is not None and self.stop(record):
                        stopped.set()

        threads = [threading.Thread(target=produce, daemon=True)]
        threads += [threading.Thread(target=consume, args=lane, daemon=True)
                    for lane in enumerate(self.sessions)]
        for thread in threads:
            thread.start()
        try:
            for thread in threads:
                while thread.is_alive():
                    thread.join(0.2)
        except BaseException:
            # an interrupt: nothing new starts, and what runs loses its process, so that the threads end
            stopped.set()
            for session in self.sessions:
                session.abort()
            for thread in threads[1:]:
                thread.join(5.0)
            raise
        if broken:
            raise broken[0]
        return [r for r in records if r is not None]

    def _one_job(self, job: _Job, session: CandidateSession, stopped: threading.Event,
                 lock: threading.Lock) -> Record:
        probe = job.probe
        if job.failure:
            return _unanswered(probe, job.failure)
        if stopped.is_set() or time.monotonic() > self.budget.deadline or job.weights is None:
            return Record(probe, job.truths, Observation(probe=probe.id, status="not_run", text="budget spent"))
        with lock:
            hung = self.hangs.get(probe.gate, 0) >= HANGS_PER_GATE or sum(self.hangs.values()) >= HANGS_IN_ALL
        if hung:
            return Record(probe, job.truths, Observation(probe=probe.id, status="not_run", text="it hung before"))
        with lock:
            died = self.deaths.get(probe.gate, 0) >= DEATHS_PER_GATE or sum(self.deaths.values()) >= DEATHS_IN_ALL
        if died:
            return Record(probe, job.truths, Observation(probe=probe.id, status="not_run", text="it died before"))
        lost = session.lost_devices
        record = self._answer(probe, job.truths, job.weights, session)
        if record.observation.status in FAULTS - {"raised", "timed_out"} or (
                session.lost_devices > lost and record.observation.status == "raised"):
            # each costs a new process
            with lock:
                self.deaths[probe.gate] = self.deaths.get(probe.gate, 0) + (DEATH_ON_A_GPU if self._on_gpu else 1)
        if record.observation.status == "timed_out":
            with lock:
                self.hangs[probe.gate] = self.hangs.get(probe.gate, 0) + 1
        return record


def count(device: str, neighbours: int, memory: int) -> int:
    """Processes of one candidate at a time: one beside neighbours, else two, and up to four on a GPU.

    Each of them compiles the kernels that it launches and has a context of its own, which the driver makes one after
    another for the whole machine: judges that fill it gain nothing from a second process each.

    Args:
        device: `cpu` or `cuda`.
        neighbours: judges beside this one, with candidates of their own.
        memory: of the GPU, bytes.
    """
    if neighbours:
        return 1
    if device == "cpu":
        return LANES
    processors = len(os.sched_getaffinity(0))
    return max(LANES, min(LANES_ON_A_GPU, processors // 2, memory // (CONTEXTS_SHARE * CONTEXT_BYTES)))


def _compiled_for(probe: Probe) -> str:
    """The same for probes whose kernels are likely to be compiled alike."""
    layouts = sorted({draw.layouts for draw in probe.draws})
    chosen = [c for c in probe.conditions if c.startswith("config:")]
    return f"{sorted(probe.sizes.items())}/{probe.dtype}/{layouts}/{chosen}"


def _held(truths: Sequence[Truth]) -> int:
    """Bytes of inputs and expected outputs, about."""
    return sum(4 * tensor.nbytes for truth in truths for tensor in (
        *truth.inputs, *(leaf.native for leaf in truth.leaves if leaf.native is not None)))


def _cotangent(probe: Probe) -> str:
    """Kind of cotangent that a probe's backward starts from; empty when it has none."""
    if not probe.grad:
        return ""
    return next((c.removeprefix("cotangent:") for c in probe.conditions if c.startswith("cotangent:")), "normal")


def _backward(probe: Probe) -> dict[str, Any]:
    """What else of a probe shapes the reference's gradients."""
    conditions = dict(c.split(":", 1) for c in probe.conditions if ":" in c)
    found: dict[str, Any] = {}
    if probe.grad and "backward" in conditions:
        found["steps"] = conditions["backward"]
    if "tie" in conditions:
        found["tie"] = [int(i) for i in conditions["tie"].split(",")]
    if conditions.get("mode") == "eval":
        found["eval"] = True
    if "follow" in conditions:
        found["follow"] = conditions["follow"]
    if "work" in conditions and probe.gate == "provenance":
        found["work"] = True
    if "autocast" in conditions:
        found["autocast"] = conditions["autocast"]
    if "ways" in conditions:
        found["ways"] = conditions["ways"].split(",")
    return found


def _unanswered(probe: Probe, text: str) -> Record:
    truth = Truth(status="failed", text=text)
    return Record(probe, (truth,), Observation(probe=probe.id, status="not_run", text=text[:500]))


def _call_seed(*parts: object) -> int:
    text = "/".join(map(str, parts))
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[4:8], "big") >> 1
