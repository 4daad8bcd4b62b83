"""What the oracle has a model for, and what a replay costs, over whole tasks as generators of kernels meet them.

    python benchmarks/coverage.py                 # every task; prints a table, writes results/coverage.cpu.json
    python benchmarks/coverage.py --seconds 540   # stop after nine minutes; the same command goes on there

The tasks are the references that benchmarks/contract.py varies, the acceptance cases and the examples, each at its
own sizes and, where it has integers to vary, at small ones. Finished rows are kept in build/coverage.jsonl, or
--rows, until `--fresh`. Metrics:

- coverage_tasks, coverage_modelled: tasks, and those whose every operator has a rounding model of its own.
- coverage_operators, coverage_operators_modelled: distinct operators met in the replays, and those with a model.
- coverage_decided: tasks of which at least half of the elements decide.
- native_cost_ratio, _p90, _worst: seconds of an evaluation with twelve perturbed runs over those of one float64
  evaluation of the same reference on the same thread, at the task's own sizes; native_cost_total is the ratio of
  the sums, small_cost_ratio the median at small sizes, where the dispatch of operators decides, and
  small_truth_ms the median time of an evaluation there.
"""

from __future__ import annotations

import argparse
import copy
import importlib.util
import json
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from torch.utils import _pytree as pytree

from assay import oracle
from assay.oracle import memory
from assay.task import instantiate, parse_task
from assay.task.instance import seed_all
from assay.task.study import study
from common import ROOT, write_result

REPEATS = 3
SECONDS = 2.0
"""Seconds from which one measurement is enough."""
STUDY_S = 4.0
"""Seconds of a study, which finds the small sizes."""


