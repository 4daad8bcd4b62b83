"""Verdicts made by hand, for tests of keeping them."""

from __future__ import annotations

import torch

from assay.evidence import Bundle, Captured, Evidence, with_ids
from assay.probe.model import Draw, Probe
from assay.report.model import CandidateInfo, Coverage, Finding, Report, TaskInfo, Timing
from assay.task import Candidate, Task
from assay.vocabulary import Label, Reason, Tier

REASONS = (Reason.VALUE, Reason.SHAPE, Reason.NAN_SWALLOWED)


def task_and_candidate(body: str) -> tuple[Task, Candidate]:
    task = Task(id="plus", source="class Model: ...\n", path="reference.py")
    return task, Candidate(id="mine", source=f"def ModelNew(x):\n    return {body}\n")


def report_of(task: Task, candidate: Candidate, *, findings: int) -> Report:
    probe = Probe(id="values/draw-0", gate="values", draws=(Draw(seed=3),))
    return Report(
        label=Label.REJECTED if findings else Label.CONTRACT, scope="cpu-emulation", tier="quick",
        task=TaskInfo(id=task.id, format=task.format, sha256=task.digest),
        candidate=CandidateInfo(language="torch", entry="ModelNew", sha256=candidate.digest), gates=(),
        findings=tuple(
            Finding(gate="CMP-01", slug="values", reason=reason, tier=Tier.WRONG, tolerance_free=True,
                    expected="1", actual="2", probe=probe.id) for reason in REASONS[:findings]),
        probes={probe.id: probe} if findings else {},
        coverage=Coverage(probes_planned=1, probes_run=1, probes_undecided=0, gates_passed=0, gates_undecided=0),
        contract={}, environment={"device": "cpu"}, seed=5,
        timing=Timing(total_s=1.0, start_s=0.0, study_s=0.0, oracle_s=0.0, candidate_s=0.0))


def evidence_of(report: Report) -> Evidence:
    named = with_ids(report)
    tensors = {"input.0.0": torch.tensor([1.0, 2.0]), "actual.0.0": torch.tensor([1 + 2j])}
    return Evidence(
        context={"device": "cpu", "study": {"task": "t"}},
        bundles={f.id: Bundle(gate=f.slug, reason=f.reason.value, probes=(report.probes[f.probe],), seed=5)
                 for f in named.findings},
        captured={f.id: Captured(tensors) for f in named.findings})
