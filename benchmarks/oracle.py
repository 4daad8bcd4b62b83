"""How good the oracle is, and what it costs: right and wrong implementations, operators covered, replay time.

    python benchmarks/oracle.py                  # everything; what is finished is kept under build/oracle
    python benchmarks/oracle.py --seconds 540    # stop after nine minutes; the same command goes on there
    python benchmarks/oracle.py --part 3/8       # the third of eight parts of the controls and faults, kept
    python benchmarks/oracle.py --join 8         # those eight parts, and everything else
    python benchmarks/oracle.py --renew costs    # that stage alone, into the file that is there

Prints tables and writes benchmarks/results/oracle.DEVICE.json; on the CPU also opinfo.cpu.json beside it, one
row per operator of PyTorch's database and dtype. Metrics:

- lambda, lambda_needed: the factor in use, and what the calibration half asks for with a margin of two.
- controls, control_findings, heldback_controls, heldback_findings: right implementations and false alarms.
- faults, faults_caught, small_faults, small_faults_caught: wrong implementations, and the semantic ones of
  relative size 1e-6 to 1e-3 among them; precision_faults, precision_faults_attributed: to the right mode.
- replay_cost_ratio, replay_cost_ratio_worst: time of a whole evaluation (native run, exact run and twelve
  perturbed runs) over that of one float64 evaluation of the reference just before or after it, whichever is
  faster; on the CPU both in the processor time of one thread. Median and worst over the tasks.
  replay_cost_ratio_products is the median over tasks that are mostly products, replay_cost_ratio_models that over
  layers and models of several operators; that to the exact run compares with a replay without perturbed runs,
  which also goes operator by operator.
- cached_truth_ms, cached_truth_ms_worst: time of a truth that the cache holds, the judge's side included.
- cached_probe_ms, _mean, _worst: what the oracle adds to one probe of a standard verification whose truths the
  cache holds, over every probe planned for the example tasks; cached_probes: how many.
- opinfo_modelled_share: share of the database's deterministic operators, by operator and dtype, whose
  replay had a model for everything.
"""

from __future__ import annotations

import argparse
import dataclasses
import hashlib
import itertools
import json
import shutil
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from rich.console import Console

