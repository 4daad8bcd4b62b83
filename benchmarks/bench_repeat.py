"""Ten kernels timed again and again: how far the speedups of one kernel are apart.

Run on a machine with a GPU: `python benchmarks/bench_repeat.py [--seconds S] [--out FILE]`. Every repetition starts
new workers with memory of their own, and lays other values into their buffers in another order; the draws whose truth
is known are evaluated once. Kernels take turns: all ten, then all ten again. They are loaded together and timed one at
a time. `max_spread` is the largest (largest - smallest) / median of a kernel's cold speedups over the eager reference.
"""

from __future__ import annotations

import argparse
import dataclasses
import secrets
import statistics
import time
from pathlib import Path
from typing import Any

from assay.bench import BenchOptions, BenchReport
from assay.bench.cache import TaskCache
from assay.bench.ceilings import Gauge
from assay.bench.learned import Learned
from assay.bench.machine import cache_bytes
from assay.bench.making import open_gauge
from assay.bench.run import Prepared, prepare
from assay.errors import InputError
from assay.run.process import Zygote
from assay.run.references import References
from assay.task import load_candidate, load_task
from common import write_result
from waves import in_waves

EXAMPLES = Path(__file__).resolve().parent.parent / "examples"
SIZES = {
    "row_sum": {"ROWS": 4096, "COLS": 4096},
    "row_max": {"ROWS": 4096, "COLS": 4096},
    "softmax": {"ROWS": 2048, "COLS": 4096},
    "layer_norm": {"BATCH": 16, "TOKENS": 128, "FEATURES": 4096},
    "rms_norm_residual": {"TOKENS": 2048, "FEATURES": 4096},
    "swiglu": {"TOKENS": 2048, "FEATURES": 4096},
    "cross_entropy": {"SAMPLES": 4096, "CLASSES": 4096},
    "cumsum": {"ROWS": 2048, "COLS": 4096},
    "matmul": {"M": 1024, "K": 2048, "N": 1024},
    "linear_gelu": {"BATCH": 2048, "IN_FEATURES": 1024, "OUT_FEATURES": 1024},
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
        "rounds": report.rounds, "calls": report.calls, "checked": report.checked, "left_out": report.left_out,
        "concerns": [f.model_dump(mode="json", exclude_defaults=True) for f in report.findings],
        "phases": report.phases, "seconds": report.seconds,
    }


class Loader:
    """Loads kernels and times them.

    Args:
        zygote: a warm parent.
        references: reference workers.
        gauge: ceilings of the device.
        options: how to time, but for the sizes.
    """

    def __init__(self, zygote: Zygote, references: References, gauge: Gauge, options: BenchOptions) -> None:
        self._zygote, self._references, self._gauge, self._options = zygote, references, gauge, options
        self._tasks = TaskCache[Learned](len(SIZES))

    def load(self, name: str) -> Prepared | InputError:
        """A kernel, ready to be timed; or why it cannot be."""
        sizes = {} if self._options.interpreted else SIZES[name]
        try:
            return prepare(load_task(EXAMPLES / name / "reference.py"), load_candidate(EXAMPLES / name / "right.py"),
                           options=dataclasses.replace(self._options, sizes=sizes), zygote=self._zygote,
                           references=self._references, gauge=self._gauge, tasks=self._tasks)
        except InputError as error:
            return error

    def time(self, name: str, ready: Prepared | InputError) -> dict[str, Any]:
        """What came of one kernel."""
        if isinstance(ready, InputError):
            return {"name": name, "error": str(ready)}
        with ready:
            return _row(name, ready.run())


def _metrics(rows: list[dict[str, Any]], wanted: int, began: float) -> dict[str, float]:
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
        "complete": int(len(rows) == wanted), "seconds": round(time.perf_counter() - began, 1),
    }


def main() -> None:
    """Time every kernel in turn, several times over, and write the result file after each."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="part of a name, or several with commas between")
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=16)
    parser.add_argument("--jobs", type=int, default=5, help="kernels loaded at a time")
    parser.add_argument("--seconds", type=float, default=200.0, help="load nothing more after this long")
    parser.add_argument("--compiled", action="store_true", help="against torch.compile of the reference too")
    parser.add_argument("--device", default="cuda", help="cuda; cpu tries the script itself, its times mean nothing")
    parser.add_argument("--out", type=Path, default=None)
    options = parser.parse_args()
    names = [n for n in SIZES if any(part in n for part in options.only.split(","))]
    turns = [n for _ in range(options.repeat) for n in names]
    began = time.perf_counter()
    how = BenchOptions(device=options.device, rounds=options.rounds, compiled=options.compiled, pairs=1,
                       inputs_seed=secrets.randbits(31), interpreted=options.device == "cpu", memory=4 << 30,
                       buffers=64 if options.device == "cuda" else 4, seconds=5.0)

    def write(rows: list[dict[str, Any]]) -> None:
        if not options.only or options.out is not None:
            write_result("bench-repeat", options.device, _metrics(rows, len(turns), began), rows, out=options.out)

    with Zygote() as zygote, References(zygote, limit=len(SIZES)) as references, \
            open_gauge(zygote, options.device, how) as gauge:
        gauge.measure(cache_bytes(options.device))
        loader = Loader(zygote, references, gauge, how)
        rows = in_waves(turns, loader.load, loader.time, write, jobs=options.jobs, seconds=options.seconds, began=began)
        print(gauge.ceilings.model_dump_json() if gauge.ceilings is not None else "no ceilings")
    print(_metrics(rows, len(turns), began))


if __name__ == "__main__":
    main()
