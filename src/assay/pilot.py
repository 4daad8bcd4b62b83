"""A candidate's first calls: what one costs, how kernels are tuned, which sizes the device is too small for."""

from __future__ import annotations

from dataclasses import replace

from assay.gates import GATES, Context
from assay.gates.base import single
from assay.gates.numeric_plan import lengths
from assay.planning import small_sizes
from assay.probe.blocks import launched_blocks
from assay.probe.model import Call, Draw, Probe
from assay.probe.record import FAULTS, Record
from assay.run.candidate import CandidateSession
from assay.run.lanes import Run

SLOW_CALL_SECONDS = 0.4
TRIALS = 4
"""Calls that may go into finding a long reduction for which the device has the resources."""


def learn(ctx: Context, run: Run, session: CandidateSession, patience: float) -> tuple[Context, list[Record]]:
    """Run a candidate a few times before its probes are planned; what was learnt, and records that probes can be.

    Args:
        ctx: what is known of the task.
        run: runs probes.
        session: of the candidate.
        patience: seconds in which a call is expected to end.
    """
    ctx, records = _cost(ctx, run, session, patience)
    if ctx.device == "cpu":
        return ctx, records
    ctx, long = within_resources(ctx, run, session, patience)
    return ctx, records + long


def _cost(ctx: Context, run: Run, session: CandidateSession, patience: float) -> tuple[Context, list[Record]]:
    """Run the first draw to learn the cost of a call, and choose the sizes that the rest is probed at."""
    values = GATES["values"]

    def probe_of(name: str, sizes: dict[str, int]) -> Probe:
        probe = single(values, name, Draw(seed=ctx.draw_seed("values", 0)), sizes)
        # the first call pays for compiling and importing: only a second one tells what a call costs
        return probe.model_copy(update={"calls": (Call(), Call(storage="same"))})

    def trial(name: str, sizes: dict[str, int], timeout: float) -> Record:
        return run.one(probe_of(name, sizes), session, timeout)

    def cost(record: Record) -> float:
        calls = record.observation.calls
        return calls[-1].seconds if calls else record.observation.seconds

    cheaper = ctx.study.small if ctx.study.small and ctx.study.small != ctx.sizes else {}
    records: list[Record] = []
    cut = small_sizes(ctx.study, ctx.sizes)
    reduced = cheaper or (cut if cut != ctx.sizes else {})
    native, early = _first(ctx, run, probe_of("draw-0", ctx.sizes), probe_of("small-0", cut),
                           session, 2 * patience if reduced else 6 * patience, patience)
    slow = native.observation.status == "timed_out" and bool(reduced)
    if not slow:
        records.append(_first_call(native))
        seconds = cost(native)
        run.budget.call_seconds = seconds
        if native.observation.ran and seconds > SLOW_CALL_SECONDS and reduced:
            smaller = trial("reduced-0", reduced, 6 * patience)
            records.append(_first_call(smaller))
            if smaller.observation.ran:
                ctx = replace(ctx, sizes=dict(reduced))
                seconds = cost(smaller)
        run.budget.call_seconds = max(0.02, seconds)
        small = small_sizes(ctx.study, ctx.sizes)
        if native.observation.ran and small != ctx.sizes and ctx.sizes != reduced:
            known = early if early is not None and dict(early.probe.sizes) == small else None
            check = known or trial("small-0", small, max(patience, 4 * seconds))
            if not check.observation.ran or check.observation.status in FAULTS:
                small = ctx.sizes
        ctx = replace(ctx, small=dict(small), call_seconds=seconds)
        facts = native.observation.facts
    else:
        # the native size is too slow here, which is no fault of the candidate: learn the cost at smaller ones
        run.hangs.clear()
        smaller = trial("draw-0", reduced, 6 * patience)
        records.append(_first_call(smaller))
        seconds = max(0.02, cost(smaller))
        run.budget.call_seconds = seconds
        ctx = replace(ctx, sizes=dict(reduced), small=dict(reduced), call_seconds=seconds)
        facts = smaller.observation.facts
    configs = facts.get("configs") if isinstance(facts.get("configs"), dict) else {}
    assert configs is not None
    blocks = tuple(sorted({*ctx.blocks, *launched_blocks(facts)}))
    return replace(ctx, configs={str(k): int(v) for k, v in configs.items()}, blocks=blocks), records


def _first(ctx: Context, run: Run, native: Probe, small: Probe, session: CandidateSession, timeout: float,
           patience: float) -> tuple[Record, Record | None]:
    """The first probe at its own sizes; on a GPU that at small ones beside it, since each waits for a compiler."""
    if ctx.device == "cpu" or len(run.sessions) < 2 or dict(small.sizes) == dict(native.sizes):
        return run.one(native, session, timeout), None
    first, early = run.side_by_side([native, small], [timeout, 6 * patience])
    return first, early if early.observation.ran else None


def within_resources(ctx: Context, run: Run, session: CandidateSession,
                     patience: float) -> tuple[Context, list[Record]]:
    """Learn which sizes a GPU's shared memory or registers are too small for, where reductions are lengthened.

    Args:
        ctx: what is known of the task.
        run: runs probes.
        session: of the candidate.
        patience: seconds in which a call is expected to end.

    Returns: the context with the sizes refused, and the record of the first planned probe at a size that was not.
    """
    gate = GATES["accumulation"]
    while len(ctx.refused) < TRIALS:
        long = lengths(ctx)[1]
        probe = next((p for p in gate.plan(ctx) if p.sizes == long.sizes), None)
        name = long.name.partition("=")[0]
        if probe is None or not long.value or long.value == ctx.refused.get(name):
            break
        record = run.one(probe, session, 6 * patience)
        if record.observation.status != "toolchain":
            return ctx, [record]
        ctx = replace(ctx, refused={**ctx.refused, name: long.value})
    return ctx, []


def _first_call(record: Record) -> Record:
    """A trial's record as one of a single call: the second was made for its time and may see changed inputs."""
    if not record.observation.ran:
        return record
    return Record(record.probe.model_copy(update={"calls": record.probe.calls[:1]}), record.truths,
                  record.observation.model_copy(update={"calls": record.observation.calls[:1], "late": None}))
