"""Completions to rewards: code is extracted, judged once for each content, and remembered."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

from assay.errors import InputError
from assay.report.model import Report
from assay.reward.extraction import code_of
from assay.reward.scoring import Reward, Stage, Stages, reward_of

if TYPE_CHECKING:
    from assay.contract import Contract
    from assay.pool import Done, Pool
    from assay.task import Candidate, Task
    from assay.verify import Options

Speed = Callable[["Task", "Candidate", Report], float | None]
"""Times a candidate that has the label `contract`: the speedup, better its lower limit; None when it cannot."""
REMEMBERED = 100_000


@dataclass(frozen=True)
class _Key:
    task: str
    candidate: str
    contract: str


class KernelReward:
    """Judges completions over a pool of warm judges. Thread-safe; the pool starts with the first completion.

    Args:
        tier: effort of each verdict.
        device: `auto`, `cpu` or `cuda`.
        contract: the obligations of every task; a Contract, data or a path. None for what each reference does.
        workers: judges; None for as many as the machine takes, or for a single one where candidates are timed: another
            one's verdicts would hold the GPU up meanwhile.
        timeout: seconds for one verdict; None for the tier's own.
        stages: the numbers.
        speed: times what has the label `contract`. Never called for anything else. `bench` for
            `assay.bench.speed.BenchSpeed`, which needs a GPU; None pays for rightness alone.
        entry: name of the entry point in a completion.
        pool: a pool to use instead of one of its own; it is not closed.

    Raises:
        InputError: an option is at fault.
    """

    def __init__(self, *, tier: str = "quick", device: str = "auto", contract: Any = None,
                 workers: int | None = None, timeout: float | None = None, stages: Stages | None = None,
                 speed: Speed | Literal["bench"] | None = None, entry: str = "ModelNew",
                 pool: Pool | None = None) -> None:
        from assay import accept

        self.stages, self.entry = stages or Stages(), entry
        self._workers = 1 if workers is None and speed is not None else workers
        self._speed, self._bench = None if speed == "bench" else speed, None
        if speed == "bench":
            from assay.bench.speed import BenchSpeed

            self._speed = self._bench = BenchSpeed()
        self._options: Options = accept.options(device=device, tier=tier, timeout=timeout)
        self._contract: Contract = accept.contract(contract)
        self._contract_key = self._contract.model_dump_json()
        self._pool, self._own = pool, pool is None
        self._lock = threading.Lock()
        self._known: OrderedDict[_Key, Future[Reward]] = OrderedDict()
        self._tasks: OrderedDict[str, Task] = OrderedDict()
        self._number = 0

    def __enter__(self) -> KernelReward:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """End the judges, if they are its own."""
        with self._lock:
            pool, self._pool = self._pool, None if self._own else self._pool
        if pool is not None and self._own:
            pool.close()
        if self._bench is not None:
            self._bench.close()

    def rewards(self, references: Sequence[str], completions: Sequence[Any]) -> list[Reward]:
        """What each completion earns, against the reference of the same position.

        Args:
            references: source texts of the references.
            completions: text, or messages.

        Raises:
            InputError: a reference is at fault. A fault of a completion earns what its stage says.
            ValueError: the two differ in length.
        """
        pending = [self.submit(reference, completion)
                   for reference, completion in zip(references, completions, strict=True)]
        return [future.result() for future in pending]

    def reward(self, reference: str, completion: Any) -> Reward:
        """What one completion earns. Raises InputError when the reference is at fault."""
        return self.submit(reference, completion).result()

    def submit(self, reference: str, completion: Any) -> Future[Reward]:
        """Have a completion judged; its future gives the reward, or raises InputError for the reference.

        A content that is being judged, or was, is not judged again; one that could not be decided is.
        """
        from assay.task import parse_candidate

        code = code_of(completion, self.entry)
        if code is None:
            return _done(Reward(self.stages.nothing, Stage.NO_CODE))
        task = self._task(reference)
        entries = tuple(dict.fromkeys((self.entry, *task.candidate_entries)))
        candidate = parse_candidate(code, entries=entries, strict=False)
        if candidate.defect is not None:
            return _done(Reward(self.stages.nothing, Stage.NEVER_RAN))
        key = _Key(task.digest, candidate.digest, self._contract_key)
        with self._lock:
            known = self._known.get(key)
            if known is not None:
                self._known.move_to_end(key)
                return known
            outcome: Future[Reward] = Future()
            self._known[key] = outcome
            while len(self._known) > REMEMBERED:
                self._known.popitem(last=False)
            self._number += 1
            number = self._number
            pool = self._started()
        try:
            self._ask(pool, number, task, candidate, key, outcome)
        except BaseException as error:
            self._forget(key)
            outcome.set_exception(error)
        return outcome

    def _task(self, reference: str) -> Task:
        from assay.task import parse_task

        with self._lock:
            task = self._tasks.get(reference)
        if task is None:
            task = parse_task(reference)
            with self._lock:
                self._tasks[reference] = task
                while len(self._tasks) > 4096:
                    self._tasks.popitem(last=False)
        return task

    def _started(self) -> Pool:
        """The pool; the lock is held."""
        if self._pool is None:
            from assay.pool import Pool

            self._pool = Pool(self._workers, device=self._options.device)
        return self._pool

    def _ask(self, pool: Pool, number: int, task: Task, candidate: Candidate, key: _Key,
             outcome: Future[Reward]) -> None:
        from assay.pool import Job

        def ended(answer: Future[Done]) -> None:
            try:
                reward = self._of(answer.result(), task, candidate)
            except BaseException as error:
                self._forget(key)
                outcome.set_exception(error)
                return
            if not reward.decided:
                self._forget(key)
            outcome.set_result(reward)

        job = Job(id=f"reward-{number}", task=task, candidate=candidate, contract=self._contract,
                  options=replace(self._options))
        pool.submit(job).add_done_callback(ended)

    def _of(self, done: Done, task: Task, candidate: Candidate) -> Reward:
        if done.report is None:
            if done.at_fault == "input":
                raise InputError(done.problem or "the reference could not be used")
            return Reward(None, Stage.UNDECIDED)
        report = done.verdict
        speedup = self._speed(task, candidate, report) if self._speed is not None and report.ok else None
        return reward_of(report, speedup=speedup, stages=self.stages)

    def _forget(self, key: _Key) -> None:
        with self._lock:
            self._known.pop(key, None)


def _done(reward: Reward) -> Future[Reward]:
    future: Future[Reward] = Future()
    future.set_result(reward)
    return future
