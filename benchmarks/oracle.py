"""How good the oracle is, and what it costs: right and wrong implementations, operators covered, replay time.

    python benchmarks/oracle.py                  # everything; what is finished is kept under build/oracle
    python benchmarks/oracle.py --seconds 540    # stop after nine minutes; the same command goes on there

Prints tables and writes benchmarks/results/oracle.DEVICE.json; on the CPU also opinfo.cpu.json beside it, one
row per operator of PyTorch's database and dtype. Metrics:

- lambda, lambda_needed: the factor in use, and what the calibration half asks for with a margin of two.
- controls, control_findings, heldback_controls, heldback_findings: right implementations and false alarms.
- faults, faults_caught, small_faults, small_faults_caught: wrong implementations, and the semantic ones of
  relative size 1e-6 to 1e-3 among them; precision_faults, precision_faults_attributed: to the right mode.
- replay_cost_ratio, replay_cost_ratio_worst: time of a whole evaluation (native run, exact run and twelve
  perturbed runs) over that of one float64 evaluation of the reference; median and worst over the tasks.
  replay_cost_ratio_products is the median over tasks that are mostly products, replay_cost_ratio_models that over
  layers and models of several operators; that to the exact run compares with a replay without perturbed runs,
  which also goes operator by operator.
- cached_truth_ms, cached_truth_ms_worst: time of a truth that the cache holds, the judge's side included.
- cached_probe_ms, _mean, _worst: what the oracle adds to one probe of a standard verification whose truths the
  cache holds, over every probe planned for the example tasks; cached_probes: how many.
- opinfo_modelled_share: share of the database's deterministic operators, by operator and dtype, whose
  replay had a model for everything.
"""

from __future__ import annotations

import argparse
import copy
import dataclasses
import hashlib
import json
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.table import Table
from torch import nn
from torch.nn import functional as F

from assay import oracle, pages
from assay.calibration.calibrate import calibrate
from assay.calibration.cli import controls_table, faults_table, summary
from assay.calibration.opinfo import Coverage, coverage
from assay.contract import Contract
from assay.gates import BATTERY, Context
from assay.oracle import memory
from assay.oracle.cache import TruthCache
from assay.planning import chosen_gates, make_plan
from assay.probe.model import Draw
from assay.run.lanes import Budget, Run
from assay.run.process import Zygote
from assay.run.reference import ReferenceSession
from assay.task import load_task
from assay.vocabulary import EffortTier
from common import ROOT, write_result

COST_REPEATS = 5
CACHED_TASKS = ("softmax", "layer_norm", "cross_entropy", "linear_gelu")
CACHED_DRAWS = 8
PRODUCTS = ("matmul", "tall matmul", "convolution", "convolution, batch norm, relu", "GRU")
MODELS = ("linear, gelu, linear", "linear, batch norm, hardtanh", "convolution, group norm, silu, pooling",
          "perceptron of four layers", "convolutional classifier", "residual block", "transformer block")

