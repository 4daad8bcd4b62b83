"""INT-01: leaves the harness, torch, timers and the process alone."""

from __future__ import annotations

from collections.abc import Sequence

from assay.gates.base import Context, Verdict, distinct
from assay.probe.model import Probe
from assay.probe.record import Record
from assay.report.model import Finding
from assay.vocabulary import Reason, Tier

SEED = "random seed"
"""How the worker calls the seed among the modes; a reference may set one in every call."""
_BREAKS = {"exited", "closed", "forged", "guardian_lost"}


class Integrity:
    """Judged on every probe, from outside where that is possible."""

    id = "INT-01"
    slug = "integrity"
    aliases = ("lethe:integrity", "veit:isolation")
    obligation = "leaves the harness, torch, timers and the process alone"
    opt_in = False

    def plan(self, ctx: Context) -> list[Probe]:
        """Nothing of its own."""
        return []

    def judge(self, ctx: Context, records: Sequence[Record]) -> Verdict:
        """Replaced functions, a touched bait, an ended process or a broken channel."""
        verdict = Verdict()
        for record in records:
            seen = record.observation
            if seen.status == "not_run":
                continue
            verdict.decided += 1
            if seen.facts.get("patched"):
                names = ", ".join(map(str, seen.facts["patched"][:6]))
                verdict.findings.append(self._found(record, Reason.HARNESS_PATCHED, "functions as they were",
                                                    f"replaced {names}", by_worker=True))
            if seen.facts.get("bait"):
                verdict.findings.append(self._found(record, Reason.REFERENCE_SOUGHT, "its own result",
                                                    "searched the process for a reference and ran it",
                                                    by_worker=True))
            if seen.facts.get("traced"):
                verdict.findings.append(self._found(record, Reason.HARNESS_PATCHED, "no trace function",
                                                    "installed a trace or profile function", by_worker=True))
            if seen.facts.get("environment"):
                names = ", ".join(map(str, seen.facts["environment"][:6]))
                verdict.findings.append(self._found(record, Reason.ENVIRONMENT_CHANGED, "variables as they were",
                                                    f"changed {names}", by_worker=True))
            seeded = any(truth.reseeds for truth in record.truths)
            left = [str(mode) for mode in seen.facts.get("modes") or () if not (seeded and str(mode).startswith(SEED))]
            if left:
                verdict.findings.append(self._found(record, Reason.MODE_LEFT, "modes as they were before the call",
                                                    "; ".join(left[:4]), by_worker=True))
            if seen.status in _BREAKS:
                reason = Reason.EXITED if seen.status == "exited" else Reason.FORGED_FRAME
                verdict.findings.append(self._found(record, reason, "an answer over its channel",
                                                    seen.status.replace("_", " ")))
        verdict.findings = distinct(verdict.findings)
        return verdict

    def _found(self, record: Record, reason: Reason, expected: str, actual: str, *,
               by_worker: bool = False) -> Finding:
        return Finding(gate=self.id, slug=self.slug, reason=reason, tier=Tier.VIOLATION, tolerance_free=True,
                       expected=expected, actual=actual[:300], probe=record.probe.id,
                       attested_by="worker" if by_worker else "judge")
