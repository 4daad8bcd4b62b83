"""What a replay costs beside one float64 evaluation of the reference, and what one costs that a cache holds."""

from __future__ import annotations

import copy
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from rich.table import Table
from torch import nn
from torch.nn import functional as F

from assay import oracle, pages
from assay.contract import Contract
from assay.gates import BATTERY, Context
from assay.oracle.cache import TruthCache
from assay.planning import chosen_gates, make_plan
from assay.probe.model import Draw
from assay.run.lanes import Budget, Run
from assay.run.process import Zygote
from assay.run.reference import ReferenceSession
from assay.task import load_task
from assay.vocabulary import EffortTier

REPEATS = 5
"""Rounds of one evaluation, a replay, an evaluation and a replay without perturbed runs."""
CACHED_TASKS = ("softmax", "layer_norm", "cross_entropy", "linear_gelu")
CACHED_DRAWS = 8
PRODUCTS = ("matmul", "tall matmul", "convolution", "convolution, batch norm, relu", "GRU")
MODELS = ("linear, gelu, linear", "linear, batch norm, hardtanh", "convolution, group norm, silu, pooling",
          "perceptron of four layers", "convolutional classifier", "residual block", "transformer block")


Task = tuple[str, Callable[..., Any], tuple[tuple[int, ...], ...]]


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

    def replay() -> None:
        oracle.evaluate(reference, inputs)

    def exact_run() -> None:
        oracle.evaluate(reference, inputs, runs=0)

    # In turns, so that whatever else the machine does falls on all of them alike.
    timed(once, device), timed(replay, device), timed(exact_run, device)
    rounds = []
    for _ in range(REPEATS):
        before = statistics.median(timed(once, device) for _ in range(3))
        perturbed = timed(replay, device)
        after = statistics.median(timed(once, device) for _ in range(3))
        rounds.append((min(before, after), perturbed, timed(exact_run, device)))
    single, perturbed, _ = (statistics.median(column) for column in zip(*rounds, strict=True))
    return {"task": name, "float64_s": single, "replay_s": perturbed,
            "ratio": statistics.median(p / s for s, p, _ in rounds),
            "ratio_to_exact_run": statistics.median(p / e for _, p, e in rounds)}


def timed(call: Callable[[], Any], device: str) -> float:
    """Seconds of a call; on the CPU those of this process on one core."""
    clock = time.perf_counter if device == "cuda" else time.process_time
    began = clock()
    call()
    if device == "cuda":
        torch.cuda.synchronize()
    return clock() - began


def sessions(device: str) -> Iterator[ReferenceSession]:
    """A session of each task; what they cache is theirs alone and gone afterwards."""
    with tempfile.TemporaryDirectory() as folder, Zygote() as zygote:
        zygote.wait_ready()
        for name in CACHED_TASKS:
            task = load_task(pages.examples() / name / "reference.py")
            session = ReferenceSession(zygote, task, device=device, cache=TruthCache(Path(folder) / "t"))
            try:
                yield session
            finally:
                session.close()


def cached_truths(device: str) -> list[float]:
    """Milliseconds of truths that the cache holds, over tasks and draws."""
    found = []
    for session in sessions(device):
        session.study()
        for turn in range(2):
            for seed in range(CACHED_DRAWS):
                began = time.perf_counter()
                session.truth({}, None, Draw(seed=seed), seed)
                if turn:
                    found.append(1e3 * (time.perf_counter() - began))
    return found


def cached_probes(device: str) -> list[float]:
    """Milliseconds that the oracle adds to each probe of a standard plan whose truths the cache holds."""
    found = []
    contract = Contract()
    for session in sessions(device):
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
    return found


def cost_metrics(costs: list[dict[str, Any]]) -> dict[str, float]:
    """Median and worst ratios."""
    return {
        "replay_cost_ratio": statistics.median(c["ratio"] for c in costs),
        "replay_cost_ratio_worst": max(c["ratio"] for c in costs),
        "replay_cost_ratio_products": statistics.median(c["ratio"] for c in costs if c["task"] in PRODUCTS),
        "replay_cost_ratio_models": statistics.median(c["ratio"] for c in costs if c["task"] in MODELS),
        "replay_cost_ratio_to_exact_run": statistics.median(c["ratio_to_exact_run"] for c in costs),
    }


def cost_table(costs: list[dict[str, Any]]) -> Table:
    table = Table(box=None, title="Cost of a replay", title_justify="left")
    for name in ("task", "one float64 run, ms", "replay, ms", "ratio"):
        table.add_column(name, justify="left" if name == "task" else "right")
    for row in costs:
        table.add_row(row["task"], f"{1e3 * row['float64_s']:.2f}", f"{1e3 * row['replay_s']:.1f}",
                      f"{row['ratio']:.1f}")
    return table
