"""The broker between HTTP and the pool: admits, remembers, answers twice alike, and counts."""

from __future__ import annotations

import hashlib
import hmac
import json
import secrets
import threading
import time
from collections import OrderedDict, deque
from concurrent.futures import CancelledError, Future
from dataclasses import dataclass, field, replace
from typing import Any

from assay import __version__, accept
from assay.contract import Contract
from assay.contract.prompt import Redaction, feedback
from assay.errors import InputError
from assay.pool import Done, Job, Pool
from assay.report.model import Report
from assay.report.words import REASONS
from assay.reward import reward_of, reward_of_screen
from assay.serve.metrics import Metrics
from assay.serve.model import Verdict, VerdictRequest
from assay.serve.settings import REDACTIONS, Settings, Tenant
from assay.task import parse_candidate, parse_task
from assay.vocabulary import EffortTier

EVENTS = 200
RETRIES = 3
SEED_SECONDS = 6 * 3600.0


class Full(Exception):
    """No room: the queue, or the tenant's share of it, is used up."""


class Stopping(Exception):
    """Nothing is accepted any more."""


@dataclass
class Entry:
    """One request: what was asked, who asked, and what came of it."""

    id: str
    request: VerdictRequest
    job: Job
    tenants: set[str]
    future: Future[Done] = field(default_factory=Future)
    began: float = field(default_factory=time.monotonic)
    phase: str = ""
    done: Done | None = None
    size: int = 0
    tries: int = 0
    cancelled: bool = False


