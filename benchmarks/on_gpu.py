"""Everything that needs a GPU, within a given time: the tests that skip elsewhere, and each benchmark's result file.

    python benchmarks/on_gpu.py OUT [--minutes 9] [--gpus 2] [--steps tests,gpu_faults] [--list]

What is timed has a GPU to itself; what only has to be right shares another, so that two GPUs do both at once and one
does them in turn. Each lane has a share of the processors. A step is given the time that is left, up to what it can
use, and is not begun with less than it needs; one that outlasts its time is killed, and keeps what it had written.
Results go to OUT/NAME.json (as `benchmarks/results/NAME.DEVICE.json` has them), output to OUT/logs, and what became
of each step to OUT/steps.json. Call it again with --steps for what is missing. Exit code 1 if a step failed.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from common import ROOT

GRACE_SECONDS = 20.0
"""What a step that knows its time may take longer, to end what it has begun."""


@dataclass(frozen=True)
class Step:
    """One thing to run.

    Attributes:
        name: of the step, and of its files.
        commands: run one after another, with `{jobs}` and `{cores}` (processors of the lane), `{seconds}`, `{out}`
            (its result file) and `{scratch}` (a folder of its own).
        least: seconds without which it is not begun.
        most: seconds that it can use.
        alone: whether it times something, so that nothing else may use its GPU.
        spare: seconds of its time that are left to end what it has begun, and for the commands that follow.
    """

    name: str
    commands: tuple[str, ...]
    least: float
    most: float
    alone: bool = False
    spare: float = GRACE_SECONDS


STEPS = (
    Step("quick", ("quick.py --device cuda --seconds {seconds} --out {out}",), 60, 300, alone=True),
    Step("timing-exploits", ("timing_exploits.py --jobs 6 --seconds {seconds} --out {out}",), 60, 200, alone=True),
    Step("bench-repeat", ("bench_repeat.py --jobs 5 --seconds {seconds} --out {out}",), 60, 220, alone=True),
    Step("tests-bench", ("-m pytest -q -m gpu tests/bench",), 60, 150, alone=True),
    Step("tests", ("-m pytest -q -m gpu --ignore tests/bench -n {jobs} tests",), 60, 240),
    Step("gpu-faults", ("gpu_faults.py --jobs {jobs} --seconds {seconds} --out {out}",), 60, 420),
    Step("gpu-throughput", ("gpu_throughput.py --jobs {cores} --limit 48 --out {out}",), 60, 160),
    Step("gpu-verdicts", ("gpu_verdicts.py --jobs {jobs} --seconds {seconds} --out {out}",), 60, 300),
    Step("audit", ("audit.py corpus {scratch}",
                   "audit.py whole {scratch} --device cuda --gpus 1 --seconds {seconds} -- --workers {jobs}",
                   "audit.py device {scratch} --device cuda --out {out}"), 90, 400),
    Step("oracle", ("oracle.py --device cuda --seconds {seconds} --out {out}",), 60, 220),
    Step("scoreboard", ("scoreboard.py run --device cuda --rows {scratch}/rows.jsonl --groups mutants controls "
                        "--sample 150 --seconds {seconds} --workers {jobs}",
                        "scoreboard.py result --device cuda --have {scratch}/rows.jsonl --out {out}"), 120, 420,
         spare=60),
)


@dataclass
class Lane:
    """Steps in turn, on one GPU and some processors."""

    steps: list[Step]
    gpu: str
    cores: list[int]


def lanes(steps: Sequence[Step], gpus: Sequence[str]) -> list[Lane]:
    """What is timed on the first GPU with a quarter of the processors, the rest on the second; or all in turn."""
    cores = sorted(os.sched_getaffinity(0))
    timed, others = [s for s in steps if s.alone], [s for s in steps if not s.alone]
    if len(gpus) < 2 or not timed or not others:
        return [Lane([*timed, *others], gpus[0], cores)]
    share = max(1, len(cores) // 4)
    return [Lane(timed, gpus[0], cores[:share]), Lane(others, gpus[1], cores[share:])]


def run(step: Step, lane: Lane, out: Path, seconds: float) -> dict[str, Any]:
    """Run one step. Returns its exit code (None for one that was killed) and its seconds."""
    scratch = out / "scratch" / step.name
    scratch.mkdir(parents=True, exist_ok=True)
    result = out / f"{step.name}.json"
    known = result.stat().st_mtime_ns if result.exists() else 0
    began, code = time.monotonic(), 0
    with (out / "logs" / f"{step.name}.log").open("wb") as log:
        for command in step.commands:
            left = seconds - (time.monotonic() - began)
            words = command.format(
                jobs=max(1, len(lane.cores) * 3 // 4), cores=len(lane.cores),
                seconds=max(1, round(left - step.spare)), out=result, scratch=scratch).split()
            if words[0].endswith(".py"):
                words[0] = str(ROOT / "benchmarks" / words[0])
            process = subprocess.Popen(
                [sys.executable, *words], cwd=ROOT, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                start_new_session=True, env={**os.environ, "CUDA_VISIBLE_DEVICES": lane.gpu, "PYTHONUNBUFFERED": "1"})
            # whatever it starts is bound to the same processors
            os.sched_setaffinity(process.pid, lane.cores)
            try:
                code = process.wait(max(1.0, left))
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
                code = -signal.SIGKILL
            except BaseException:
                os.killpg(process.pid, signal.SIGKILL)
                raise
            if code:
                break
    written = result.exists() and result.stat().st_mtime_ns != known
    return {"step": step.name, "code": None if code == -signal.SIGKILL else code, "written": written,
            "seconds": round(time.monotonic() - began, 1)}


def run_lane(lane: Lane, out: Path, until: float, done: list[dict[str, Any]]) -> None:
    """Run a lane's steps until the time is over, and note what became of each."""
    for step in lane.steps:
        left = until - time.monotonic()
        row = run(step, lane, out, min(left, step.most)) if left >= step.least else {
            "step": step.name, "code": None, "written": False, "seconds": 0.0, "left": round(left, 1)}
        done.append(row)
        (out / "steps.json").write_text(json.dumps(done, indent=1) + "\n", encoding="utf-8")


