"""Whether right backward passes are accepted, wrong ones rejected for the right reason, and what that costs.

Prints a table and writes benchmarks/results/gradients.cpu.json. Metrics:

- right, right_findings: right kernels and references as their own candidates, at float32 and bfloat16, under the
  training contract; those that a finding rejects (0 is right).
- wrong, wrong_caught: kernels with one fault in their backward, and those whose findings name its reason.
- reasons: distinct reasons among the faults.
- operators: operators they are of.
- cost_ratio: seconds of the whole standard battery with the gradient gate over those without it, summed over the
  right kernels of COSTED, no truth taken from a cache; cost_ratio_worst: the largest of one kernel.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from assay.contract import Contract
from assay.gates import BATTERY
from assay.report.model import Report
from assay.run.process import Zygote
from assay.task import Candidate, Task
from assay.verify import Options, verify_task
from assay.vocabulary import Outcome
from common import ROOT, write_result

sys.path.insert(0, str(ROOT))
from tests.gradients import faults

SEED = 11
COSTED = ("linear", "softmax", "layer_norm", "cross_entropy", "attention", "embedding")
WITHOUT = tuple(gate.slug for gate in BATTERY if not gate.opt_in and gate.slug != "gradients")
TRAINING = Contract(gradients="training")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, help="another place for the result file")
    options = parser.parse_args()
    console = Console()
    rows: list[dict[str, Any]] = []
    with Zygote() as zygote:
        zygote.wait_ready()
        for operator in faults.OPERATORS:
            for dtype in faults.DTYPES:
                task = faults.task_of(operator, dtype)
                for kind, candidate in (("right", faults.right(operator, dtype)),
                                        ("identity", faults.identity(operator, dtype))):
                    rows.append(judged(zygote, task, candidate, f"{operator} {kind} {dtype}", None))
        for fault in faults.FAULTS:
            rows.append(judged(zygote, faults.task_of(fault.operator), faults.wrong(fault), fault.id,
                               fault.reason.value))
        costs = [cost(zygote, operator) for operator in COSTED]
    right = [r for r in rows if r["wanted"] is None]
    wrong = [r for r in rows if r["wanted"] is not None]
    metrics = {
        "right": len(right), "right_findings": sum(r["outcome"] != Outcome.PASS.value for r in right),
        "wrong": len(wrong), "wrong_caught": sum(r["wanted"] in r["reasons"] for r in wrong),
        "reasons": len({r["wanted"] for r in wrong}), "operators": len(faults.OPERATORS),
        "cost_ratio": round(sum(c["with_s"] for c in costs) / sum(c["without_s"] for c in costs), 3),
        "cost_ratio_worst": round(max(c["with_s"] / c["without_s"] for c in costs), 3),
    }
    console.print(table(rows))
    for row in costs:
        console.print(f"{row['kernel']:16} {row['without_s']:.1f} s without, {row['with_s']:.1f} s with gradients")
    for name, value in metrics.items():
        console.print(f"{name:20} {value}")
    write_result("gradients", "cpu", metrics, rows + costs, out=options.out)


def judged(zygote: Zygote, task: Task, candidate: Candidate, name: str, wanted: str | None) -> dict[str, Any]:
    """The gradient gate's verdict on one candidate."""
    report = verify(zygote, task, candidate, ("gradients",))
    gate = next(g for g in report.gates if g.slug == "gradients")
    reasons = sorted({f.reason.value for f in report.findings if f.slug == "gradients"})
    return {"kernel": name, "wanted": wanted, "outcome": gate.outcome.value, "reasons": reasons}


def cost(zygote: Zygote, operator: str) -> dict[str, Any]:
    """Seconds of the standard battery on a right kernel, without and with the gradient gate."""
    task, candidate = faults.task_of(operator), faults.right(operator)
    seconds = []
    for only in (WITHOUT, (*WITHOUT, "gradients")):
        began = time.monotonic()
        verify(zygote, task, candidate, only, cache=False)
        seconds.append(round(time.monotonic() - began, 2))
    return {"kernel": operator, "without_s": seconds[0], "with_s": seconds[1]}


def verify(zygote: Zygote, task: Task, candidate: Candidate, only: tuple[str, ...], *, cache: bool = True) -> Report:
    """Some gates under the training contract; without the cache, every truth is evaluated."""
    return verify_task(task, candidate, contract=TRAINING, zygote=zygote,
                       options=Options(device="cpu", seed=SEED, only=only, cache=cache))


def table(rows: list[dict[str, Any]]) -> Table:
    shown = Table(box=None)
    for name in ("kernel", "outcome", "wanted", "reasons"):
        shown.add_column(name)
    for row in rows:
        shown.add_row(row["kernel"], row["outcome"], row["wanted"] or "", ", ".join(row["reasons"]))
    return shown


if __name__ == "__main__":
    main()
