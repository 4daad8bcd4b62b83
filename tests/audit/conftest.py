"""Commands in this process, a small corpus, and one audit of it that many tests read."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from assay.audit.outcome import Checks
from assay.audit.settings import Settings

from ..cli.conftest import assay as assay

REFERENCE = """import torch
import torch.nn as nn

ROWS = 6
COLUMNS = 7


class Model(nn.Module):
    def forward(self, x):
        return {expression}


def get_inputs():
    return [torch.randn(ROWS, COLUMNS)]


def get_init_inputs():
    return []
"""
CANDIDATE = """import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        return {expression}
"""
GATES = ("values", "shapes", "nonfinite", "output_aliasing")
"""Enough of the battery to tell the small corpus apart, and cheap."""


def reference(expression: str) -> str:
    return REFERENCE.format(expression=expression)


def candidate(expression: str) -> str:
    return CANDIDATE.format(expression=expression)


def small_corpus() -> list[dict[str, Any]]:
    """Right and wrong candidates of two tasks, and rows that leave the funnel at every step."""
    double, rows = reference("x * 2"), reference("x.sum(dim=1)")
    common = {"generator": "first", "created": "2026-03-01", "speedup": 1.6}
    later = {"generator": "second", "created": "2026-05-09", "speedup": 0.7}
    return [
        {"id": "double/right", "reference": double, "candidate": candidate("x + x"), "op_class": "elementwise",
         **common},
        {"id": "double/slightly", "reference": double, "candidate": candidate("x * 2.001"),
         "op_class": "elementwise", **later},
        {"id": "double/plainly", "reference": double, "candidate": candidate("x * 3"), "op_class": "elementwise",
         **common},
        {"id": "double/swallows", "reference": double, "op_class": "elementwise",
         "candidate": candidate("torch.where(x == x, x + x, torch.zeros_like(x))"), **later},
        {"id": "rows/right", "reference": rows, "candidate": candidate("x.sum(1)"), **later},
        {"id": "rows/width", "reference": rows, "candidate": candidate("x[:, :7].sum(1) + x[:, 7:].sum(1) * 0.5"),
         **common},
        {"id": "rows/syntax", "reference": rows, "candidate": "class ModelNew(:\n", **common},
        {"id": "rows/module", "reference": rows, "candidate": "import no_such_module_at_all\n" + candidate("x.sum(1)"),
         **common},
        {"id": "broken", "reference": reference("x.no_such_method()"), "candidate": candidate("x"), **common},
        {"id": "unparsable", "reference": "class Model(:\n", "candidate": candidate("x")},
        {"id": "no-inputs", "reference": "class Model:\n    pass\n", "candidate": candidate("x")},
        {"id": "no-candidate", "reference": double},
        {"id": "not-accepted", "reference": double, "candidate": candidate("x"), "speedup": -1.0},
    ]


def write_corpus(path: Path, rows: list[dict[str, Any]] | None = None) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in (rows if rows is not None else small_corpus())))
    return path


def settings(**changes: Any) -> Settings:
    return Settings(**{"checks": Checks("both", ("kernelbench-v0",)), "seed": 3, "tier": "quick", "device": "cpu",
                       "only": GATES, **changes})


COMMAND = ("--both", "--seed", "3", "--tier", "quick", "--device", "cpu", "--workers", "1",
           *(word for gate in GATES for word in ("--only", gate)))
"""Options of the command that make the audit of `settings`."""


def start_audit(corpus: Path, out: Path, *more: str) -> subprocess.Popen[str]:
    """The command in a process of its own, which it may be killed in."""
    return subprocess.Popen([sys.executable, "-m", "assay", "audit", "run", str(corpus), "-o", str(out), *COMMAND,
                             *more], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                            text=True, env={**os.environ, "TMPDIR": str(out.parent)})


@pytest.fixture(scope="session")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of one whole audit of the small corpus. Read it; do not write to it."""
    base = tmp_path_factory.getbasetemp()
    # the processes of one test session share the folder above their own
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "small-audit"
    folder.mkdir(exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "done").exists():
            process = start_audit(write_corpus(folder / "corpus.jsonl"), folder / "whole")
            out, err = process.communicate(timeout=600)
            assert process.returncode == 0, err
            assert "9 rows" in out
            (folder / "done").touch()
    return folder / "whole"


def kill(process: subprocess.Popen[str]) -> None:
    """End a command without a chance to clean up."""
    process.send_signal(signal.SIGKILL)
    process.communicate()
