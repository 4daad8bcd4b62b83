"""Small files for the command line, and a way to call it in this process or in one of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.doubling import REFERENCE, RIGHT

from assay import cli

WRONG = RIGHT.replace("x + x", "x * 2.001")
HANGING = RIGHT.replace("return x + x", "while True: pass")


@dataclass(frozen=True)
class Said:
    """What a command said."""

    status: int
    out: str
    err: str


@pytest.fixture
def files(tmp_path: Path) -> Path:
    for name, text in {"reference": REFERENCE, "right": RIGHT, "wrong": WRONG, "hanging": HANGING}.items():
        (tmp_path / f"{name}.py").write_text(text)
    return tmp_path


@pytest.fixture
def assay(capsys: pytest.CaptureFixture[str]) -> Callable[..., Said]:
    """Run a command in this process."""

    def run(*arguments: object) -> Said:
        capsys.readouterr()
        with pytest.raises(SystemExit) as stopped:
            cli.main([str(a) for a in arguments])
        said = capsys.readouterr()
        assert isinstance(stopped.value.code, int)
        return Said(stopped.value.code, said.out, said.err)

    return run


def start(*arguments: object, temporary: Path) -> subprocess.Popen[str]:
    """Start a command in a process of its own, whose temporary files all go below one folder."""
    return subprocess.Popen(
        [sys.executable, "-m", "assay", *(str(a) for a in arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "TMPDIR": str(temporary)},
    )
