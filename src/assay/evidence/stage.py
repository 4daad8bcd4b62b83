"""A recorded verification set up again: its reference, its candidate and what its gates judged with."""

from __future__ import annotations

import contextlib
import dataclasses
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from assay.evidence import context as contexts
from assay.evidence.errors import StoreDamaged, StoreError
from assay.evidence.first import hidden
from assay.evidence.model import Bundle, VerdictRecord
from assay.explaining import names_intrinsics, with_modes
from assay.gates import GATES, Context
from assay.judging import visible
from assay.probe.model import Probe
from assay.probe.record import Record
from assay.report.model import Finding
from assay.run.candidate import CandidateSession
from assay.run.lanes import Budget, Run
from assay.run.process import Limits, Zygote
from assay.run.reference import ReferenceFailed, ReferenceSession


@dataclass
class Stage:
    """Where recorded probes run again, as often as wanted.

    Attributes:
        ctx: what the gates judge with.
        run: reference and candidate.
        session: the candidate's processes.
    """

    ctx: Context
    run: Run
    session: CandidateSession

    def records(self, probes: Sequence[Probe], seed: int) -> list[Record]:
        """What comes of each probe now; `seed` is that of the plan that they come from."""
        self.run.seed = seed
        self.run.truth_cache.clear()
        return with_modes([self.run.one(probe, self.session) for probe in probes], self.run.with_modes, lambda: True)

    def findings(self, gate: str, records: Sequence[Record]) -> list[Finding]:
        """What a gate finds in some records."""
        judge = GATES[gate]
        return judge.judge(self.ctx, visible(judge, records)).findings


@contextlib.contextmanager
def restaged(record: VerdictRecord, zygote: Zygote, *, device: str | None = None, sandbox: str | None = None,
             store: str | None = None) -> Iterator[Stage]:
    """Set up what a verdict was about, from the store alone.

    Args:
        record: the verdict.
        zygote: a warm parent.
        device: `cpu` or `cuda`; None for the one that the verdict was decided on.
        sandbox: how the candidate is confined; None for the warm parent's own.
        store: folder of the store, which the candidate does not see.

    Raises StoreError when only the report was kept, or its reference cannot be set up.
    """
    from assay.verify import address_space, device_bytes, entries, numerics

    if not record.context:
        raise StoreError("only the report of this verdict was kept, not what replays it", record.id,
                         "verify the candidate again with a store")
    try:
        ctx, declared = contexts.from_json(record.context, record.contract)
    except (KeyError, ValueError, TypeError) as error:
        raise StoreDamaged(f"what this verdict was judged with does not read back: {error}", record.id,
                           "verify the candidate again") from None
    where = device or ctx.device
    if where != ctx.device:
        ctx = dataclasses.replace(ctx, device=where, device_bytes=device_bytes(where))
    reference = ReferenceSession(zygote, record.task, numerics(record.contract), device=where)
    limits = Limits(address_space=address_space(where))

    def session(options: dict[str, str]) -> CandidateSession:
        return CandidateSession(zygote, record.candidate.source, entries(record.task, record.candidate),
                                options, limits, sandbox=sandbox, hide=hidden(store))

    candidate = session({"device": where, "target": ctx.target})
    compilers: dict[str, CandidateSession] = {}

    def compiler(target: str) -> CandidateSession:
        if target not in compilers:
            compilers[target] = session({"device": "cpu", "mode": "compile", "target": target})
        return compilers[target]

    sanitizers: list[CandidateSession] = []

    def sanitizer() -> CandidateSession:
        if not sanitizers:
            sanitizers.append(session({"device": where, "mode": "sanitize"}))
        return sanitizers[0]

    budget = Budget(math.inf, call_seconds=ctx.call_seconds)
    try:
        reference.declare(ctx.study, declared)
        run = Run(reference, [candidate], budget, ctx.seed, random=ctx.study.random, compilers=compiler,
                  sanitizer=sanitizer if where == "cuda" else None,
                  approximate=names_intrinsics(record.candidate.source))
        yield Stage(ctx, run, candidate)
    except ReferenceFailed as error:
        raise StoreError(f"the reference does not run here: {error}", record.task.shown,
                         "see `assay doctor`") from None
    finally:
        reference.close()
        for each in (candidate, *compilers.values(), *sanitizers):
            each.close()


def shown_by(stage: Stage, bundle: Bundle, records: Sequence[Record]) -> Finding | None:
    """The finding of the same gate, reason and output, on the bundle's first probe where it is there."""
    same = [f for f in stage.findings(bundle.gate, records)
            if f.reason.value == bundle.reason and f.output == bundle.output]
    return next((f for f in same if f.probe == bundle.probe.id), same[0] if same else None)
