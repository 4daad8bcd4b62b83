"""Real candidates, judged by one gate."""

from __future__ import annotations

import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from assay.contract import Contract
from assay.report.model import Finding, GateResult, Report
from assay.run.process import Zygote
from assay.verify import Options, load_pair, verify_task
from assay.vocabulary import EffortTier

IMPORTS = """
import torch
import torch.nn as nn
import triton
import triton.language as tl
"""

Judge = Callable[..., "Judged"]


class Judged:
    """A report seen through one gate."""

    def __init__(self, report: Report, slug: str) -> None:
        self.report = report
        self.gate: GateResult = next(g for g in report.gates if g.slug == slug)
        self.findings: list[Finding] = [f for f in report.findings if f.slug == slug]
        self.reasons = {f.reason.value for f in self.findings}
        self.outcome = self.gate.outcome.value


@pytest.fixture
def judge(zygote: Zygote, tmp_path: Path) -> Judge:
    """Judge a candidate's source by one gate (and others that it needs beside it), on the emulated device."""

    def run(
        gate: str,
        reference: str,
        candidate: str,
        *,
        beside: tuple[str, ...] = (),
        contract: dict[str, Any] | None = None,
        tier: str = "quick",
    ) -> Judged:
        paths = []
        for name, source in (("reference", reference), ("candidate", candidate)):
            path = tmp_path / f"{name}.py"
            path.write_text(IMPORTS + textwrap.dedent(source))
            paths.append(path)
        task, found = load_pair(*paths)
        options = Options(device="cpu", seed=5, tier=EffortTier(tier), only=(gate, *beside), lanes=1)
        report = verify_task(
            task, found, contract=Contract.from_data(contract or {}), options=options, zygote=zygote
        )
        return Judged(report, gate)

    return run
