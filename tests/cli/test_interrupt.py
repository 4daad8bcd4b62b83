"""Ctrl-C and a polite kill end a run at once and leave nothing behind."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from .conftest import start


def below(folder: Path) -> list[int]:
    """Processes whose temporary files go below a folder: the command, its warm parent and all workers."""
    marks = (f"TMPDIR={folder}".encode(), f"HOME={folder}".encode())
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            environment = Path(f"/proc/{pid}/environ").read_bytes()
        except OSError:
            continue
        if any(mark in environment for mark in marks):
            found.append(int(pid))
    return found


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_run_that_is_interrupted_cleans_up(files: Path, tmp_path: Path, number: int, status: int) -> None:
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    report = tmp_path / "report.json"
    process = start(
        "verify",
        files / "reference.py",
        files / "hanging.py",
        "--device",
        "cpu",
        "--json",
        report,
        temporary=temporary,
    )
    assert process.stderr is not None
    # the candidate hangs in its first call, which this line announces
    while "first call" not in process.stderr.readline():
        assert process.poll() is None
    assert below(temporary)
    process.send_signal(number)
    _, err = process.communicate(timeout=60)
    assert process.returncode == status
    assert "Traceback" not in err
    assert below(temporary) == []
    assert [p.name for p in temporary.iterdir() if not p.name.startswith("assay-tasks-")] == []
    assert not report.exists()
    assert list(tmp_path.glob(".assay-*")) == []
