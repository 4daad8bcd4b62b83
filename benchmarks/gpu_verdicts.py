"""Verdicts on a GPU: every acceptance case and example, many at a time, beside the verdict each deserves.

Run on a machine with a GPU: `python benchmarks/gpu_verdicts.py [--jobs N] [--out FILE]`. The verdicts are made by
a pool of judges; a verdict's time is taken in a judge whose warm parent is up.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import time
import tomllib
from pathlib import Path
from typing import Any

from assay.contract import Contract
from assay.pool import Done, Job, Pool
from assay.report.model import Report
from assay.verify import Options, load_pair
from assay.vocabulary import EffortTier
from common import write_result

ROOT = Path(__file__).resolve().parent.parent
LABELS = {"accept": "contract", "reject": "rejected"}
HUGE = {"r30-int32-offset-overflow"}


def _jobs() -> list[dict[str, Any]]:
    jobs = []
    for folder in sorted((ROOT / "tests" / "cases").glob("*/expect.json")):
        expect = json.loads(folder.read_text())
        jobs.append({"name": folder.parent.name, "reference": str(folder.parent / "reference.py"),
                     "candidate": str(folder.parent / "candidate.py"), "label": LABELS[expect["decision"]],
                     "contract": expect["contract"] or {}, "any_of": expect["any_of"],
                     "must_pass": expect["must_pass"],
                     "tier": "deep" if folder.parent.name in HUGE else "standard"})
    for folder in sorted((ROOT / "examples").glob("*/example.toml")):
        spec = tomllib.loads(folder.read_text())
        base = {"reference": str(folder.parent / "reference.py"), "contract": {}, "must_pass": [], "tier": "standard"}
        jobs.append({**base, "name": f"{folder.parent.name}/right", "label": "contract", "any_of": [],
                     "candidate": str(folder.parent / "right.py")})
        jobs += [{**base, "name": f"{folder.parent.name}/{wrong['file']}", "label": "rejected",
                  "any_of": wrong["gates"], "candidate": str(folder.parent / wrong["file"])}
                 for wrong in spec["wrong"]]
    return jobs


def _job(job: dict[str, Any], device: str, sandbox: str) -> Job:
    task, candidate = load_pair(job["reference"], job["candidate"])
    return Job(job["name"], task, candidate, Contract.from_data(job["contract"]),
               Options(device=device, seed=11, tier=EffortTier(job["tier"]), sandbox=sandbox))


def _row(job: dict[str, Any], done: Done) -> dict[str, Any]:
    row = {"name": job["name"], "expected": job["label"], "seconds": done.seconds, "tries": done.tries}
    if not isinstance(done.report, Report):
        return {**row, "label": "error", "ok": False, "why": done.problem}
    report = done.report
    fired = sorted({f.slug for f in report.findings})
    ok = report.label.value == job["label"] and not set(fired) & set(job["must_pass"])
    ok = ok and (not job["any_of"] or bool(set(fired) & set(job["any_of"])))
    return {
        **row, "label": report.label.value, "ok": ok, "gates": fired, **report.timing.model_dump(),
        "probes": report.coverage.probes_run,
        "undecided": {g.slug: g.undecided for g in report.gates if g.outcome.value in ("inconclusive", "error")},
        "findings": [f"{f.slug} {f.reason.value} {f.probe} {f.expected} {f.actual} tol {f.tolerance}"[:220]
                     for f in report.findings][:6],
    }


def main() -> None:
    """Run every job, each row printed as it is decided, and write the result file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=6)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--only", default="", help="part of a name, or several with commas between")
    parser.add_argument("--sandbox", default="auto")
    parser.add_argument("--seconds", type=float, default=math.inf, help="stop pulling new jobs after this long")
    parser.add_argument("--out", type=Path, default=None)
    options = parser.parse_args()
    jobs = {j["name"]: j for j in _jobs() if any(part in j["name"] for part in options.only.split(","))}
    rows: list[dict[str, Any]] = []
    with Pool(options.jobs, sandbox=options.sandbox) as pool:
        began = time.perf_counter()
        source = (_job(j, options.device, options.sandbox) for j in jobs.values()
                  if time.perf_counter() - began < options.seconds)
        for done in pool.run(source, ahead=2 * options.jobs):
            row = _row(jobs[done.job.id], done)
            rows.append(row)
            print(f"{time.perf_counter() - began:6.1f} ok {row['name']} {row['seconds']} s, oracle {row['oracle_s']}, "
                  f"candidate {row['candidate_s']}, study {row['study_s']}" if row["ok"] else json.dumps(row))
        wall = time.perf_counter() - began
    seconds = [r["seconds"] for r in rows]
    metrics = {
        "verdicts": len(rows), "as_expected": sum(r["ok"] for r in rows), "jobs": options.jobs,
        "median_s": statistics.median(seconds), "p90_s": sorted(seconds)[int(0.9 * (len(seconds) - 1))],
        "per_minute": round(60 * len(rows) / wall, 1), "all": int(len(rows) == len(jobs)),
        "false_alarms": sum(r["expected"] == "contract" and r["label"] == "rejected" for r in rows),
        "missed": sum(r["expected"] == "rejected" and r["label"] != "rejected" for r in rows),
    }
    write_result("gpu-verdicts", options.device, metrics, rows, out=options.out)
    print(metrics)


if __name__ == "__main__":
    main()