def became(row: dict[str, Any]) -> str:
    """A step's end, in words."""
    if "left" in row:
        return f"not begun: {max(0.0, row['left']):.0f} s were left"
    if row["code"] is None:
        return "stopped at its time" + (", kept what it had" if row["written"] else "")
    return "done" if row["code"] == 0 else f"failed with {row['code']}"


def visible() -> list[str]:
    """Names for CUDA_VISIBLE_DEVICES of the GPUs here."""
    chosen = os.environ.get("CUDA_VISIBLE_DEVICES")
    if chosen:
        return chosen.split(",")
    import torch

    return [str(i) for i in range(torch.cuda.device_count())] if torch.cuda.is_available() else []


def main() -> None:
    """Run the steps asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path, nargs="?", default=Path("on-gpu"), metavar="OUT")
    parser.add_argument("--minutes", type=float, default=20.0)
    parser.add_argument("--gpus", type=int, default=2, help="use at most so many")
    parser.add_argument("--steps", default="", help="names with commas between; all without")
    parser.add_argument("--list", action="store_true", help="say what would run")
    given = parser.parse_args()
    names = [n for n in given.steps.split(",") if n]
    unknown = sorted(set(names) - {s.name for s in STEPS})
    if unknown:
        parser.error(f"no step {', '.join(unknown)}; there are {', '.join(s.name for s in STEPS)}")
    steps = [s for s in STEPS if not names or s.name in names]
    gpus = visible()[: max(1, given.gpus)]
    if given.list:
        for lane in lanes(steps, gpus or ["0"]):
            print(f"GPU {lane.gpu}, {len(lane.cores)} processors: "
                  + ", ".join(f"{s.name} ({s.least:.0f} to {s.most:.0f} s)" for s in lane.steps))
        return
    if not gpus:
        parser.error("no CUDA device here: nothing of this can run")
    (given.out / "logs").mkdir(parents=True, exist_ok=True)
    until = time.monotonic() + 60.0 * given.minutes
    done: list[dict[str, Any]] = []
    threads = [threading.Thread(target=run_lane, args=(lane, given.out.resolve(), until, done), daemon=True)
               for lane in lanes(steps, gpus)]
    for thread in threads:
        thread.start()
    shown = 0
    while any(t.is_alive() for t in threads) or shown < len(done):
        for row in done[shown:]:
            print(f"{row['step']}: {became(row)}, {row['seconds']:.0f} s", flush=True)
        shown = len(done)
        time.sleep(0.5)
    table = Table("step", "what became of it", "seconds", "result")
    for row in done:
        result = f"{row['step']}.json" if row["written"] else ""
        table.add_row(row["step"], became(row), f"{row['seconds']:.0f}", result)
    Console().print(table)
    sys.exit(int(any(row["code"] not in (0, None) for row in done)))


if __name__ == "__main__":
    main()
