"""Inference over varied tasks, and false alarms: each reference as the candidate of its own task.

Prints a table and writes benchmarks/results/contract.cpu.json. Metrics:

- tasks: tasks tried; inferred: inference completed; stable: a second inference wrote the same file, byte for
  byte. inferred_share and stable_share are shares of tasks.
- identity_runs: verdicts on a reference as its own candidate, also compiled and without `.contiguous()`;
  identity_findings: findings in them, each a false alarm; identity_contract: verdicts `contract`;
  identity_undecided: verdicts in which a gate could not decide.
- seconds_median: of one verdict.
"""

from __future__ import annotations

import argparse
import importlib.util
import statistics
import sys
import time
from pathlib import Path
from typing import Any

from assay.contract import infer
from assay.contract.toml import write_inferred
from assay.errors import InputError
from assay.run.process import Zygote
from assay.run.reference import ReferenceFailed, ReferenceSession
from assay.task import parse_candidate, parse_task
from assay.verify import Options, verify_task
from assay.vocabulary import EffortTier, Label, Outcome
from common import ROOT, write_result

VARIANT_EVERY = 8
"""One task in so many is also verified compiled, and one without `.contiguous()`."""
BUDGET_S = 60.0


def generated() -> Any:
    """The module that makes the tasks."""
    spec = importlib.util.spec_from_file_location("identity_tasks", ROOT / "tests/identity/generate.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["identity_tasks"] = module
    spec.loader.exec_module(module)
    return module


def contract_text(zygote: Zygote, name: str, source: str) -> str:
    """The contract of a task as `assay contract infer` writes it, studied in a fresh process."""
    session = ReferenceSession(zygote, parse_task(source, id=name))
    try:
        return write_inferred(infer(session.study(budget_s=BUDGET_S)), name)
    finally:
        session.close()


def verdict(zygote: Zygote, name: str, reference: str, candidate: str, tier: str) -> dict[str, Any]:
    """What a verification found in a candidate that is right."""
    began = time.monotonic()
    report = verify_task(
        parse_task(reference, id=name), parse_candidate(candidate),
        options=Options(device="cpu", tier=EffortTier(tier), seed=1, lanes=1), zygote=zygote)
    return {
        "label": report.label.value, "seconds": round(time.monotonic() - began, 2),
        "findings": [f"{f.slug}:{f.reason.value}:{f.probe}" for f in report.findings],
        "undecided": [f"{g.slug}:{g.reason.value if g.reason else ''}" for g in report.gates
                      if g.outcome in (Outcome.INCONCLUSIVE, Outcome.ERROR)],
    }


def row(zygote: Zygote, number: int, task: Any, tier: str) -> dict[str, Any]:
    """One task: two inferences, and its reference as candidate in one to three variants."""
    found: dict[str, Any] = {"task": task.name, "inferred": False, "stable": False, "verdicts": {}}
    try:
        first = contract_text(zygote, task.name, task.source)
        found["inferred"] = True
        found["stable"] = first == contract_text(zygote, task.name, task.source)
    except (InputError, ReferenceFailed) as error:
        found["error"] = str(error)[:300]
        return found
    wanted = ["candidate"]
    if number % VARIANT_EVERY == 0:
        wanted.append("compiled")
    if number % VARIANT_EVERY == VARIANT_EVERY // 2:
        wanted.append("without_contiguous")
    for variant in wanted:
        found["verdicts"][variant] = verdict(zygote, task.name, task.source, getattr(task, variant), tier)
    return found


def metrics(rows: list[dict[str, Any]]) -> dict[str, float]:
    """Counts and shares over all rows."""
    verdicts = [v for r in rows for v in r["verdicts"].values()]
    return {
        "tasks": len(rows), "inferred": sum(r["inferred"] for r in rows),
        "stable": sum(r["stable"] for r in rows),
        "inferred_share": round(sum(r["inferred"] for r in rows) / len(rows), 4),
        "stable_share": round(sum(r["stable"] for r in rows) / len(rows), 4),
        "identity_runs": len(verdicts), "identity_findings": sum(len(v["findings"]) for v in verdicts),
        "identity_contract": sum(v["label"] == Label.CONTRACT.value for v in verdicts),
        "identity_undecided": sum(bool(v["undecided"]) for v in verdicts),
        "seconds_median": round(statistics.median(v["seconds"] for v in verdicts), 2) if verdicts else 0.0,
    }


def main() -> None:
    form = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=form)
    parser.add_argument("--tier", default="standard", choices=[t.value for t in EffortTier])
    parser.add_argument("--only", default="", help="tasks whose name contains this")
    parser.add_argument("--step", type=int, default=1, help="every so many tasks")
    parser.add_argument("--out", type=Path, help="another result file")
    options = parser.parse_args()
    chosen = [t for t in generated().tasks() if options.only in t.name][:: options.step]
    rows = []
    with Zygote() as zygote:
        for number, task in enumerate(chosen):
            rows.append(row(zygote, number, task, options.tier))
            for variant, seen in rows[-1]["verdicts"].items():
                bad = " ".join([*seen["findings"], *seen["undecided"]])
                head = f"{task.name:34} {variant:18} {seen['label']:9} {seen['seconds']:6.1f}s"
                print(f"{head} {bad}", flush=True)
            if not rows[-1]["stable"]:
                print(f"{task.name:34} {rows[-1].get('error', 'a second inference differs')}", flush=True)
    found = metrics(rows)
    for name, value in found.items():
        print(f"{name:20} {value}")
    print(write_result("contract", "cpu", found, rows, out=options.out))


if __name__ == "__main__":
    main()
