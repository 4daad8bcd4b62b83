"""A candidate's first calls: what one costs, how kernels are tuned, which sizes the device is too small for."""

from __future__ import annotations

from dataclasses import replace

from assay.gates import GATES, Context
from assay.gates.base import single
from assay.gates.numeric_plan import Length, lengths
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
    likely = _lengthened(ctx)[1] if ctx.device != "cpu" and len(run.sessions) > 1 else None
    ctx, records, known = _cost(ctx, run, session, patience, likely)
    if ctx.device == "cpu" or all(r.observation.status == "timed_out" for r in records):
        # one that hangs at every size so far says nothing of what it would do at longer ones
        return ctx, records
    ctx, long = within_resources(ctx, run, session, patience, known)
    return ctx, records + long


def _cost(ctx: Context, run: Run, session: CandidateSession, patience: float,
          likely: Probe | None) -> tuple[Context, list[Record], Record | None]:
    """Run the first draw to learn the cost of a call, and choose the sizes that the rest is probed at.

    Third is the record of the probe that is likely to come next, where it was run beside the first.
    """
    values = GATES["values"]

    def probe_of(name: str, sizes: dict[str, int]) -> Probe:
        probe = single(values, name, Draw(seed=ctx.draw_seed("values", 0)), sizes)
        # the first call pays for compiling and importing: only a second one tells what a call costs
        return probe.model_copy(update={"calls": (Call(), Call(storage="same"))})

    def trial(name: str, sizes: dict[str, int], timeout: float) -> Record:
        return run.one(probe_of(name, sizes), session, timeout)

    def cost(record: Record) -> float:
        seen = record.observation
        if seen.calls:
            return seen.calls[-1].seconds
        # waiting for a kernel that never ends, or losing a device, says nothing of a call that ends
        return seen.seconds if ctx.device == "cpu" and seen.status != "timed_out" else 0.0

    cheaper = ctx.study.small if ctx.study.small and ctx.study.small != ctx.sizes else {}
    records: list[Record] = []
    cut = small_sizes(ctx.study, ctx.sizes)
    reduced = cheaper or (cut if cut != ctx.sizes else {})
    native, early, known = _first(ctx, run, probe_of("draw-0", ctx.sizes), probe_of("small-0", cut), likely,
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
            same = early is not None and dict(early.probe.sizes) == small
            check = early if same and early else trial("small-0", small, max(patience, 4 * seconds))
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
    return replace(ctx, configs={str(k): int(v) for k, v in configs.items()}, blocks=blocks), records, known


def _first(ctx: Context, run: Run, native: Probe, small: Probe, likely: Probe | None, session: CandidateSession,
           timeout: float, patience: float) -> tuple[Record, Record | None, Record | None]:
    """The first probe; on a GPU others beside it that are likely to follow, since each waits for a compiler.

    Returns: its record, and those of the others, or None where one was not run or said nothing.
    """
    others = [small] if dict(small.sizes) != dict(native.sizes) else []
    others += [likely] if likely is not None else []
    others = others[: len(run.sessions) - 1]
    if ctx.device == "cpu" or not others:
        return run.one(native, session, timeout), None, None
    first, *rest = run.side_by_side([native, *others], [timeout, *[6 * patience for _ in others]])
    found = {id(record.probe): record for record in rest}
    early, known = found.get(id(small)), found.get(id(likely))
    return first, early if early is not None and early.observation.ran else None, known


def _lengthened(ctx: Context) -> tuple[Length, Probe | None]:
    """The longest reduction, and the first probe at its sizes."""
    long = lengths(ctx)[1]
    return long, next((p for p in GATES["accumulation"].plan(ctx) if p.sizes == long.sizes), None)


def within_resources(ctx: Context, run: Run, session: CandidateSession, patience: float,
                     known: Record | None = None) -> tuple[Context, list[Record]]:
    """Learn which sizes a GPU's shared memory or registers are too small for, where reductions are lengthened.

    Args:
        ctx: what is known of the task.
        run: runs probes.
        session: of the candidate.
        patience: seconds in which a call is expected to end.
        known: a record that is taken for its probe.

    Returns: the context with the sizes refused, and the record of the first planned probe at a size that was not.
    """
    while len(ctx.refused) < TRIALS:
        long, probe = _lengthened(ctx)
        name = long.name.partition("=")[0]
        if probe is None or not long.value or long.value == ctx.refused.get(name):
            break
        record = known if known is not None and known.probe == probe else run.one(probe, session, 6 * patience)
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
