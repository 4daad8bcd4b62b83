"""Findings of the examples and of the acceptance cases: kept, replayed from the store, and shown by scripts.

    python benchmarks/evidence.py --work DIR            everything; goes on where an earlier run in DIR stopped
    python benchmarks/evidence.py --work DIR --limit 4  a sample: the first four candidates
    python benchmarks/evidence.py --work DIR --distinct a sample: one finding of each gate and reason

Every wrong candidate is verified into one store. Every finding is then replayed from it, written as a script, and
the script is run in a clean virtual environment: torch, triton, NumPy and what they require. Ten named faults are
shrunk and compared with minima made by hand, and eight processes that are killed at random write one store.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import time
import tomllib
import venv
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from importlib import metadata
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from rich.console import Console
from rich.table import Table
from tests.evidence.faults import FAULTS, Fault
from tests.evidence.shrunk import shrink_fault, sizes_of

from assay.contract import Contract
from assay.errors import InputError
from assay.evidence import Store
from assay.evidence.replay import replay
from assay.evidence.script import NoScript, script_of
from assay.run.process import Zygote
from assay.verify import Options, load_pair, verify_task
from assay.vocabulary import EffortTier
from common import ROOT, write_result

HUGE = "r30-int32-offset-overflow"
SHRINK_SECONDS = 60.0


Job = Callable[[Zygote], dict[str, Any]]


def pairs() -> Iterator[tuple[str, Path, Path, dict[str, Any], str]]:
    """Name, reference, candidate, contract and device of every wrong candidate."""
    for folder in sorted((ROOT / "examples").glob("*/example.toml")):
        data = tomllib.loads(folder.read_text())
        for wrong in sorted(folder.parent.glob("wrong_*.py")):
            name = f"{folder.parent.name}/{wrong.stem}"
            yield name, folder.parent / "reference.py", wrong, data.get("contract", {}), "cpu"
    for expect in sorted((ROOT / "tests/cases").glob("r*/expect.json")):
        data = json.loads(expect.read_text())
        folder = expect.parent
        yield folder.name, folder / "reference.py", folder / "candidate.py", data["contract"] or {}, data["device"]


class Progress:
    """What is done, on disk, so that a killed run goes on where it stopped."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.rows: dict[str, dict[str, Any]] = {}
        if path.exists():
            for line in path.read_text().splitlines():
                try:
                    row = json.loads(line)
                except ValueError:
                    continue  # the line that a kill cut off
                self.rows[row["key"]] = row

    def done(self, key: str, row: dict[str, Any]) -> None:
        self.rows[key] = {"key": key, **row}
        with self.path.open("a") as file:
            file.write(json.dumps(self.rows[key]) + "\n")


def run_all(jobs: list[tuple[str, Job]], progress: Progress, workers: int,
            deadline: float, console: Console) -> bool:
    """Do what is not done yet, `workers` at a time, each with a warm parent of its own; False when time ran out."""
    todo = [(key, job) for key, job in jobs if key not in progress.rows]

    def lane(number: int) -> None:
        mine = todo[number::workers]
        if not mine or time.monotonic() > deadline:
            return
        with Zygote() as zygote:
            for key, job in mine:
                if time.monotonic() > deadline:
                    return
                row = job(zygote)
                progress.done(key, row)
                console.print(f"{key}: {row}", soft_wrap=True, highlight=False)

    with ThreadPoolExecutor(workers) as pool:
        list(pool.map(lane, range(workers)))
    return all(key in progress.rows for key, _ in jobs)


def clean_environment(folder: Path) -> Path:
    """A virtual environment that holds torch, triton, NumPy and what they require, and nothing else; its python.

    Raises InputError when Assay can be imported in it, or torch cannot.
    """
    python = folder / "bin" / "python"
    if not python.exists():
        venv.create(folder, symlinks=True, with_pip=False)
        (site,) = folder.glob("lib/python*/site-packages")
        for package in required(("torch", "triton", "numpy")):
            places = {path.parts[0] for path in metadata.distribution(package).files or ()} - {"..", "__pycache__"}
            for name in places:
                target = Path(str(metadata.distribution(package).locate_file(name)))
                if target.exists() and not (site / name).exists():
                    (site / name).symlink_to(target)
    for name, wanted in (("torch", 0), ("assay", 1)):
        done = subprocess.run([str(python), "-I", "-c", f"import {name}"], capture_output=True, text=True, check=False)
        if done.returncode != wanted:
            raise InputError(f"`import {name}` ended with {done.returncode}", f"{python}", done.stderr[-300:])
    return python


