"""What is seen of the GPU while a verdict is made: asked for once, never waited for long."""

from __future__ import annotations

import ctypes
import os
import stat
import time
from pathlib import Path
from typing import Any

import pytest

from assay.bench import machine
from assay.environment import DeviceState

UUID = "GPU-8f2c1a34-0000-1111-2222-333344445555"


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


def test_only_what_is_named_is_asked_for(path: Path) -> None:
    _tool(path, 'test "$3" = --query-gpu=temperature.gpu,power.draw && echo "41, 250.10 W"')
    told = DeviceState("cuda", ("temperature.gpu", "power.draw")).read()
    assert told == {"temperature.gpu": "41", "power.draw": "250.10 W"}
    assert DeviceState("cuda").read() == {}, "it was asked for something else"


def test_a_tool_that_nobody_reads_is_ended(path: Path) -> None:
    _tool(path, "exec sleep 60")
    state = DeviceState("cuda")
    child = state._asked
    assert child is not None
    state.close()
    assert child.returncode is not None
    state.close()
    assert state.read() == {}


class _Library:
    """A management library that knows no device, and keeps what it was asked."""

    def __init__(self) -> None:
        self.asked: list[Any] = []

    def nvmlInit_v2(self) -> int:
        return 0

    def nvmlShutdown(self) -> int:
        return 0

    def nvmlDeviceGetHandleByIndex_v2(self, index: int, handle: object) -> int:
        self.asked.append(index)
        return 6

    def nvmlDeviceGetHandleByUUID(self, name: bytes, handle: object) -> int:
        self.asked.append(name)
        return 6


@pytest.mark.parametrize(("visible", "asked", "named"), [
    ("", 0, "0"), ("2,0", 2, "2"), (UUID, UUID.encode(), UUID)])
def test_the_visible_gpu_is_the_one_that_is_timed(visible: str, asked: object, named: str, path: Path,
                                                  monkeypatch: pytest.MonkeyPatch) -> None:
    library = _Library()
    monkeypatch.setattr(ctypes, "CDLL", lambda name: library)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    _tool(path, 'echo "1980 MHz, 3201 MHz, 41, 250.10 W, $2"')
    assert machine.clocks() == dict(zip(machine.QUERY, ("1980 MHz", "3201 MHz", "41", "250.10 W", named), strict=True))
    assert library.asked == [asked]
    assert DeviceState("cuda", machine.QUERY).read()[machine.QUERY[-1]] == named
