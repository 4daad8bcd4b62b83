"""What is seen of the GPU while a verdict is made: asked for once, never waited for long."""

from __future__ import annotations

import os
import stat
import time
from pathlib import Path

import pytest

from assay.environment import DeviceState


def _tool(folder: Path, body: str) -> None:
    tool = folder / "nvidia-smi"
    tool.write_text(f"#!/bin/sh\n{body}\n")
    tool.chmod(tool.stat().st_mode | stat.S_IXUSR)


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder whose programs are found first."""
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    return tmp_path


def test_the_visible_gpu_is_asked(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _tool(path, 'echo "$2 MHz, 3201 MHz, 41"')
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3,4")
    state = DeviceState("cuda")
    assert state.read() == {"clocks.sm": "3 MHz", "clocks.mem": "3201 MHz", "temperature.gpu": "41"}
    assert state.read() == {}, "it was read"


@pytest.mark.parametrize("body", ["exit 9", "echo", "exec sleep 60"])
def test_a_tool_that_says_nothing_is_no_error(path: Path, body: str) -> None:
    _tool(path, body)
    began = time.monotonic()
    assert DeviceState("cuda").read(patience=0.2) == {}
    assert time.monotonic() - began < 50, "it was waited for"


def test_of_a_cpu_nothing_is_asked(path: Path) -> None:
    _tool(path, "touch asked; echo 1, 2, 3")
    assert DeviceState("cpu").read() == {}
    assert not Path("asked").exists()
