"""Ways to time the files of benchmarks/timing on this machine's CPU: for what they return, not for how fast."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from assay.bench import BenchOptions, BenchReport, bench_task
from assay.bench.cache import TaskCache
from assay.bench.clocks import Allowance
from assay.bench.contender import Contender
from assay.bench.learned import Learned
from assay.run.process import Zygote
from assay.run.references import References
from assay.task import load_candidate, load_task

ROOT = Path(__file__).resolve().parents[2]
TIMING = ROOT / "benchmarks" / "timing"
ROWS, LINEAR = TIMING / "tasks" / "rows.py", TIMING / "tasks" / "linear.py"
MATMUL = ROOT / "examples" / "matmul" / "reference.py"
TASKS = {"exploits/lower_precision": MATMUL, "twins/lower_precision": MATMUL, "twins/cached_by_address": LINEAR}
PATIENT = Allowance(factor=20.0, batch_s=1.0)
"""A busy machine's clocks are no evidence against anyone."""

Time = Callable[..., BenchReport]


@pytest.fixture(scope="module")
def references(zygote: Zygote) -> Iterator[References]:
    with References(zygote) as kept:
        yield kept


@pytest.fixture(scope="module")
def tasks() -> TaskCache[Learned]:
    return TaskCache()


@pytest.fixture
def timed(zygote: Zygote, references: References) -> Time:
    def run(name: str, device: str = "cpu", tasks: TaskCache[Learned] | None = None,
            baselines: TaskCache[dict[str, Contender]] | None = None, **options: object) -> BenchReport:
        chosen: dict[str, object] = {"rounds": 3, "compiled": False, "light": False, "buffers": 8, "pairs": 2,
                                     "seed": 5, "interpreted": device == "cpu", "device": device}
        if device == "cpu":
            chosen["allowance"] = PATIENT
        return bench_task(load_task(TASKS.get(name, ROWS)), load_candidate(TIMING / f"{name}.py"), zygote=zygote,
                          references=references, tasks=tasks, baselines=baselines,
                          options=BenchOptions(**{**chosen, **options}))  # type: ignore[arg-type]

    return run
