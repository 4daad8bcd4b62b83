"""A way to call the gate in this process, where what it is made of cannot change between two runs."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from assay import cli
from assay.repository.model import GateReport


@dataclass(frozen=True)
class Ran:
    """What a gate said.

    Attributes:
        status: exit status.
        out: standard output.
        err: standard error.
        report: its JSON; None where it refused.
    """

    status: int
    out: str
    err: str
    report: GateReport | None

    def decisions(self) -> dict[str, str]:
        assert self.report is not None
        return {pair.name: pair.decision.value for pair in self.report.pairs}

    def cached(self) -> dict[str, tuple[str, ...]]:
        assert self.report is not None
        return {pair.name: pair.cached for pair in self.report.pairs}


Gate = Callable[..., Ran]


@pytest.fixture
def gate(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Gate:
    def run(*arguments: object) -> Ran:
        path = tmp_path / "gate-report.json"
        path.unlink(missing_ok=True)
        capsys.readouterr()
        with pytest.raises(SystemExit) as stopped:
            cli.main(["gate", *map(str, arguments), "--json", str(path)])
        said = capsys.readouterr()
        assert isinstance(stopped.value.code, int)
        report = GateReport.model_validate(json.loads(path.read_text())) if path.exists() else None
        return Ran(stopped.value.code, said.out, said.err, report)

    return run
