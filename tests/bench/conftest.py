"""Ways to time the files of benchmarks/timing on this machine's CPU: for what they return, not for how fast."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from assay.bench import BenchOptions, BenchReport, bench_task
from assay.bench.clocks import Allowance
from assay.bench.learned import Shelf
from assay.bench.stable import Stable
from assay.run.process import Zygote
from assay.run.references import References
from assay.task import load_candidate, load_task

TIMING = Path(__file__).resolve().parents[2] / "benchmarks" / "timing"
TASKS = {"exploits/lower_precision": "product", "twins/lower_precision": "product", "twins/cached_by_address": "linear"}
PATIENT = Allowance(factor=20.0, batch_s=1.0)
"""A busy machine's clocks are no evidence against anyone."""

Time = Callable[..., BenchReport]


@pytest.fixture(scope="module")
def references(zygote: Zygote) -> Iterator[References]:
    with References(zygote) as kept:
        yield kept


@pytest.fixture(scope="module")
def shelf() -> Shelf:
    return Shelf()


@pytest.fixture
def timed(zygote: Zygote, references: References) -> Time:
    def run(name: str, device: str = "cpu", shelf: Shelf | None = None, stable: Stable | None = None,
            **options: object) -> BenchReport:
        chosen: dict[str, object] = {"rounds": 3, "compiled": False, "light": False, "buffers": 8, "pairs": 2,
                                     "seed": 5, "interpreted": device == "cpu", "device": device}
        if device == "cpu":
            chosen["allowance"] = PATIENT
        task = load_task(TIMING / "tasks" / f"{TASKS.get(name, 'rows')}.py")
        return bench_task(task, load_candidate(TIMING / f"{name}.py"), zygote=zygote, references=references,
                          shelf=shelf, stable=stable, options=BenchOptions(**{**chosen, **options}))  # type: ignore[arg-type]

    return run