Task = tuple[str, Callable[..., Any], tuple[tuple[int, ...], ...]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--part", type=int, default=None, help="about one control and one fault in this many")
    parser.add_argument("--out", type=Path, default=None)
    parser.add_argument("--seconds", type=float, default=None, help="stop after about so long")
    parser.add_argument("--fresh", action="store_true", help="forget what is finished")
    options = parser.parse_args()
    device = options.device
    torch.set_num_threads(1)
    memory.keep_freed()
    console = Console()
    deadline = time.monotonic() + options.seconds if options.seconds is not None else float("inf")
    kept = Kept(ROOT / "build" / "oracle", f"{device}-{options.part or 1}", options.fresh)
    metrics: dict[str, float] = {}
    rows: list[dict[str, Any]] = []

    def calibrated() -> list[Any]:
        began = time.monotonic()
        calibration = calibrate(options.part, device)
        console.print(controls_table(calibration), faults_table(calibration))
        for line in summary(calibration):
            console.print(line)
        return [tidy(calibration.metrics()) | {"calibration_s": rounded(time.monotonic() - began)},
                [tidy(row) for row in calibration.rows()]]

    def costs_of() -> list[Any]:
        return [tidy(cost(*task, device=device)) for task in tasks(device)]

    stages: dict[str, Callable[[], list[Any]]] = {
        "calibration": calibrated, "costs": costs_of, "truths": lambda: cached_truths(device),
        "probes": lambda: cached_probes(device),
    }
    done: dict[str, list[Any]] = {}
    for name, stage in stages.items():
        if (found := kept.get(name)) is None:
            if time.monotonic() > deadline:
                console.print("stopped by its limit; run it again to go on")
                return
            found = stage()
            kept.put(name, found)
        done[name] = found
    metrics |= done["calibration"][0]
    rows += done["calibration"][1]
    costs = done["costs"]
    console.print(cost_table(costs))
    metrics["replay_cost_ratio"] = statistics.median(c["ratio"] for c in costs)
    metrics["replay_cost_ratio_worst"] = max(c["ratio"] for c in costs)
    metrics["replay_cost_ratio_products"] = statistics.median(c["ratio"] for c in costs if c["task"] in PRODUCTS)
    metrics["replay_cost_ratio_models"] = statistics.median(c["ratio"] for c in costs if c["task"] in MODELS)
    metrics["replay_cost_ratio_to_exact_run"] = statistics.median(c["ratio_to_exact_run"] for c in costs)
    rows += costs
    metrics["cached_truth_ms"] = statistics.median(done["truths"])
    metrics["cached_truth_ms_worst"] = max(done["truths"])
    probes = done["probes"]
    metrics |= {"cached_probes": float(len(probes)), "cached_probe_ms": statistics.median(probes),
                "cached_probe_ms_mean": statistics.mean(probes), "cached_probe_ms_worst": max(probes)}
    if device == "cpu":
        covered = kept.coverage(deadline)
        if covered is None:
            console.print("stopped by its limit; run it again to go on")
            return
        metrics |= share(covered)
        if options.part is None:
            write_result("opinfo", device, tidy(share(covered)), [tidy(dataclasses.asdict(c)) for c in covered])
    for name, value in metrics.items():
        console.print(f"{name:32} {value:.4g}")
    write_result("oracle", device, tidy(metrics), rows, out=options.out)


def sources() -> str:
    """Digest of the oracle, the controls and this file."""
    digest = hashlib.sha256()
    folders = (ROOT / "src/assay/oracle", ROOT / "src/assay/calibration")
    for path in [Path(__file__), *sorted(p for folder in folders for p in folder.glob("*.py"))]:
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


class Kept:
    """Finished parts of a run, as long as what they measure is the same."""

    def __init__(self, folder: Path, run: str, fresh: bool) -> None:
        self._path = folder / f"{run}-{sources()}"
        if fresh:
            shutil.rmtree(self._path, ignore_errors=True)
        self._path.mkdir(parents=True, exist_ok=True)

    def get(self, name: str) -> list[Any] | None:
        """What a stage came to; None where it is not finished."""
        path = self._path / f"{name}.json"
        return json.loads(path.read_text(encoding="utf-8")) if path.exists() else None

    def put(self, name: str, value: list[Any]) -> None:
        """Keep what a stage came to."""
        partial = self._path / f"{name}.partial"
        partial.write_text(json.dumps(value), encoding="utf-8")
        partial.replace(self._path / f"{name}.json")

    def coverage(self, deadline: float) -> list[Coverage] | None:
        """Coverage of the operator database, operator by operator; None where the time ends before it does."""
        path = self._path / "opinfo.jsonl"
        lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
        found = [Coverage(**{**row, "unmodelled": tuple(row["unmodelled"])}) for row in map(json.loads, lines)]
        # the last operator may have been stopped between its dtypes
        last = found[-1].name if found else ""
        found = [c for c in found if c.name != last]
        path.write_text("".join(json.dumps(dataclasses.asdict(c)) + "\n" for c in found), encoding="utf-8")
        with path.open("a", encoding="utf-8") as file:
            for covered in coverage(skip=frozenset(c.name for c in found)):
                if time.monotonic() > deadline:
                    return None
                found.append(covered)
                file.write(json.dumps(dataclasses.asdict(covered)) + "\n")
                file.flush()
        return found


def tasks(device: str) -> list[Task]:
    """References at sizes of ordinary tasks; larger on a GPU."""
    big = 4 if device == "cuda" else 1
    n = 512 * big

    def mlp(x: torch.Tensor, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return F.linear(F.gelu(F.linear(x, a)), b)

    def loss(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return F.cross_entropy(x, y.softmax(-1))

    def attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        return F.scaled_dot_product_attention(q, k, v, is_causal=True)

    def block(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return F.relu(F.batch_norm(F.conv2d(x, w, padding=1), None, None, training=True))

    gru = nn.GRU(128, 128, batch_first=True)
    return [
        ("matmul", torch.matmul, ((n, n), (n, n))),
        ("tall matmul", torch.matmul, ((64, 8192 * big), (8192 * big, 64))),
        ("linear, gelu, linear", mlp, ((n, 256), (1024, 256), (256, 1024))),
        ("convolution", lambda x, w: F.conv2d(x, w, padding=1), ((8 * big, 32, 32, 32), (64, 32, 3, 3))),
        ("convolution, batch norm, relu", block, ((8 * big, 32, 32, 32), (32, 32, 3, 3))),
        ("causal attention", attention, ((2, 4, 64 * big * 4, 64),) * 3),
        ("softmax", lambda x: x.softmax(-1), ((1024 * big, 1024),)),
        ("layer norm", lambda x: F.layer_norm(x, (x.shape[-1],)), ((1024 * big, 1024),)),
        ("rms norm", lambda x: F.rms_norm(x, (x.shape[-1],), eps=1e-6), ((1024 * big, 1024),)),
        ("group norm", lambda x: F.group_norm(x, 8), ((8 * big, 64, 32, 32),)),
        ("sum", lambda x: x.sum(-1), ((1024 * big, 1024),)),
        ("cumulative sum", lambda x: x.cumsum(-1), ((1024 * big, 1024),)),
        ("gelu", F.gelu, ((1024 * big, 1024),)),
        ("silu and product", lambda x, y: F.silu(x) * y, ((1024 * big, 1024),) * 2),
        ("cross entropy", loss, ((1024 * big, 512),) * 2),
        ("average pooling", lambda x: F.avg_pool2d(x, 3, 2), ((8 * big, 32, 64, 64),)),
        ("GRU", gru, ((16, 32, 128),)),
        ("linear, batch norm, hardtanh", nn.Sequential(
            nn.Linear(512, 1024), nn.BatchNorm1d(1024), nn.Hardtanh()), ((128 * big, 512),)),
        ("convolution, group norm, silu, pooling", nn.Sequential(
            nn.Conv2d(16, 32, 3), nn.GroupNorm(8, 32), nn.SiLU(), nn.MaxPool2d(2)), ((8 * big, 16, 32, 32),)),
        ("perceptron of four layers", nn.Sequential(
            nn.Linear(512, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 512), nn.ReLU(),
            nn.Linear(512, 256)), ((64 * big, 512),)),
        ("convolutional classifier", nn.Sequential(
            nn.Conv2d(3, 32, 5), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(32, 64, 5), nn.ReLU(), nn.MaxPool2d(2),
            nn.Flatten(), nn.Linear(1600, 256), nn.ReLU(), nn.Linear(256, 10)), ((8 * big, 3, 32, 32),)),
        ("residual block", Residual(64), ((4 * big, 64, 28, 28),)),
        ("transformer block", nn.TransformerEncoderLayer(256, 4, 1024, 0.0, batch_first=True),
         ((4 * big, 64, 256),)),
    ]


class Residual(nn.Module):
    """Two convolutions with batch norms and a shortcut."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.first, self.second = (nn.Conv2d(channels, channels, 3, padding=1) for _ in range(2))
        self.norms = nn.ModuleList(nn.BatchNorm2d(channels) for _ in range(2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(n, channels, h, w) to the same shape."""
        inner = F.relu(self.norms[0](self.first(x)))
        return F.relu(x + self.norms[1](self.second(inner)))


def cost(
    name: str, reference: Callable[..., Any], shapes: tuple[tuple[int, ...], ...], device: str
) -> dict[str, Any]:
    """Seconds of one float64 evaluation and of the oracle's evaluation with twelve perturbed runs."""
    torch.manual_seed(0)
    inputs = [torch.randn(shape, device=device) for shape in shapes]
    if isinstance(reference, nn.Module):
        reference = reference.to(device)
    wide = [t.double() for t in inputs]
    exact = reference
    if isinstance(reference, nn.Module):
        exact = copy.deepcopy(reference).double()

    def once() -> None:
        with torch.no_grad():
            exact(*wide)

    single = timed(once, device)
    replay = timed(lambda: oracle.evaluate(reference, inputs), device)
    exact_run = timed(lambda: oracle.evaluate(reference, inputs, runs=0), device)
    # some float64 functions of torch run ten times faster once others have run in the process
    single = min(single, timed(once, device))
    return {"task": name, "float64_s": single, "replay_s": replay, "ratio": replay / single,
            "ratio_to_exact_run": replay / exact_run}


def timed(call: Callable[[], Any], device: str) -> float:
    """Median seconds of a call after one to warm up; on the CPU those of this process on one core."""
    found = []
    clock = time.perf_counter if device == "cuda" else time.process_time
    for i in range(COST_REPEATS + 1):
        began = clock()
        call()
        if device == "cuda":
            torch.cuda.synchronize()
        if i:
            found.append(clock() - began)
    return statistics.median(found)


def cached_truths(device: str) -> list[float]:
    """Milliseconds of truths that the cache holds, over tasks and draws."""
    found = []
    with tempfile.TemporaryDirectory() as folder, Zygote() as zygote:
        zygote.wait_ready()
        for name in CACHED_TASKS:
            task = load_task(pages.examples() / name / "reference.py")
            session = ReferenceSession(zygote, task, device=device, cache=TruthCache(Path(folder) / "t"))
            try:
                session.study()
                for turn in range(2):
                    for seed in range(CACHED_DRAWS):
                        began = time.perf_counter()
                        session.truth({}, None, Draw(seed=seed), seed)
                        if turn:
                            found.append(1e3 * (time.perf_counter() - began))
            finally:
                session.close()
    return found


def cached_probes(device: str) -> list[float]:
    """Milliseconds that the oracle adds to each probe of a standard plan whose truths the cache holds."""
    found = []
    contract = Contract()
    with tempfile.TemporaryDirectory() as folder, Zygote() as zygote:
        zygote.wait_ready()
        for name in CACHED_TASKS:
            task = load_task(pages.examples() / name / "reference.py")
            session = ReferenceSession(zygote, task, device=device, cache=TruthCache(Path(folder) / "t"))
            try:
                study = session.study()
                ctx = Context(study=study, contract=contract, tier=EffortTier.STANDARD, seed=1, device=device,
                              language="triton", sizes=dict(study.sizes), small=dict(study.small))
                plan = make_plan(chosen_gates(BATTERY, contract, None), ctx)
                for turn in range(2):
                    run = Run(session, [], Budget(float("inf")), 1, random=study.random)
                    for probe in plan:
                        began = time.perf_counter()
                        run.prepare(probe)
                        if turn:
                            found.append(1e3 * (time.perf_counter() - began))
            finally:
                session.close()
    return found


def share(covered: list[Coverage]) -> dict[str, float]:
    """Counts of outcomes, and the share of what has a deterministic result that is modelled throughout."""
    counts = {f"opinfo_{o.replace(' ', '_')}": float(sum(c.outcome == o for c in covered))
              for o in sorted({c.outcome for c in covered})}
    judged = [c for c in covered if c.outcome in ("modelled", "conservative", "failed", "timeout", "crashed")]
    modelled = [c for c in judged if c.outcome == "modelled"]
    return counts | {"opinfo_modelled_share": len(modelled) / max(1, len(judged)),
                     "opinfo_operators": float(len({c.name for c in judged})),
                     "opinfo_mostly_decided_share": sum(c.decided > 0.5 for c in modelled) / max(1, len(modelled))}


def cost_table(costs: list[dict[str, Any]]) -> Table:
    table = Table(box=None, title="Cost of a replay", title_justify="left")
    for name in ("task", "one float64 run, ms", "replay, ms", "ratio"):
        table.add_column(name, justify="left" if name == "task" else "right")
    for row in costs:
        table.add_row(row["task"], f"{1e3 * row['float64_s']:.2f}", f"{1e3 * row['replay_s']:.1f}",
                      f"{row['ratio']:.1f}")
    return table


def tidy(row: dict[str, Any]) -> dict[str, Any]:
    """Numbers to four significant digits, infinity (which JSON lacks) as text, nothing that is empty."""
    return {k: rounded(v) for k, v in row.items() if v not in ((), [], "")}


def rounded(value: Any) -> Any:
    if isinstance(value, float):
        return float(f"{value:.4g}") if abs(value) < float("inf") else "inf"
    return value


if __name__ == "__main__":
    main()