import replay_cost
from assay.calibration.calibrate import Calibration, calibrate
from assay.calibration.cli import controls_table, faults_table, summary
from assay.calibration.measure import ControlResult, FaultResult
from assay.calibration.opinfo import Coverage, coverage
from assay.oracle import memory
from common import ROOT, result_path, write_result
from replay_cost import cached_probes, cached_truths, cost, cost_metrics, cost_table, tasks


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--part", type=parted, default=(None, 1), metavar="N or I/N",
                        help="about one control and one fault in N; I/N: keep the I-th of N such parts, and stop")
    parser.add_argument("--join", type=int, default=None, metavar="N", help="put N kept parts together")
    parser.add_argument("--renew", choices=("calibration", "costs"), action="append", default=[],
                        help="measure this stage only, and put it in place of what the result file has of it")
    parser.add_argument("--out", type=Path, default=None)
    parser.add_argument("--seconds", type=float, default=None, help="stop after about so long")
    parser.add_argument("--fresh", action="store_true", help="forget what is finished")
    options = parser.parse_args()
    device = options.device
    torch.set_num_threads(1)
    memory.keep_freed()
    console = Console()
    index, parts = options.part
    deadline = time.monotonic() + options.seconds if options.seconds is not None else float("inf")
    kept = Kept(ROOT / "build" / "oracle", f"{device}-{1 if index else parts}", options.fresh)
    if index is not None:
        kept.put(f"part-{index}-of-{parts}", measured(parts, index - 1, device))
        return
    metrics: dict[str, float] = {}
    rows: list[dict[str, Any]] = []

    def calibrated() -> list[Any]:
        began = time.monotonic()
        calibration = kept.joined(options.join) if options.join else calibrate(parts, device)
        console.print(controls_table(calibration), faults_table(calibration))
        for line in summary(calibration):
            console.print(line)
        return [tidy(calibration.metrics()) | {"calibration_s": rounded(time.monotonic() - began)},
                [tidy(row) for row in calibration.rows()]]

    def costs_of() -> list[Any]:
        return [tidy(cost(*task, device=device)) for task in tasks(device)]

    stages: dict[str, Callable[[], list[Any]]] = {
        "calibration": calibrated, "costs": costs_of, "truths": lambda: cached_truths(device),
        "probes": lambda: cached_probes(device),
    }
    if options.renew:
        renew({name: stages[name]() for name in options.renew}, console, device, options.out)
        return
    done: dict[str, list[Any]] = {}
    for name, stage in stages.items():
        if (found := kept.get(name)) is None:
            if time.monotonic() > deadline:
                console.print("stopped by its limit; run it again to go on")
                return
            found = stage()
            kept.put(name, found)
        done[name] = found
    metrics |= done["calibration"][0]
    rows += done["calibration"][1]
    costs = done["costs"]
    console.print(cost_table(costs))
    metrics |= cost_metrics(costs)
    rows += costs
    metrics["cached_truth_ms"] = statistics.median(done["truths"])
    metrics["cached_truth_ms_worst"] = max(done["truths"])
    probes = done["probes"]
    metrics |= {"cached_probes": float(len(probes)), "cached_probe_ms": statistics.median(probes),
                "cached_probe_ms_mean": statistics.mean(probes), "cached_probe_ms_worst": max(probes)}
    if device == "cpu":
        covered = kept.coverage(deadline)
        if covered is None:
            console.print("stopped by its limit; run it again to go on")
            return
        metrics |= share(covered)
        if parts == 1:
            write_result("opinfo", device, tidy(share(covered)), [tidy(dataclasses.asdict(c)) for c in covered])
    for name, value in metrics.items():
        console.print(f"{name:32} {value:.4g}")
    write_result("oracle", device, tidy(metrics), rows, out=options.out)


def parted(text: str) -> tuple[int | None, int]:
    """`N` as (None, N), `I/N` as (I, N)."""
    first, slash, last = text.partition("/")
    index, parts = (int(first), int(last)) if slash else (None, int(first))
    if parts < 1 or not (index is None or 1 <= index <= parts):
        raise argparse.ArgumentTypeError(f"expected N or I/N with I from 1 to N, got {text}")
    return index, parts


def measured(parts: int, offset: int, device: str) -> list[Any]:
    """Results of one part of the controls and faults, as plain data."""
    calibration = calibrate(parts, device, offset=offset)
    return [[dataclasses.asdict(r) for r in results] for results in (calibration.controls, calibration.faults)]


def renew(done: dict[str, list[Any]], console: Console, device: str, out: Path | None) -> None:
    """Put stages in place of those of the result file."""
    path = out or result_path("oracle", device)
    before = json.loads(path.read_text(encoding="utf-8"))
    metrics, rows = before["metrics"], before["rows"]
    if "calibration" in done:
        renewed, controls = done["calibration"]
        metrics |= renewed
        rows = controls + [row for row in rows if "operator" not in row and "fault" not in row]
    if "costs" in done:
        costs = done["costs"]
        metrics |= cost_metrics(costs)
        rows = [row for row in rows if "ratio_to_exact_run" not in row] + costs
        console.print(cost_table(costs))
        for name in cost_metrics(costs):
            console.print(f"{name:32} {metrics[name]:.4g}")
    write_result("oracle", device, tidy(metrics), rows, out=out)


def sources() -> str:
    """Digest of the oracle, the controls and this file."""
    digest = hashlib.sha256()
    folders = (ROOT / "src/assay/oracle", ROOT / "src/assay/calibration")
    measured_by = [Path(__file__), Path(replay_cost.__file__)]
    for path in [*measured_by, *sorted(p for folder in folders for p in folder.glob("*.py"))]:
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


