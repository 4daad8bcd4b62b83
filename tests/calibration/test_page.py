"""docs/tolerance.md quotes the result files, and nothing else."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs/tolerance.md").read_text(encoding="utf-8")


def table(marker: str) -> list[list[str]]:
    """Rows of the table after a marker, its heading left out."""
    text = PAGE.split(f"<!-- {marker} -->", 1)[1].lstrip("\n").split("\n\n", 1)[0]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines()[2:]]


@pytest.mark.parametrize("name", ["oracle.cpu.json", "opinfo.cpu.json", "coverage.cpu.json"])
def test_metrics_are_those_of_the_file(name: str) -> None:
    metrics = json.loads((ROOT / "benchmarks/results" / name).read_text())["metrics"]
    rows = table(name)
    assert len(rows) >= 6
    assert [f"{metrics[key]:g}" for key, _ in rows] == [value for _, value in rows]


def test_faults_are_those_of_the_file() -> None:
    recorded = json.loads((ROOT / "benchmarks/results/oracle.cpu.json").read_text())["rows"]
    faults = {row["fault"]: row for row in recorded if "fault" in row}
    rows = table("faults of oracle.cpu.json")
    assert len(rows) >= 10
    for fault, ratio, size in rows:
        assert (ratio, size) == (f"{faults[fault]['ratio']:g}", f"{faults[fault]['size']:g}")


def test_every_metric_named_in_the_text_exists() -> None:
    known: set[str] = set()
    for name in ("oracle.cpu.json", "coverage.cpu.json"):
        known |= json.loads((ROOT / "benchmarks/results" / name).read_text())["metrics"].keys()
    named = set(re.findall(r"`((?:replay_cost|lambda|small|controls|cached|native)_\w+)`", PAGE))
    assert named
    assert named <= known