class Broker:
    """Takes requests and remembers verdicts.

    The seed of a verdict is drawn from a secret of this process and the task, so that the candidates of one task
    share truths, the same request gets the same verdict for as long as it is remembered and longer, and nobody
    outside can tell the probes.
    """

    def __init__(self, settings: Settings, metrics: Metrics | None = None) -> None:
        self.settings = settings
        self.metrics = metrics or Metrics()
        self._secret = secrets.token_bytes(32)
        self._lock = threading.RLock()
        self._entries: OrderedDict[str, Entry] = OrderedDict()
        self._bytes = 0
        self.events: deque[dict[str, Any]] = deque(maxlen=EVENTS)
        self.stopping = False
        self.started = time.time()
        self.pool = Pool(settings.workers, sandbox=settings.sandbox, gpus=settings.gpus or None,
                         device=settings.device,
                         progress=self._progress)

    def submit(self, request: VerdictRequest, tenant: Tenant) -> Entry:
        """Take a request, or find the same one.

        Raises:
            InputError: the sources, the contract or an option is at fault.
            Full: there is no room for it.
            Stopping: the service is going down.
        """
        id = self.id_of(request)
        with self._lock:
            found = self._entries.get(id)
            if found is not None and not _again(found):
                found.tenants.add(tenant.name)
                self._entries.move_to_end(id)
                self.metrics.repeated.inc()
                return found
        job = self._job(id, request)
        with self._lock:
            if self.stopping:
                raise Stopping
            found = self._entries.get(id)
            if found is not None and not _again(found):
                found.tenants.add(tenant.name)
                return found
            open_ = [e for e in self._entries.values() if not e.future.done()]
            if len(open_) >= self.settings.queue + self.pool.workers:
                raise Full(f"{len(open_)} verdicts wait")
            mine = sum(tenant.name in e.tenants for e in open_)
            if tenant.queue and mine >= tenant.queue:
                raise Full(f"{mine} verdicts of {tenant.name} wait or run")
            entry = Entry(id, request, job, {tenant.name})
            self._entries[id] = entry
            self._begin(entry)
        return entry

    def id_of(self, request: VerdictRequest) -> str:
        """Hash of what decides a verdict."""
        asked = request.model_dump(exclude={"wait", "redaction"})
        text = json.dumps([__version__, self.settings.device, asked], sort_keys=True)
        return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:32]

    def _job(self, id: str, request: VerdictRequest) -> Job:
        task = parse_task(request.reference, entry=request.entry)
        candidate = parse_candidate(request.candidate, entries=task.candidate_entries, strict=False)
        contract = Contract.from_data(request.contract) if request.contract is not None else None
        epoch = int((time.time() - self.started) // SEED_SECONDS)
        drawn = hmac.digest(self._secret, f"{task.digest}/{epoch}".encode(), "sha256")
        tier = request.tier
        if tier == "quick" and hmac.digest(self._secret, id.encode(), "sha256")[0] < 256 * request.escalate:
            tier = "standard"
        seconds = min(request.timeout or self.settings.seconds, self.settings.seconds)
        options = accept.options(device=self.settings.device, tier=tier, timeout=seconds, fail_fast=request.fail_fast,
                                 sandbox=self.settings.sandbox, seed=int.from_bytes(drawn[:4], "big") >> 1)
        return Job(id, task, candidate, contract, replace(options, nonce=drawn[4:20].hex()), kind=request.kind,
                   variant=accept.variant(request.variant))

    def _begin(self, entry: Entry) -> None:
        entry.tries += 1
        self.metrics.accepted.inc()
        self.pool.submit(entry.job).add_done_callback(lambda future: self._ended(entry, future))

    def _ended(self, entry: Entry, future: Future[Done]) -> None:
        try:
            done = future.result()
        except CancelledError:
            done = None
        with self._lock:
            if done is not None and done.at_fault == "judge" and entry.tries < RETRIES and not (
                    self.stopping or entry.cancelled):
                # a judge that was lost, twice, says nothing about the candidate
                self._begin(entry)
                return
            entry.done, entry.cancelled = done, done is None
            if done is not None and isinstance(done.report, Report):
                entry.size = len(done.report.model_dump_json())
            self._bytes += entry.size
            self._forget()
            if done is not None:
                self._tell(entry, done)
        if not entry.future.done():
            if done is None:
                entry.future.cancel()
                entry.future.set_running_or_notify_cancel()
            else:
                entry.future.set_result(done)

    def _tell(self, entry: Entry, done: Done) -> None:
        label = _label(done)
        self.metrics.verdicts.labels(label or "none", entry.request.kind).inc()
        self.metrics.seconds.observe(done.seconds)
        found = done.report.findings if isinstance(done.report, Report) else ()
        self.events.appendleft({
            "id": entry.id, "at": time.time(), "label": label, "kind": entry.request.kind, "seconds": done.seconds,
            "task": entry.job.task.digest[:10], "problem": done.problem,
            "findings": sorted({f"{f.slug}: {REASONS[f.reason]}" for f in found})[:6],
            "tenants": sorted(entry.tenants)})

    def _forget(self) -> None:
        """Let the oldest verdicts go until the rest fits."""
        limit, room = self.settings.results, self.settings.result_bytes
        ended = [e for e in self._entries.values() if e.done is not None or e.cancelled]
        for entry in ended[:-1]:
            if len(ended) <= limit and self._bytes <= room:
                break
            del self._entries[entry.id]
            ended.remove(entry)
            self._bytes -= entry.size

    def find(self, id: str) -> Entry | None:
        """A request that is still remembered."""
        with self._lock:
            return self._entries.get(id)

    def cancel(self, id: str, tenant: Tenant) -> bool:
        """Take a tenant's interest in a request back; it ends where nobody else has any. False where there is none."""
        with self._lock:
            entry = self._entries.get(id)
            if entry is None or tenant.name not in entry.tenants or entry.future.done():
                return False
            entry.tenants.discard(tenant.name)
            if entry.tenants:
                return True
            entry.cancelled = True
        self.pool.cancel(id)
        return True

    def status(self, entry: Entry) -> str:
        """`queued`, `running`, `done`, `failed` or `cancelled`."""
        if entry.cancelled:
            return "cancelled"
        if entry.done is not None:
            return "failed" if entry.done.report is None else "done"
        return "running" if entry.id in self.pool.running else "queued"

    def answer(self, entry: Entry, tenant: Tenant, wanted: Redaction | None = None, report: bool = False) -> Verdict:
        """What a tenant is told of a request.

        Args:
            entry: the request.
            tenant: who asks.
            wanted: how much is to be kept back; what the tenant may not know stays back all the same.
            report: the whole report too.
        """
        level = min((wanted or tenant.redaction, tenant.redaction), key=REDACTIONS.index)
        told = Verdict(id=entry.id, status=self.status(entry), kind=entry.request.kind,
                       tier=entry.job.options.tier.value)
        done = entry.done
        if done is None:
            if told.status == "queued":
                told.position = self.position(entry)
            return told
        told.problem, told.at_fault, told.seconds = done.problem, done.at_fault or None, done.seconds
        told.label = _label(done)
        if isinstance(done.report, Report):
            earned = reward_of(done.report)
            told.scope, told.reward, told.stage = done.report.scope, earned.value, earned.stage.value
            told.feedback = feedback(done.report, level)
            if level != "full":
                told.gates = {g.slug: g.outcome.value for g in done.report.gates}
            if level == "none" and report:
                told.report = done.report.model_dump(mode="json")
        elif done.report is not None:
            earned = reward_of_screen(done.report)
            told.reward, told.stage = earned.value, earned.stage.value
        return told

    def position(self, entry: Entry) -> int:
        """Requests that were taken before this one and have not begun."""
        with self._lock:
            count = 0
            for other in self._entries.values():
                if other is entry:
                    break
                count += not other.future.done()
            return max(0, count - len(self.pool.running))

    def overview(self) -> dict[str, Any]:
        """Queue, judges and the last verdicts, for the page and for people."""
        running = set(self.pool.running)
        with self._lock:
            waiting = sum(not e.future.done() for e in self._entries.values()) - len(running)
            rows = [{"id": e.id, "phase": e.phase, "seconds": round(time.monotonic() - e.began, 1),
                     "tier": e.job.options.tier.value, "kind": e.request.kind, "task": e.job.task.digest[:10]}
                    for e in self._entries.values() if e.id in running]
            return {"version": __version__, "device": self.settings.device, "workers": self.pool.workers,
                    "waiting": max(0, waiting), "queue": self.settings.queue, "running": rows,
                    "remembered": sum(e.done is not None for e in self._entries.values()),
                    "lost_judges": self.pool.lost, "stopping": self.stopping,
                    "uptime_s": round(time.time() - self.started), "events": list(self.events)[:60]}

    def _progress(self, id: str, phase: str, done: int, total: int) -> None:
        with self._lock:
            entry = self._entries.get(id)
            if entry is not None:
                entry.phase = f"{phase} {done}/{total}" if total else phase

    def drain(self, seconds: float) -> bool:
        """Accept nothing more and wait for what was accepted; False when it did not end in time."""
        self.stopping = True
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            with self._lock:
                if all(e.future.done() for e in self._entries.values()):
                    return True
            time.sleep(0.05)
        return False

    def close(self) -> None:
        """End the judges; what has not ended is cancelled."""
        self.stopping = True
        self.pool.close()


def _again(entry: Entry) -> bool:
    """Whether a request that was seen before is to be begun anew: it was cancelled, or lost by us."""
    return entry.future.done() and (entry.done is None or entry.done.at_fault == "judge")


def _label(done: Done) -> str | None:
    if isinstance(done.report, Report):
        return done.report.label.value
    return done.report.outcome.value if done.report is not None else None


def tier_of_trials(trials: int) -> EffortTier:
    """Effort that stands for a number of trials of the usual check."""
    return EffortTier.QUICK if trials <= 5 else EffortTier.STANDARD


def checked(settings: Settings) -> Settings:
    """Settings that a service can start with. Raises InputError."""
    if settings.queue < 1:
        raise InputError(f"a queue of {settings.queue} takes nothing", "--queue", "give 1 or more")
    accept.options(device=settings.device, sandbox=settings.sandbox, timeout=settings.seconds)
    return settings
