"""How many verdicts a minute: every kernel of the corpus through the standard tier on one GPU, judges warm.

Run on a machine with a GPU: `python benchmarks/gpu_throughput.py [--jobs N]`. The corpus is judged twice: `first`
with nothing known (each task studied, each truth evaluated), `again` as in a training loop, where tasks come back
with other candidates: then truths are kept, and kernels are still compiled and run. A kernel's time is from the
start of its judging to its verdict while all judges are busy; the shares are of the judges' time.
"""

from __future__ import annotations

import argparse
import statistics
import time
from pathlib import Path
from typing import Any

from assay.pool import Done, Job, Pool
from assay.report.model import Report
from assay.task import parse_candidate
from assay.verify import Options, load_pair
from assay.vocabulary import EffortTier
from common import ROOT, write_result

CORPUS = ROOT / "src" / "assay" / "corpus" / "kernels"
SEED = 17


def _jobs(round_: str, options: Options, limit: int) -> list[Job]:
    jobs = []
    for folder in sorted(f for f in CORPUS.iterdir() if (f / "kernel.py").exists())[:limit]:
        task, candidate = load_pair(folder / "reference.py", folder / "kernel.py")
        if round_ == "again":
            # another text of the same kernel: nothing compiled or built for the first one serves it
            candidate = parse_candidate(candidate.source + "\n# again\n")
        jobs.append(Job(f"{folder.name}/{round_}", task, candidate, options=options))
    return jobs


def _row(done: Done, wall: float) -> dict[str, Any]:
    row: dict[str, Any] = {"name": done.job.id, "seconds": done.seconds, "at_s": round(wall, 2), "judge": done.judge}
    if not isinstance(done.report, Report):
        return {**row, "label": "error", "problem": done.problem}
    return {**row, "label": done.report.label.value, "probes": done.report.coverage.probes_run,
            **done.report.timing.model_dump(),
            "failed": [f"{f.slug} {f.reason.value} {f.probe}" for f in done.report.findings][:4],
            "open": [g.slug for g in done.report.gates if g.blocking and g.outcome.value in ("inconclusive", "error")]}


def main() -> None:
    """Run both rounds and write the result file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=8)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--tier", default="standard")
    parser.add_argument("--limit", type=int, default=100)
    parser.add_argument("--rounds", default="first,again")
    parser.add_argument("--name", default="gpu-throughput")
    parser.add_argument("--out", type=Path, default=None)
    given = parser.parse_args()
    options = Options(device=given.device, tier=EffortTier(given.tier), seed=SEED)
    rows: list[dict[str, Any]] = []
    metrics: dict[str, float] = {"jobs": given.jobs}
    with Pool(given.jobs) as pool:
        # judges come up before the clock runs: one cheap job each
        brief = Options(device=given.device, tier=EffortTier.QUICK, only=("values",), seed=SEED)
        list(pool.run(_jobs("first", brief, given.jobs)))
        for round_ in given.rounds.split(","):
            began = time.perf_counter()
            mine = []
            for done in pool.run(_jobs(round_, options, given.limit), ahead=10 * given.limit):
                mine.append(_row(done, time.perf_counter() - began))
                print(mine[-1])
            wall = time.perf_counter() - began
            rows += mine
            seconds = sorted(r["seconds"] for r in mine)
            prefix = "" if round_ == given.rounds.split(",")[-1] else f"{round_}_"
            busy = sum(seconds)
            metrics |= {
                f"{prefix}candidates": len(mine), f"{prefix}median_s": round(statistics.median(seconds), 3),
                f"{prefix}p90_s": seconds[int(0.9 * (len(seconds) - 1))],
                f"{prefix}per_minute": round(60 * len(mine) / wall, 1),
                f"{prefix}wall_s_per_candidate": round(wall / len(mine), 3),
                f"{prefix}contract": sum(r["label"] == "contract" for r in mine),
                f"{prefix}rejected": sum(r["label"] == "rejected" for r in mine),
                **{f"{prefix}share_{part}": round(sum(r.get(f"{part}_s", 0.0) for r in mine) / busy, 3)
                   for part in ("study", "oracle", "candidate", "load", "context", "compile", "judging")},
            }
            print(metrics)
    write_result(given.name, given.device, metrics, rows, out=given.out)


if __name__ == "__main__":
    main()
