"""How long a first verdict takes, and whether the judge survives every hostile candidate.

Prints a table and writes benchmarks/results/first-verdict.cpu.json. Metrics, in seconds where they end in _s:

- demo_s: `assay demo`, everything, in a process of its own; demo_as_expected: 1 when its status was 0.
- screen_warm_median_s, verify_warm_median_s: one warm parent, median over all kernels of all examples, right
  and wrong; processes already started.
- verify_rowwise_warm_median_s: the same over the row-wise examples alone.
- verify_cold_s: `assay verify` of one pair in a new process, median of three.
- start_cold_s: the part of it that starts processes and imports libraries.
- hostile_survived, hostile_total: hostile candidates that left a complete report, which does not accept them,
  and a judge that goes on.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from assay import pages
from assay.demo import SEED, Case, load_cases
from assay.gates import BATTERY
from assay.report.model import Report
from assay.run.process import Zygote
from assay.screen import screen_task
from assay.verify import Options, load_pair, verify_task
from assay.vocabulary import EffortTier, Label
from common import ROOT, write_result

HOSTILE = ROOT / "tests/exploits/hostile"
ROWWISE = ("cross_entropy", "cumsum", "layer_norm", "rms_norm_residual", "row_argmax", "row_max", "row_sum",
           "softmax")
COLD_RUNS = 3
HOSTILE_SECONDS = 20.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, help="another place for the result file")
    parser.add_argument("--without-hostile", action="store_true", help="leave the hostile candidates out")
    options = parser.parse_args()
    console = Console()
    cases = load_cases(pages.examples())
    metrics: dict[str, float] = {}

    metrics["demo_s"], status, printed = timed("demo", "--device", "cpu")
    if "pass the usual screen" not in printed:
        raise SystemExit(f"the demo broke off with status {status}")
    metrics["demo_as_expected"] = float(status == 0)
    console.print(f"assay demo: {metrics['demo_s']:.1f} s, status {status}")
    metrics["verify_cold_s"], metrics["start_cold_s"] = cold()
    console.print(f"cold verify: {metrics['verify_cold_s']:.1f} s")

    rows = list(warm(cases))
    metrics["screen_warm_median_s"] = statistics.median(r["screen_s"] for r in rows)
    metrics["verify_warm_median_s"] = statistics.median(r["verify_s"] for r in rows)
    metrics["verify_rowwise_warm_median_s"] = statistics.median(
        r["verify_s"] for r in rows if r["task"] in ROWWISE)
    console.print(table(rows))
    if not options.without_hostile:
        hostile_rows = list(hostile())
        metrics["hostile_total"] = len(hostile_rows)
        metrics["hostile_survived"] = sum(r["survived"] for r in hostile_rows)
        rows += hostile_rows
        for row in hostile_rows:
            if not row["survived"]:
                console.print(f"not survived: {row['hostile']}: {row['why']}")
    for name, value in metrics.items():
        console.print(f"{name:30} {value:.3f}")
    write_result("first-verdict", "cpu", rounded(metrics), [rounded(row) for row in rows], out=options.out)


def rounded(record: dict[str, Any]) -> dict[str, Any]:
    """The record with its floats cut to a tenth of a millisecond."""
    return {k: round(v, 4) if isinstance(v, float) else v for k, v in record.items()}


def timed(*arguments: str) -> tuple[float, int, str]:
    """Wall-clock seconds, exit status and standard output of one command in a process of its own."""
    began = time.monotonic()
    command = [sys.executable, "-m", "assay", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return time.monotonic() - began, done.returncode, done.stdout


def cold() -> tuple[float, float]:
    """Median seconds of a verification from nothing, and of its start alone."""
    walls, starts = [], []
    pair = [str(pages.examples() / "softmax" / name) for name in ("reference.py", "right.py")]
    for _ in range(COLD_RUNS):
        with tempfile.NamedTemporaryFile(suffix=".json") as file:
            options = ("--device", "cpu", "--seed", str(SEED), "--json", file.name)
            wall, status, _ = timed("verify", *pair, *options)
            if status != 0:
                raise SystemExit(f"the right softmax kernel was not accepted: status {status}")
            walls.append(wall)
            starts.append(json.loads(Path(file.name).read_text())["timing"]["start_s"])
    return statistics.median(walls), statistics.median(starts)


def warm(cases: list[Case]) -> Iterator[dict[str, Any]]:
    """Screen and verify every case on one warm parent."""
    with Zygote() as zygote:
        zygote.wait_ready()
        for case in cases:
            task, candidate = load_pair(case.reference, case.candidate)
            began = time.monotonic()
            screened = screen_task(task, candidate, device="cpu", zygote=zygote)
            middle = time.monotonic()
            report = verify_task(task, candidate, options=Options(device="cpu", seed=SEED), zygote=zygote)
            yield {"task": case.task, "kernel": case.candidate.name, "screen_s": middle - began,
                   "verify_s": time.monotonic() - middle, "screen": screened.outcome.value,
                   "label": report.label.value, "oracle_s": report.timing.oracle_s,
                   "candidate_s": report.timing.candidate_s, "probes": report.coverage.probes_planned}


def hostile() -> Iterator[dict[str, Any]]:
    """Verify every hostile candidate in turn with one judge, on one warm parent."""
    reference = HOSTILE / "reference.py"
    options = Options(device="cpu", seed=SEED, tier=EffortTier.QUICK, timeout=HOSTILE_SECONDS)
    with Zygote() as zygote:
        for path in sorted(HOSTILE.glob("*.py")):
            if path == reference:
                continue
            began = time.monotonic()
            task, candidate = load_pair(reference, path)
            try:
                report = verify_task(task, candidate, options=options, zygote=zygote)
                why = fault(report, zygote)
            except Exception as error:
                why = f"{type(error).__name__}: {error}"
            yield {"hostile": path.name, "survived": not why, "why": why,
                   "verify_s": time.monotonic() - began}


def fault(report: Report, zygote: Zygote) -> str:
    """What is wrong with a report on a hostile candidate; empty when nothing is."""
    named = {gate.slug for gate in report.gates}
    missing = [gate.slug for gate in BATTERY if not gate.opt_in and gate.slug not in named]
    if missing:
        return f"no outcome for {', '.join(missing)}"
    if report.label is Label.CONTRACT:
        return "it was accepted"
    broken = [gate.slug for gate in report.gates if gate.outcome.value == "error"]
    if broken:
        return f"gates in error: {', '.join(broken)}"
    return "" if zygote.alive else "the warm parent is gone"


def table(rows: list[dict[str, Any]]) -> Table:
    shown = Table(box=None)
    for name in ("task", "kernel", "screen", "s", "label", "s ", "oracle s", "candidate s", "probes"):
        shown.add_column(name)
    for row in rows:
        shown.add_row(row["task"], row["kernel"], row["screen"], f"{row['screen_s']:.2f}", row["label"],
                      f"{row['verify_s']:.2f}", f"{row['oracle_s']:.2f}", f"{row['candidate_s']:.2f}",
                      str(row["probes"]))
    return shown


if __name__ == "__main__":
    main()