def required(names: Iterable[str]) -> list[str]:
    """Installed packages that these need, themselves among them."""
    found, queue = dict[str, None](), list(names)
    while queue:
        name = canonicalize_name(queue.pop())
        try:
            needs = metadata.requires(name) or []
        except metadata.PackageNotFoundError:
            continue
        if name not in found:
            found[name] = None
            queue += [r.name for r in map(Requirement, needs) if r.marker is None or r.marker.evaluate({"extra": ""})]
    return list(found)


def verified(store: Path, reference: Path, wrong: Path, contract: dict[str, Any], device: str, tier: EffortTier,
             zygote: Zygote) -> dict[str, Any]:
    task, candidate = load_pair(reference, wrong)
    began = time.monotonic()
    report = verify_task(task, candidate, contract=Contract.from_data(contract), zygote=zygote,
                         options=Options(device=device, seed=20260, tier=tier, store=str(store)))
    return {"label": report.label.value, "findings": [f.id for f in report.findings], "candidate": candidate.digest,
            "seconds": round(time.monotonic() - began, 1)}


def distinct(store: Path, findings: list[str]) -> list[str]:
    """The first finding of each gate and reason."""
    first: dict[tuple[str, str], str] = {}
    with Store.open(store) as kept:
        for name in findings:
            finding = kept.finding(name).finding
            first.setdefault((finding.slug, finding.reason.value), name)
    return list(first.values())


def replayed(store: Path, finding: str, zygote: Zygote) -> dict[str, Any]:
    with Store.open(store) as kept:
        record = kept.finding(finding)
        result = replay(kept, finding, zygote)
    return {"gate": record.finding.slug, "reason": record.finding.reason.value, "outcome": result.outcome.value,
            "same_inputs": result.same_inputs, "why": result.why}


def scripted(store: Path, finding: str, folder: Path, python: Path, zygote: Zygote) -> dict[str, Any]:
    with Store.open(store) as kept:
        reason = kept.finding(finding).finding.reason.value
        try:
            text = script_of(kept, finding, zygote)
        except NoScript as error:
            return {"reason": reason, "status": "no script", "why": error.what}
    path = folder / f"{finding}.py"
    path.write_text(text)
    kept = {name: os.environ[name] for name in ("PATH", "LD_LIBRARY_PATH", "CUDA_HOME") if name in os.environ}
    environment = {**kept, "HOME": str(folder)}
    try:
        done = subprocess.run([str(python), "-I", str(path)], env=environment, capture_output=True, text=True,
                              timeout=300, check=False)
    except subprocess.TimeoutExpired:
        return {"reason": reason, "status": "hung", "bytes": len(text)}
    said = (done.stdout + done.stderr).strip().splitlines()
    return {"reason": reason, "status": done.returncode, "bytes": len(text), "said": said[-3:]}


def shrink_job(work: Path, fault: Fault) -> Job:
    """Shrink one named fault; whether it came down to what was worked out by hand."""

    def job(zygote: Zygote) -> dict[str, Any]:
        _, shrunk = shrink_fault(fault, work / "shrunk", zygote, SHRINK_SECONDS)
        sizes, elements = sizes_of(shrunk, fault), shrunk.minimal.elements or 0
        reached = elements <= fault.elements and all(sizes[n] <= least for n, least in fault.minimum.items())
        return {"sizes": sizes, "minimum": fault.minimum, "elements": elements, "reached": reached,
                "attempts": shrunk.attempts, "seconds": shrunk.seconds, "complete": shrunk.minimal.complete}

    return job


def writers(work: Path, progress: Progress) -> dict[str, float]:
    """Eight processes write one store and are killed at random, five rounds of them."""
    if "writers" not in progress.rows:
        shutil.rmtree(work / "written", ignore_errors=True)
        done = subprocess.run([sys.executable, str(ROOT / "tests/evidence/writers.py"), str(work / "written"), "8", "5",
                               "1"], capture_output=True, text=True, check=True)
        progress.done("writers", json.loads(done.stdout.splitlines()[-1]))
    told = progress.rows["writers"]
    return {"store_writers": told["writers"], "store_killed": told["killed"],
            "store_acknowledged": told["acknowledged"], "store_lost": told["lost"],
            "store_problems": len(told["problems"])}


