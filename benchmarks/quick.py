"""How long a verdict of the `quick` tier takes on a warm worker: right and wrong kernels of the row-wise examples.

Run as `python benchmarks/quick.py [--device cpu|cuda] [--repeat N] [--out FILE]`. The warm parent is up, and the task
has been seen before, as in a training loop: its study, weights and truths of another candidate are there. Each
verdict has a seed of its own. `median_s` is over the medians of all kernels, right ones included.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
import tomllib
from pathlib import Path
from typing import Any

from assay.report.model import Report
from assay.run.process import Zygote
from assay.run.references import References
from assay.verify import Options, load_pair, verify_task
from assay.vocabulary import EffortTier
from common import write_result

EXAMPLES = Path(__file__).resolve().parent.parent / "examples"
ROW_WISE = ("row_sum", "row_max", "row_argmax", "softmax", "layer_norm", "rms_norm_residual", "cross_entropy", "cumsum",
            "swiglu")


def _kernels(only: str) -> list[tuple[str, str]]:
    """Example and candidate file, the right ones first."""
    found = []
    for name in ROW_WISE:
        if any(part in name for part in only.split(",")):
            spec = tomllib.loads((EXAMPLES / name / "example.toml").read_text())
            found += [(name, "right.py"), *((name, wrong["file"]) for wrong in spec["wrong"])]
    return found


def _judged(name: str, file: str, seed: int, device: str, zygote: Zygote, references: References) -> Report:
    task, candidate = load_pair(EXAMPLES / name / "reference.py", EXAMPLES / name / file)
    return verify_task(task, candidate, zygote=zygote, references=references,
                       options=Options(device=device, tier=EffortTier.QUICK, seed=seed, fail_fast=True))


def main() -> None:
    """Judge every kernel several times, each row printed as it is there, and write the result file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--only", default="", help="part of an example's name, or several with commas between")
    parser.add_argument("--out", type=Path, default=None)
    options = parser.parse_args()
    rows: list[dict[str, Any]] = []
    with Zygote() as zygote, References(zygote, limit=len(ROW_WISE)) as references:
        zygote.wait_ready()
        for name, file in _kernels(options.only):
            if file == "right.py":
                # the task is met for the first time
                _judged(name, file, 1, options.device, zygote, references)
            taken, reports = [], []
            for number in range(options.repeat):
                began = time.perf_counter()
                reports.append(_judged(name, file, 100 + number, options.device, zygote, references))
                taken.append(time.perf_counter() - began)
            last = reports[-1]
            expected = "contract" if file == "right.py" else "rejected"
            rows.append({
                "name": f"{name}/{file}", "median_s": round(statistics.median(taken), 3),
                "labels": sorted({r.label.value for r in reports}), "probes": last.coverage.probes_run,
                "ok": all(r.label.value == expected for r in reports), **last.timing.model_dump(),
            })
            print(json.dumps(rows[-1]), flush=True)
    medians = [r["median_s"] for r in rows]
    right = [r["median_s"] for r in rows if r["name"].endswith("/right.py")]
    metrics = {
        "median_s": round(statistics.median(medians), 3), "median_right_s": round(statistics.median(right), 3),
        "slowest_s": max(medians), "kernels": len(rows), "as_expected": sum(r["ok"] for r in rows),
        "false_alarms": sum("rejected" in r["labels"] for r in rows if r["name"].endswith("/right.py")),
    }
    if not options.only or options.out is not None:
        write_result("quick", options.device, metrics, rows, out=options.out)
    print(metrics)


if __name__ == "__main__":
    main()
