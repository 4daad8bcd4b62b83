"""Ten kernels timed again and again: how far the speedups of one kernel are apart.

Run on a machine with a GPU: `python benchmarks/bench_repeat.py [--seconds S] [--out FILE]`. Every repetition starts
new workers and draws new inputs. `max_spread` is the largest (largest - smallest) / median of a kernel's cold
speedups over the eager reference.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from pathlib import Path
from typing import Any

from assay.bench import BenchOptions, BenchReport, bench_task
from assay.bench.run import open_gauge
from assay.errors import InputError
from assay.run.process import Zygote
from assay.run.references import References
from assay.task import load_candidate, load_task
from common import write_result

EXAMPLES = Path(__file__).resolve().parent.parent / "examples"
SIZES = {
    "row_sum": {"ROWS": 8192, "COLS": 4096},
    "row_max": {"ROWS": 8192, "COLS": 4096},
    "softmax": {"ROWS": 4096, "COLS": 4096},
    "layer_norm": {"BATCH": 32, "TOKENS": 128, "FEATURES": 4096},
    "rms_norm_residual": {"TOKENS": 4096, "FEATURES": 4096},
    "swiglu": {"TOKENS": 4096, "FEATURES": 4096},
    "cross_entropy": {"SAMPLES": 8192, "CLASSES": 4096},
    "cumsum": {"ROWS": 4096, "COLS": 4096},
    "matmul": {"M": 2048, "K": 2048, "N": 2048},
    "linear_gelu": {"BATCH": 4096, "IN_FEATURES": 1024, "OUT_FEATURES": 1024},
}


def _row(name: str, report: BenchReport) -> dict[str, Any]:
    speedup, light = report.speedup, report.speed_of_light
    return {
        "name": name, "speedup": None if speedup is None else round(speedup.value, 4),
        "interval": None if speedup is None else [round(speedup.low, 4), round(speedup.high, 4)],
        "warm": [round(b.speedup_warm.value, 4) for b in report.baselines],
        "cold_us": {t.name: round(1e6 * t.cold.value, 2) for t in report.times},
        "warm_us": {t.name: round(1e6 * t.warm.value, 2) for t in report.times},
        "judge_us": {t.name: [round(1e6 * t.judge_cold, 2), round(1e6 * t.judge_warm, 2)] for t in report.times},
        "speed_of_light": None if light is None else round(light.share, 3),
        "drift": None if report.steadiness is None else round(report.steadiness.drift, 4),
        "calls": report.calls, "checked": report.checked, "left_out": report.left_out,
        "concerns": [f.model_dump(mode="json", exclude_defaults=True) for f in report.findings],
        "phases": report.phases, "seconds": report.seconds,
    }


def _metrics(rows: list[dict[str, Any]], began: float) -> dict[str, float]:
    by_name: dict[str, list[float]] = {}
    for row in rows:
        if row.get("speedup") is not None:
            by_name.setdefault(row["name"], []).append(row["speedup"])
    repeated = {name: found for name, found in by_name.items() if len(found) > 1}
    spreads = {name: (max(f) - min(f)) / statistics.median(f) for name, f in repeated.items()}
    return {
        "kernels": len(repeated), "max_spread": round(max(spreads.values(), default=0.0), 5),
        "median_spread": round(statistics.median(spreads.values()), 5) if spreads else 0.0,
        "repetitions": min((len(f) for f in repeated.values()), default=0),
        "concerns": sum(bool(r.get("concerns")) for r in rows), "failed": sum("error" in r for r in rows),
        "seconds": round(time.perf_counter() - began, 1),
    }


def main() -> None:
    """Time every kernel in turn, several times over, and write the result file after each."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="part of a name, or several with commas between")
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--seconds", type=float, default=210.0, help="start no further benchmark after this long")
    parser.add_argument("--compiled", action="store_true", help="against torch.compile of the reference too")
    parser.add_argument("--device", default="cuda", help="cuda; cpu tries the script itself, its times mean nothing")
    parser.add_argument("--out", type=Path, default=None)
    options = parser.parse_args()
    names = [n for n in SIZES if any(part in n for part in options.only.split(","))]
    rows: list[dict[str, Any]] = []
    began = time.perf_counter()
    plain = BenchOptions(device=options.device, rounds=options.rounds, compiled=options.compiled, pairs=1,
                         interpreted=options.device == "cpu", buffers=64 if options.device == "cuda" else 4)
    with Zygote() as zygote, References(zygote, limit=len(SIZES)) as references, \
            open_gauge(zygote, options.device, plain) as gauge:
        for name in [n for _ in range(options.repeat) for n in names]:
            if time.perf_counter() - began > options.seconds:
                break
            sizes = SIZES[name] if options.device == "cuda" else {}
            folder = EXAMPLES / name
            try:
                report = bench_task(load_task(folder / "reference.py"), load_candidate(folder / "right.py"),
                                    options=BenchOptions(**{**plain.__dict__, "sizes": sizes}), zygote=zygote,
                                    references=references, gauge=gauge)
                row = _row(name, report)
            except InputError as error:
                row = {"name": name, "error": str(error)}
            rows.append(row)
            print(f"{time.perf_counter() - began:6.1f} {json.dumps(row)}", flush=True)
            metrics = _metrics(rows, began)
            if not options.only or options.out is not None:
                write_result("bench-repeat", options.device, metrics, rows, out=options.out)
        if gauge.ceilings is not None:
            print(gauge.ceilings.model_dump_json())
    print(metrics)


if __name__ == "__main__":
    main()
