"""FLT-01: no crash, hang, leak or sticky device error on in-domain input."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from assay.gates import sanitized
from assay.gates.base import Context, Verdict, distinct, fault_finding, undecided_reason
from assay.probe import sizes
from assay.probe.model import Probe
from assay.probe.record import FAULTS, Record
from assay.report.model import Finding
from assay.vocabulary import Reason, Tier

MEMORY_SHARE = 256
LEAKED_BYTES = 4096
"""Bytes by which each call has to add to what is held before they count as leaked."""
LAUNCH_BYTES = 2048
"""Bytes that the verifier itself may keep of one launch of a kernel."""
LEAK_CALLS = 4
"""Calls in a row, the last ones of a long history, that have to add to what is held."""


class Faults:
    """Judged on every probe. An exception is a fault only on the task's own draws; elsewhere its gate has it."""

    id = "FLT-01"
    slug = "faults"
    aliases = ("lethe:crash", "veit:robustness")
    obligation = "no crash, hang, leak or sticky device error on in-domain input"
    opt_in = False

    def plan(self, ctx: Context) -> list[Probe]:
        """Nothing of its own, since every probe can fault; in the deep tier barriers at two sizes."""
        tails = sizes.plan_sizes(ctx.study, ctx.blocks, ctx.element_limit // 4, ctx.tier.value) if ctx.deep else []
        places = [("", dict(ctx.small)), *((v.name, dict(v.sizes)) for v in tails[:1])]
        return sanitized.probes(self, ctx, "synccheck", places)

    def judge(self, ctx: Context, records: Sequence[Record]) -> Verdict:
        """A worker that ended, hung or broke the protocol; processes and threads left behind."""
        verdict = Verdict()
        records, checked = sanitized.apart(records)
        for record in records:
            if self._ran_out(ctx, record):
                verdict.decided += 1
                verdict.findings.append(Finding(
                    gate=self.id, slug=self.slug, reason=Reason.OUT_OF_MEMORY_CANDIDATE, tier=Tier.WRONG,
                    tolerance_free=True, expected="an output", probe=record.probe.id, attested_by="worker",
                    actual=f"out of memory on {_bytes(record)} bytes of inputs and outputs"))
                continue
            if (reason := undecided_reason(record)) is not None:
                if record.probe.gate == "values":
                    verdict.undecided[reason] += 1
                continue
            verdict.decided += 1
            seen = record.observation
            if seen.status == "raised":
                if record.probe.gate == "values" and record.probe.kind not in ("ways", "eval", "autocast"):
                    verdict.findings.append(fault_finding(self, record, Tier.WRONG))
            elif seen.status in FAULTS:
                verdict.findings.append(fault_finding(self, record, Tier.WRONG))
            if seen.left and seen.status not in ("timed_out", "closed"):
                verdict.findings.append(self._left(record, Reason.LEFTOVER_PROCESS, f"{seen.left} processes"))
            if seen.facts.get("threads"):
                names = ", ".join(map(str, seen.facts["threads"]))
                verdict.findings.append(self._left(record, Reason.LEFTOVER_THREAD, names))
            if seen.files:
                verdict.findings.append(self._left(record, Reason.LEFTOVER_FILE, ", ".join(seen.files)))
            verdict.findings += self._grows(record)
        verdict.findings += [
            sanitized.finding(self, record, report, Reason.BARRIER, "a barrier that all threads of the block reach")
            for record, report in sanitized.reports(checked, verdict) if report.get("kind") == "barrier"]
        verdict.findings = distinct(verdict.findings)
        return verdict

    def _ran_out(self, ctx: Context, record: Record) -> bool:
        """Out of memory where inputs and outputs are a tiny share of it: the candidate's doing, or its pretext.

        On larger ones nothing is decided, since a right candidate may need room for intermediates.
        """
        if record.observation.status != "memory" or not all(t.ok for t in record.truths):
            return False
        return ctx.memory > 0 and _bytes(record) * MEMORY_SHARE < ctx.memory

    def _left(self, record: Record, reason: Reason, what: str) -> Finding:
        return Finding(gate=self.id, slug=self.slug, reason=reason, tier=Tier.VIOLATION, tolerance_free=True,
                       expected="nothing left running", actual=what[:200], probe=record.probe.id,
                       attested_by="worker" if reason is Reason.LEFTOVER_THREAD else "judge")

    def _grows(self, record: Record) -> list[Finding]:
        """Memory or descriptors of which every one of the last calls of a long history took more."""
        per_call = record.observation.facts.get("per_call", [])
        found = []
        for name, least in (("held", LEAKED_BYTES), ("descriptors", 1)):
            counts = [seen.get(name) for seen in per_call]
            if not all(type(n) is int and n >= 0 for n in counts):
                continue
            steps = [int(b) - int(a) for a, b in itertools.pairwise(counts)][len(counts) // 2:]
            launches = max((int(seen.get("launches") or 0) for seen in per_call), default=0) if name == "held" else 0
            if len(steps) >= LEAK_CALLS - 1 and min(steps) >= least + LAUNCH_BYTES * launches:
                what = f"{min(steps):,} bytes" if name == "held" else f"{min(steps)} descriptors"
                found.append(Finding(
                    gate=self.id, slug=self.slug, reason=Reason.LEAK, tier=Tier.VIOLATION, tolerance_free=True,
                    expected="no more held after a call than before it", actual=f"{what} more with each of the last "
                    f"{len(steps)} calls", detail={"calls": len(counts)}, probe=record.probe.id,
                    attested_by="worker"))
        return found


def _bytes(record: Record) -> int:
    """Bytes of a probe's inputs and outputs, over all its draws."""
    tensors = [t for truth in record.truths for t in (*truth.inputs, *(leaf.native for leaf in truth.leaves))]
    return sum(t.numel() * t.element_size() for t in tensors if t is not None)
