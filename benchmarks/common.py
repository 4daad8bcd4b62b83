"""The result file that every benchmark writes."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
from datetime import date
from importlib import metadata
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "benchmarks" / "results"


def write_result(name: str, device: str, metrics: dict[str, float], rows: list[dict[str, Any]], *,
                 out: Path | None = None) -> Path:
    """Write `benchmarks/results/NAME.DEVICE.json`, or `out`; the path written.

    Args:
        name: name of the benchmark.
        device: `cpu` or `cuda`; a GPU is named by its product.
        metrics: flat name to number.
        rows: one record per thing measured.
        out: another place to write to.
    """
    gpu, driver = _gpu() if device == "cuda" else (None, None)
    record = {
        "name": name, "device": gpu or f"{platform.machine()} CPU, {_cores()} cores", "driver": driver,
        "python": platform.python_version(), "torch": _version("torch"), "triton": _version("triton"),
        "commit": _commit(), "date": date.today().isoformat(),
        "command": "python " + " ".join([Path(sys.argv[0]).name, *_settings(sys.argv[1:])]), "metrics": metrics,
        "rows": rows,
    }
    path = out or result_path(name, device)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    return path


def result_path(name: str, device: str) -> Path:
    """Where the result of a benchmark on `cpu` or `cuda` is kept."""
    gpu = _gpu()[0] if device == "cuda" else None
    short = (gpu or "cpu").lower().replace("nvidia ", "").replace(" ", "-")
    return RESULTS / f"{name}.{short}.json"


def _settings(arguments: list[str]) -> list[str]:
    """The arguments without `--out` and its value: where a result lay first says nothing of it."""
    after = ["", *arguments]
    return [a for before, a in zip(after, arguments, strict=False) if "--out" not in (before, a.partition("=")[0])]


def _cores() -> int:
    return len(os.sched_getaffinity(0))


def _gpu() -> tuple[str | None, str | None]:
    try:
        done = subprocess.run(["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"],
                              capture_output=True, text=True, check=True, timeout=30)
    except (OSError, subprocess.SubprocessError):
        return None, None
    name, driver = done.stdout.splitlines()[0].split(", ")
    return name, driver


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _commit() -> str | None:
    """The commit, or what the environment names where the tree travelled without its history."""
    if os.environ.get("ASSAY_COMMIT"):
        return os.environ["ASSAY_COMMIT"]
    try:
        done = subprocess.run(["git", "rev-parse", "--short=12", "HEAD"], capture_output=True, text=True, check=True,
                              cwd=ROOT, timeout=30)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()
