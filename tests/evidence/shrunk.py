"""Verifies a named fault with its own gate and shrinks what it finds; shared by the tests and the benchmark."""

from __future__ import annotations

from pathlib import Path

from tests.evidence.faults import Fault

from assay.evidence import FindingRecord, Store
from assay.evidence.shrink import Shrunk, shrink
from assay.run.process import Zygote
from assay.task import parse_candidate, parse_task
from assay.verify import Options, verify_task
from assay.vocabulary import EffortTier


def shrink_fault(fault: Fault, store: Path, zygote: Zygote, seconds: float = 60.0) -> tuple[FindingRecord, Shrunk]:
    """The finding of a fault as it was found, and its smallest input."""
    task = parse_task(fault.reference, path="reference.py", id=fault.name)
    candidate = parse_candidate(fault.candidate, path="candidate.py")
    tier = EffortTier.STANDARD if fault.gate == "shapes" else EffortTier.QUICK
    only = (fault.gate, "values") if fault.gate == "input_mutation" else (fault.gate,)
    report = verify_task(task, candidate, zygote=zygote, options=Options(
        device="cpu", seed=11, tier=tier, only=only, store=str(store)))
    finding = next(f for f in report.findings if f.slug == fault.gate)
    with Store.open(store) as kept:
        shrunk = shrink(kept, finding.id, zygote, seconds=seconds)
        return kept.finding(finding.id), shrunk


def sizes_of(shrunk: Shrunk, fault: Fault) -> dict[str, int]:
    """The sizes that a search ended at, by name."""
    return {name: shrunk.bundle.probe.sizes.get(name, -1) for name in fault.minimum}