def sources() -> Iterator[tuple[str, str]]:
    """Name and text of every task."""
    spec = importlib.util.spec_from_file_location("identity_tasks", ROOT / "tests/identity/generate.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["identity_tasks"] = module
    spec.loader.exec_module(module)
    for task in module.tasks():
        yield f"generated/{task.name}", task.source
    for folder in ("tests/cases", "examples"):
        for path in sorted((ROOT / folder).glob("*/reference.py")):
            yield f"{folder.rsplit('/', 1)[-1]}/{path.parent.name}", path.read_text(encoding="utf-8")


def timed(call: Callable[[], Any]) -> float:
    """Median processor seconds of a call after one to warm up; of the first where that is long."""
    found = []
    for _ in range(REPEATS + 1):
        began = time.process_time()
        call()
        found.append(time.process_time() - began)
        if found[0] > SECONDS:
            return found[0]
    return statistics.median(found[1:])


def measured(instance: Any) -> dict[str, Any]:
    """Coverage and cost of one task at one set of sizes."""
    arguments = instance.inputs(0)
    args, kwargs = list(arguments.args), dict(arguments.kwargs)
    model = instance.model
    evaluation = oracle.evaluate(model, args, kwargs)
    tensors = [t for t in pytree.tree_leaves((args, kwargs)) if isinstance(t, torch.Tensor)]
    decided = sum(int(leaf.decided.sum()) for leaf in evaluation.leaves)
    row: dict[str, Any] = {
        "operators": sorted(evaluation.ops), "unmodelled": list(evaluation.unmodelled), "random": evaluation.random,
        "decided": decided / max(1, sum(leaf.y.numel() for leaf in evaluation.leaves)),
        "elements": sum(t.numel() for t in tensors) + sum(leaf.y.numel() for leaf in evaluation.leaves),
    }
    failure = evaluation.raised or evaluation.replay_error
    if failure is not None:
        return row | {"failure": f"{failure.type}: {failure.message}"[:200]}
    wide_model = copy.deepcopy(model)
    if isinstance(wide_model, torch.nn.Module):
        wide_model = wide_model.double()
    wide = pytree.tree_map(
        lambda v: v.double() if isinstance(v, torch.Tensor) and v.is_floating_point() else v, (args, kwargs))

    def once() -> None:
        # a reference may write to its inputs or buffers, which changes no cost
        with torch.no_grad():
            wide_model(*wide[0], **wide[1])

    try:
        single = timed(once)
    except Exception as error:
        # it holds tensors or dtypes of its own that do not mix with float64
        return row | {"no_float64": f"{type(error).__name__}: {error}"[:120]}
    replay = timed(lambda: oracle.evaluate(model, args, kwargs))
    return row | {"float64_s": single, "replay_s": replay, "ratio": replay / max(single, 1e-9)}


def rows_of(name: str, source: str) -> Iterator[dict[str, Any]]:
    """A row at the task's own sizes, and one at small sizes where it has any."""
    task = parse_task(source, id=name)
    yield {"task": name, "at": "native"} | measured(instantiate(task))
    found = study(task, budget_s=STUDY_S)
    from assay.planning import small_sizes

    small = small_sizes(found, {})
    if small:
        yield {"task": name, "at": "small"} | measured(instantiate(task, small))


def metrics(rows: list[dict[str, Any]]) -> dict[str, float]:
    """What the page quotes."""
    native = [r for r in rows if r["at"] == "native"]
    judged = [r for r in native if "failure" not in r and not r["random"]]
    operators = {o for r in native for o in r["operators"]}
    without = {o for r in native for o in r["unmodelled"]}
    known = {
        "coverage_tasks": float(len(native)), "coverage_random": float(sum(r["random"] for r in native)),
        "coverage_failed": float(sum("failure" in r for r in native)),
        "coverage_modelled": float(sum(not r["unmodelled"] for r in native)),
        "coverage_decided": float(sum(r["decided"] >= 0.5 for r in judged)), "coverage_judged": float(len(judged)),
        "coverage_operators": float(len(operators | without)),
        "coverage_operators_modelled": float(len(operators - without)),
    }
    for at in ("native", "small"):
        timed_rows = [r for r in rows if r["at"] == at and "ratio" in r]
        if not timed_rows:
            continue
        ratios = sorted(r["ratio"] for r in timed_rows)
        known[f"{at}_cost_tasks"] = float(len(ratios))
        known[f"{at}_cost_ratio"] = statistics.median(ratios)
        known[f"{at}_cost_ratio_p90"] = ratios[int(0.9 * (len(ratios) - 1))]
        known[f"{at}_cost_ratio_worst"] = ratios[-1]
        known[f"{at}_cost_total"] = (sum(r["replay_s"] for r in timed_rows)
                                     / sum(r["float64_s"] for r in timed_rows))
        known[f"{at}_truth_ms"] = 1e3 * statistics.median(r["replay_s"] for r in timed_rows)
        known[f"{at}_elements"] = float(statistics.median(r["elements"] for r in timed_rows))
    return known


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=Path, default=ROOT / "build/coverage.jsonl")
    parser.add_argument("--seconds", type=float, default=None)
    parser.add_argument("--fresh", action="store_true")
    parser.add_argument("--only", default="", help="tasks whose name contains this")
    parser.add_argument("--out", type=Path, default=None)
    options = parser.parse_args()
    torch.set_num_threads(1)
    memory.keep_freed()
    oracle.warm_up()
    console = Console()
    options.rows.parent.mkdir(parents=True, exist_ok=True)
    if options.fresh:
        options.rows.unlink(missing_ok=True)
    kept: dict[str, list[dict[str, Any]]] = {}
    if options.rows.exists():
        for line in options.rows.read_text(encoding="utf-8").splitlines():
            entry = json.loads(line)
            kept[entry["name"]] = entry["rows"]
    began = time.monotonic()
    wanted = [(n, s) for n, s in sources() if options.only in n]
    for number, (name, source) in enumerate(wanted):
        if name in kept:
            continue
        if options.seconds is not None and time.monotonic() - began > options.seconds:
            console.print(f"stopped by its limit with {len(wanted) - number} tasks left; run it again to go on")
            return
        seed_all(0)
        rows = list(rows_of(name, source))
        kept[name] = rows
        with options.rows.open("a", encoding="utf-8") as file:
            file.write(json.dumps({"name": name, "rows": rows}) + "\n")
        for row in rows:
            cost = f"{1e3 * row['float64_s']:9.3f} ms {1e3 * row['replay_s']:9.1f} ms {row['ratio']:8.1f}" \
                if "ratio" in row else row.get("failure") or row.get("no_float64")
            console.print(f"{name:44.44} {row['at']:6} {row['elements']:9} {cost} {' '.join(row['unmodelled'])}",
                          markup=False)
        memory.give_back()
    rows = [row for name, _ in wanted for row in kept[name]]
    found = metrics(rows)
    for key, value in found.items():
        console.print(f"{key:32} {value:.4g}")
    if not options.only or options.out:
        write_result("coverage", "cpu", {k: rounded(v) for k, v in found.items()},
                     [{k: rounded(v) for k, v in row.items() if v not in ([], "")} for row in rows], out=options.out)


def rounded(value: Any) -> Any:
    return float(f"{value:.4g}") if isinstance(value, float) else value


if __name__ == "__main__":
    main()
