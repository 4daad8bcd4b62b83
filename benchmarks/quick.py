"""How long a verdict of the `quick` tier takes on a warm worker: right and wrong kernels of the row-wise examples.

Run as `python benchmarks/quick.py [--device cpu|cuda] [--repeat N] [--out FILE]`. The warm parent is up, and the task
has been seen before, as in a training loop: its study, weights and truths of another candidate are there. Each verdict
is on a new text, so that nothing of the candidate itself is known, and a process for it was started while nothing
was to do, as a pool's judges do. `median_s` is over the medians of all kernels, right ones included.
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
from assay.task import parse_candidate
from assay.verify import Options, load_pair, verify_task
from assay.vocabulary import EffortTier
from common import write_result

EXAMPLES = Path(__file__).resolve().parent.parent / "examples"
SEED = 23
ROW_WISE = ("row_sum", "row_max", "row_argmax", "softmax", "layer_norm", "rms_norm_residual", "cross_entropy", "cumsum",
            "swiglu")


def _kernels(only: str) -> list[tuple[str, str]]:
    """Example and candidate file: of each example the right one, then the wrong ones."""
    names = [name for name in ROW_WISE if any(part in name for part in only.split(","))]
    wrong = {name: tomllib.loads((EXAMPLES / name / "example.toml").read_text())["wrong"] for name in names}
    return [(name, file) for name in names for file in ("right.py", *(each["file"] for each in wrong[name]))]


def _judged(name: str, file: str, number: int, device: str, zygote: Zygote,
            references: References) -> tuple[Report, float]:
    task, candidate = load_pair(EXAMPLES / name / "reference.py", EXAMPLES / name / file)
    candidate = parse_candidate(f"{candidate.source}\n# {number}\n")
    options = Options(device=device, tier=EffortTier.QUICK, seed=SEED, nonce="5a", fail_fast=True)
    start = time.perf_counter()
    report = verify_task(task, candidate, zygote=zygote, references=references, options=options)
    taken = time.perf_counter() - start
    references.get_ready()
    references.ahead.wait()
    return report, taken


def _row(name: str, file: str, taken: list[float], reports: list[Report]) -> dict[str, Any]:
    expected = "contract" if file == "right.py" else "rejected"
    return {"name": f"{name}/{file}", "median_s": round(statistics.median(taken), 3),
            "labels": sorted({r.label.value for r in reports}), "probes": reports[-1].coverage.probes_run,
            "ok": all(r.label.value == expected for r in reports), **reports[-1].timing.model_dump()}


def _metrics(rows: list[dict[str, Any]], wanted: int) -> dict[str, float]:
    medians = [r["median_s"] for r in rows]
    right = [r for r in rows if r["name"].endswith("/right.py")]
    return {
        "median_s": round(statistics.median(medians), 3),
        "median_right_s": round(statistics.median(r["median_s"] for r in right), 3), "slowest_s": max(medians),
        "kernels": len(rows), "as_expected": sum(r["ok"] for r in rows),
        "false_alarms": sum("rejected" in r["labels"] for r in right), "complete": int(len(rows) == wanted),
    }


def main() -> None:
    """Judge every kernel several times, each row printed as it is there, and write the result file after each."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--only", default="", help="part of an example's name, or several with commas between")
    parser.add_argument("--seconds", type=float, default=1e9, help="judge no further kernel after this long")
    parser.add_argument("--have", type=Path, default=None,
                        help="a result of this device that its time cut short; what it has is not judged again")
    parser.add_argument("--out", type=Path, default=None)
    options = parser.parse_args()
    rows: list[dict[str, Any]] = json.loads(options.have.read_text())["rows"] if options.have else []
    every, met = _kernels(options.only), set()
    kernels = [(name, file) for name, file in every if f"{name}/{file}" not in {r["name"] for r in rows}]
    began = time.perf_counter()
    with Zygote() as zygote, References(zygote, limit=len(ROW_WISE)) as references:
        zygote.wait_ready()
        for name, file in kernels:
            if time.perf_counter() - began > options.seconds:
                break
            if name not in met:
                # the task is met for the first time; after two of its candidates a process awaits the third
                for number in (-2, -1):
                    _judged(name, file, number, options.device, zygote, references)
                met.add(name)
            taken, reports = [], []
            for number in range(options.repeat):
                report, seconds = _judged(name, file, number, options.device, zygote, references)
                reports.append(report)
                taken.append(seconds)
            rows.append(_row(name, file, taken, reports))
            print(f"{time.perf_counter() - began:6.1f} {json.dumps(rows[-1])}", flush=True)
            if not options.only or options.out is not None:
                write_result("quick", options.device, _metrics(rows, len(every)), rows, out=options.out)
    print(_metrics(rows, len(every)))


if __name__ == "__main__":
    main()