class Kept:
    """Finished parts of a run, as long as what they measure is the same."""

    def __init__(self, folder: Path, run: str, fresh: bool) -> None:
        self._path = folder / f"{run}-{sources()}"
        if fresh:
            shutil.rmtree(self._path, ignore_errors=True)
        self._path.mkdir(parents=True, exist_ok=True)

    def get(self, name: str) -> list[Any] | None:
        """What a stage came to; None where it is not finished."""
        path = self._path / f"{name}.json"
        return json.loads(path.read_text(encoding="utf-8")) if path.exists() else None

    def put(self, name: str, value: list[Any]) -> None:
        """Keep what a stage came to."""
        partial = self._path / f"{name}.partial"
        partial.write_text(json.dumps(value), encoding="utf-8")
        partial.replace(self._path / f"{name}.json")

    def joined(self, parts: int) -> Calibration:
        """The calibration of which all parts are kept; raises SystemExit where one is missing."""
        found = [self.get(f"part-{i}-of-{parts}") for i in range(1, parts + 1)]
        missing = [str(i) for i, part in enumerate(found, 1) if part is None]
        if missing:
            raise SystemExit(f"--join: part {', '.join(missing)} of {parts} missing; run --part I/{parts} for each")
        controls, faults = ([part[kind] for part in found if part is not None] for kind in (0, 1))
        return Calibration(
            tuple(ControlResult(**{**row, "unmodelled": tuple(row["unmodelled"])}) for row in interleaved(controls)),
            tuple(FaultResult(**row) for row in interleaved(faults)))

    def coverage(self, deadline: float) -> list[Coverage] | None:
        """Coverage of the operator database, operator by operator; None where the time ends before it does."""
        path = self._path / "opinfo.jsonl"
        lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
        found = [Coverage(**{**row, "unmodelled": tuple(row["unmodelled"])}) for row in map(json.loads, lines)]
        # the last operator may have been stopped between its dtypes
        last = found[-1].name if found else ""
        found = [c for c in found if c.name != last]
        path.write_text("".join(json.dumps(dataclasses.asdict(c)) + "\n" for c in found), encoding="utf-8")
        with path.open("a", encoding="utf-8") as file:
            for covered in coverage(skip=frozenset(c.name for c in found)):
                if time.monotonic() > deadline:
                    return None
                found.append(covered)
                file.write(json.dumps(dataclasses.asdict(covered)) + "\n")
                file.flush()
        return found


def interleaved(parts: list[list[Any]]) -> list[Any]:
    """Results in the order of the whole: part i holds every N-th of them from the i-th on."""
    missing = object()
    turns = itertools.zip_longest(*parts, fillvalue=missing)
    return [row for turn in turns for row in turn if row is not missing]


def share(covered: list[Coverage]) -> dict[str, float]:
    """Counts of outcomes, and the share of what has a deterministic result that is modelled throughout."""
    counts = {f"opinfo_{o.replace(' ', '_')}": float(sum(c.outcome == o for c in covered))
              for o in sorted({c.outcome for c in covered})}
    judged = [c for c in covered if c.outcome in ("modelled", "conservative", "failed", "timeout", "crashed")]
    modelled = [c for c in judged if c.outcome == "modelled"]
    return counts | {"opinfo_modelled_share": len(modelled) / max(1, len(judged)),
                     "opinfo_operators": float(len({c.name for c in judged})),
                     "opinfo_mostly_decided_share": sum(c.decided > 0.5 for c in modelled) / max(1, len(modelled))}


def tidy(row: dict[str, Any]) -> dict[str, Any]:
    """Numbers to four significant digits, infinity (which JSON lacks) as text, nothing that is empty."""
    return {k: rounded(v) for k, v in row.items() if v not in ((), [], "")}


def rounded(value: Any) -> Any:
    if isinstance(value, float):
        return float(f"{value:.4g}") if abs(value) < float("inf") else "inf"
    return value


if __name__ == "__main__":
    main()