def main() -> None:
    """Run what is missing, print a table, write the result file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", type=Path, required=True, help="folder of the store, the scripts and what is done")
    parser.add_argument("--limit", type=int, help="only so many candidates")
    parser.add_argument("--distinct", action="store_true", help="replay one finding of each gate and reason")
    parser.add_argument("--only", help="only candidates whose name contains this")
    parser.add_argument("--workers", type=int, default=1, help="verifications at a time")
    parser.add_argument("--partial", action="store_true", help="write the result file though not everything is done")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="stop after this time")
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"], help="candidates of this device")
    parser.add_argument("--out", type=Path, help="result file; the usual place by default")
    options = parser.parse_args()
    console = Console()
    deadline = time.monotonic() + options.seconds
    work, store = options.work, options.work / "store"
    (work / "scripts").mkdir(parents=True, exist_ok=True)
    python = clean_environment(work / "clean")
    progress = Progress(work / "done.jsonl")

    chosen = [p for p in pairs() if (p[4] == "cpu" or options.device == "cuda")
              and (options.only is None or options.only in p[0])][: options.limit]

    def verify_job(name: str, reference: Path, wrong: Path, contract: dict[str, Any]) -> Job:
        tier = EffortTier.DEEP if name == HUGE else EffortTier.STANDARD
        return lambda zygote: verified(store, reference, wrong, contract, options.device, tier, zygote)

    complete = run_all([(f"verify {name}", verify_job(name, reference, wrong, contract))
                        for name, reference, wrong, contract, _ in chosen], progress, options.workers, deadline,
                       console)
    findings = [f for name, *_ in chosen for f in progress.rows.get(f"verify {name}", {}).get("findings", [])]
    jobs: list[tuple[str, Job]] = []
    for finding in distinct(store, findings) if options.distinct else dict.fromkeys(findings):
        jobs.append((f"replay {finding}", lambda z, f=finding: replayed(store, f, z)))  # type: ignore[misc]
        jobs.append((f"script {finding}",
                     lambda z, f=finding: scripted(store, f, work / "scripts", python, z)))  # type: ignore[misc]
    complete = run_all(jobs, progress, options.workers, deadline, console) and complete

    metrics, rows = summary(progress, [name for name, *_ in chosen], list(dict.fromkeys(findings)))
    if (complete or options.partial) and options.only is None:
        complete = run_all([(f"shrink {fault.name}", shrink_job(work, fault)) for fault in FAULTS], progress,
                           options.workers, deadline, console) and complete
        shrunk = [progress.rows[k] for fault in FAULTS if (k := f"shrink {fault.name}") in progress.rows]
        if shrunk:
            metrics |= {"shrunk": len(shrunk), "shrunk_to_minimum": sum(r["reached"] for r in shrunk)}
        rows += shrunk
    if complete or options.partial:
        metrics |= writers(work, progress)
    metrics["complete"] = int(complete)
    table = Table("metric", "value")
    for name, value in metrics.items():
        table.add_row(name, str(value))
    console.print(table)
    if complete or options.partial:
        console.print(f"wrote {write_result('evidence', options.device, metrics, rows, out=options.out)}")
    else:
        console.print("not complete yet: run it again with the same --work")


def summary(progress: Progress, names: list[str], findings: list[str]) -> tuple[dict[str, float], list[dict[str, Any]]]:
    """Metrics and rows of what is done so far."""
    replays = [progress.rows[k] for f in findings if (k := f"replay {f}") in progress.rows]
    scripts = [progress.rows[k] for f in findings if (k := f"script {f}") in progress.rows]
    written = [row for row in scripts if row["status"] != "no script"]
    metrics: dict[str, float] = {
        "candidates": sum(f"verify {n}" in progress.rows for n in names), "findings": len(findings),
        "replayed": len(replays), "replayed_same": sum(r["outcome"] == "reproduced" for r in replays),
        "replayed_same_bits": sum(bool(r["same_inputs"]) for r in replays),
        "scripts_written": len(written), "scripts_same": sum(r["status"] == 1 for r in written),
        "scripts_impossible": len(scripts) - len(written),
    }
    return metrics, [*(progress.rows[k] for n in names if (k := f"verify {n}") in progress.rows), *replays, *scripts]


if __name__ == "__main__":
    try:
        main()
    except InputError as fault:
        sys.exit(f"evidence: {fault}")
