"""Trying first what candidates of the same task failed on before, as an example database does.

The recipes are run bit for bit as they were found, before the plan. A fault that they show is found in seconds
and by every later candidate that has it, whatever the seed. They are in the domain like every other probe, so
they cannot take anything from a right candidate: each is judged among the plan's own controls, only its
findings count, and what it leaves undecided counts against nobody.
"""

from __future__ import annotations

import dataclasses
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from assay.evidence.database import FILE
from assay.evidence.errors import StoreDamaged, StoreError, StoreWarning
from assay.evidence.model import Bundle
from assay.evidence.store import Store
from assay.explaining import with_modes
from assay.gates import Context
from assay.probe.model import Probe
from assay.probe.record import Record
from assay.run.lanes import Run
from assay.task import Task
from assay.vocabulary import Reason

SHARE = 0.25
"""Share of the time that earlier failures may take."""
MARK = "~"
"""Ends the id of a probe that was found by another verification, before the name of that finding."""


@dataclass(frozen=True)
class Trial:
    """An earlier failure, tried on this candidate.

    Attributes:
        bundle: as it was found, its probes named so that no probe of a plan has their name.
        records: what came of each probe.
    """

    bundle: Bundle
    records: tuple[Record, ...]


def usable(directory: str | None) -> str | None:
    """The folder of a store that can be used; None, after one warning, when it cannot be written.

    Raises StoreDamaged or StoreError before any work is done.
    """
    if directory is None:
        return None
    try:
        Store.open(directory, create=True).close()
    except StoreDamaged:
        raise
    except StoreError as error:
        if type(error) is StoreError:
            raise
        warnings.warn(f"nothing will be kept: {error}", StoreWarning, stacklevel=2)
        return None
    return directory


def hidden(directory: str | None) -> list[str]:
    """Files of a store that a candidate has no business with."""
    return [] if directory is None else [str(Path(directory) / f"{FILE}{end}") for end in ("", "-wal", "-shm")]


def earlier(directory: str | None, task: Task, ctx: Context) -> list[Bundle]:
    """Failures of a task under the same contract and on the same kind of device; none without a store."""
    if directory is None:
        return []
    try:
        with Store.open(directory) as store:
            return store.failures(task.digest, ctx.contract, ctx.device)
    except StoreError as error:
        warnings.warn(f"earlier failures were not tried: {error}", StoreWarning, stacklevel=2)
        return []


def foremost(plan: Sequence[Probe], bundles: Sequence[Bundle]) -> list[Probe]:
    """The plan with probes first whose names are those of earlier failures; otherwise as it was."""
    names = {probe.id.partition(MARK)[0] for bundle in bundles for probe in bundle.probes}
    return sorted(plan, key=lambda probe: probe.id not in names)


def trials(bundles: Sequence[Bundle], run: Run, slugs: Sequence[str], stop: Callable[[Trial], bool]) -> list[Trial]:
    """Run earlier failures one after the other.

    Args:
        bundles: as they were found.
        run: what running needs; its budget is shared.
        slugs: gates of this verification; failures of others are left out.
        stop: called after each; True ends the trials.
    """
    began = time.monotonic()
    until = began + SHARE * max(0.0, run.budget.deadline - began)
    done: list[Trial] = []
    for number, bundle in enumerate(bundles):
        if bundle.gate not in slugs or bundle.reason == Reason.TIMED_OUT.value:
            # a hang would take all the time there is
            continue
        if time.monotonic() > until:
            break
        renamed = _renamed(bundle, f"{MARK}{number + 1}")
        own = dataclasses.replace(run, seed=bundle.seed, truth_cache={}, stop=None, on_record=None,
                                  oracle_seconds=0.0, candidate_seconds=0.0)
        records = with_modes(own.all(renamed.probes), own.with_modes, lambda: time.monotonic() < until)
        run.oracle_seconds += own.oracle_seconds
        run.candidate_seconds += own.candidate_seconds
        trial = Trial(renamed, tuple(records))
        done.append(trial)
        if stop(trial):
            break
    return done


def patient(record: Record) -> Record:
    """A record in which no answer in time is no answer at all.

    The sizes were chosen for another candidate, which may have been faster here, and hangs have the plan to show in.
    """
    if record.observation.status != "timed_out":
        return record
    unanswered = record.observation.model_copy(update={"status": "not_run", "text": "too slow for what another failed"})
    return dataclasses.replace(record, observation=unanswered)


def _renamed(bundle: Bundle, end: str) -> Bundle:
    names = {p.id: f"{p.id.partition(MARK)[0]}{end}" for p in bundle.probes}
    return bundle.model_copy(update={
        "probes": tuple(p.model_copy(update={"id": names[p.id]}) for p in bundle.probes),
        "inputs": {names[name]: digests for name, digests in bundle.inputs.items()}})

