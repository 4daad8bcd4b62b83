"""Verdicts on a GPU: every acceptance case and example, many at a time, beside the verdict each deserves.

Run on a machine with a GPU: `python benchmarks/gpu_verdicts.py [--jobs N] [--out FILE]`. Each process has its
own warm parent; a verdict's time is taken inside a process whose parent is warm.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
import tomllib
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

from common import write_result

ROOT = Path(__file__).resolve().parent.parent
LABELS = {"accept": "contract", "reject": "rejected"}
HUGE = {"r30-int32-offset-overflow"}
_WARM: list[Any] = []


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


def _one(job: dict[str, Any], device: str) -> dict[str, Any]:
    from assay.contract import Contract
    from assay.run.process import Zygote
    from assay.verify import Options, load_pair, verify_task
    from assay.vocabulary import EffortTier

    if not _WARM:
        _WARM.append(Zygote())
        _WARM[0].wait_ready()
    began = time.perf_counter()
    try:
        task, candidate = load_pair(job["reference"], job["candidate"])
        report = verify_task(task, candidate, contract=Contract.from_data(job["contract"]), zygote=_WARM[0],
                             options=Options(device=device, seed=11, tier=EffortTier(job["tier"]),
                                             sandbox=job["sandbox"]))
    except Exception as error:
        return {"name": job["name"], "expected": job["label"], "label": "error", "ok": False,
                "why": f"{type(error).__name__}: {error}"[:400]}
    fired = sorted({f.slug for f in report.findings})
    ok = report.label.value == job["label"] and not set(fired) & set(job["must_pass"])
    ok = ok and (not job["any_of"] or bool(set(fired) & set(job["any_of"])))
    return {
        "name": job["name"], "expected": job["label"], "label": report.label.value, "ok": ok, "gates": fired,
        "seconds": round(time.perf_counter() - began, 2), "oracle_s": report.timing.oracle_s,
        "candidate_s": report.timing.candidate_s, "probes": report.coverage.probes_run,
        "undecided": {g.slug: g.undecided for g in report.gates if g.outcome.value in ("inconclusive", "error")},
        "findings": [f"{f.slug} {f.reason.value} {f.probe} {f.expected} {f.actual} tol {f.tolerance}"[:220]
                     for f in report.findings][:6],
    }


def main() -> None:
    """Run every job and write the result file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=6)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--only", default="")
    parser.add_argument("--sandbox", default="auto")
    parser.add_argument("--out", type=Path, default=None)
    options = parser.parse_args()
    jobs = [{**j, "sandbox": options.sandbox} for j in _jobs() if options.only in j["name"]]
    began = time.perf_counter()
    with ProcessPoolExecutor(options.jobs) as pool:
        rows = list(pool.map(_one, jobs, [options.device] * len(jobs)))
    wall = time.perf_counter() - began
    for row in rows:
        print(json.dumps(row) if not row["ok"] else f"ok {row['name']} {row['seconds']} s")
    seconds = [r["seconds"] for r in rows if "seconds" in r]
    metrics = {
        "verdicts": len(rows), "as_expected": sum(r["ok"] for r in rows), "jobs": options.jobs,
        "median_s": statistics.median(seconds), "p90_s": sorted(seconds)[int(0.9 * (len(seconds) - 1))],
        "per_minute": round(60 * len(rows) / wall, 1),
        "false_alarms": sum(r["expected"] == "contract" and r["label"] == "rejected" for r in rows),
        "missed": sum(r["expected"] == "rejected" and r["label"] != "rejected" for r in rows),
    }
    write_result("gpu-verdicts", options.device, metrics, rows, out=options.out)
    print(metrics)


if __name__ == "__main__":
    main()
