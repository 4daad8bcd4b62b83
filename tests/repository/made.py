"""Reports and repositories made by hand."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

from tests.doubling import RIGHT

from assay.report.model import CandidateInfo, Coverage, Finding, GateResult, Report, TaskInfo, Timing
from assay.vocabulary import Label, Outcome, Reason, Tier

WRONG = RIGHT.replace("x + x", "x * 2 if x.shape[0] == 6 else x * 3")
IDS = {"values": "CMP-01", "shapes": "CMP-03", "nonfinite": "EXC-01", "repeatability": "ORD-02",
       "accumulation": "PRC-02", "streams": "STM-01"}


def finding(slug: str, *, tolerance_free: bool = False, tier: Tier = Tier.WRONG) -> Finding:
    return Finding(gate=IDS[slug], slug=slug, reason=Reason.VALUE, tier=tier, tolerance_free=tolerance_free,
                   expected="1.0", actual="2.0", probe=f"{slug}/draw-0")


def report(*findings: Finding, undecided: tuple[str, ...] = (), advisory: tuple[str, ...] = (),
           scope: str = "cpu-emulation", label: Label | None = None, **rest: Any) -> Report:
    """A verdict with these findings; every gate of `IDS` that has none passed, unless it is undecided."""
    failed = {f.slug for f in findings}
    gates = tuple(GateResult(
        id=id, slug=slug, blocking=slug not in advisory,
        outcome=Outcome.FAIL if slug in failed else Outcome.INCONCLUSIVE if slug in undecided else Outcome.PASS,
        reason=Reason.VALUE if slug in failed else Reason.BUDGET if slug in undecided else None,
    ) for slug, id in IDS.items())
    rejected = any(f.slug not in advisory for f in findings)
    open_gates = any(g.blocking and g.outcome is Outcome.INCONCLUSIVE for g in gates)
    found = Label.REJECTED if rejected else Label.SCREENED if open_gates else Label.CONTRACT
    return Report(
        label=label or found, scope=scope, tier="standard",
        task=TaskInfo(id="task", format="kernelbench", sha256="a" * 64),
        candidate=CandidateInfo(language="torch", entry="ModelNew", sha256="b" * 64), gates=gates, findings=findings,
        coverage=Coverage(probes_planned=1, probes_run=1, probes_undecided=0, gates_passed=5, gates_undecided=0),
        contract=rest.pop("contract", {}), environment={}, seed=1,
        timing=Timing(total_s=1, start_s=0, study_s=0, oracle_s=0, candidate_s=0), **rest)


def write(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return root


def git(root: Path, *arguments: str) -> str:
    done = subprocess.run(
        ["git", "-C", str(root), "-c", "user.name=t", "-c", "user.email=t@example.org", *arguments],
        check=True, capture_output=True, text=True)
    return done.stdout.strip()


def commit(root: Path, message: str = "change") -> str:
    git(root, "add", "--all")
    git(root, "commit", "--quiet", "--allow-empty", "--message", message)
    return git(root, "rev-parse", "HEAD")
