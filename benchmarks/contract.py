"""Inference over varied tasks, and false alarms: each reference as the candidate of its own task.

    python benchmarks/contract.py                                  # every task, one process for each core
    python benchmarks/contract.py --sample 30 --jobs 2             # thirty of them, spread evenly
    python benchmarks/contract.py --jobs 16 --seconds 540          # stop after nine minutes; the same command
                                                                   # again goes on where it stopped
    python benchmarks/contract.py --folder PROBLEMS --out found.json --rows found.jsonl   # problem files at hand
    PYTHONPATH=src:WHEELS ASSAY_COMMIT=HASH python3 benchmarks/contract.py --jobs 16 --seconds 540 \\
        --rows build/contract.jsonl --out $OUT/contract.json       # where assay is not installed

Needs torch, triton, numpy, pydantic and safetensors, no GPU, no compiler and no network. Each finished task is
appended to the file of rows at once, so a run that is stopped, by its limit, Ctrl-C or `kill -9`, has lost only
the tasks that were under way; a task whose text or tier changed is done again, and `--fresh` does all again.
Prints a line per verdict, then the metrics, and writes benchmarks/results/contract.cpu.json (or --out) over all
rows so far:

- tasks: tasks tried; inferred: inference completed; stable: a second inference, in a process of its own, wrote
  the same file, byte for byte. inferred_share and stable_share are shares of tasks. remaining: tasks left.
- identity_*, compiled_*, contiguous_free_*: the reference as it is; under `torch.compile`, traced and run
  eagerly, for one task in three at least; and with every `.contiguous()` taken out, where it has one. Of each:
  runs (verdicts), findings (each a false alarm), contract, screened and rejected (labels), undecided (verdicts
  in which a gate could not decide), errors (verifications that did not end in a verdict).
- seconds_median, seconds_total: of the verdicts. code_versions: states of the package that the rows come from.

Truths are shared between the verdicts of one run through a cache of its own, which is removed at the end.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib.util
import json
import multiprocessing
import os
import shutil
import statistics
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from pathlib import Path
from typing import Any

from assay.contract import infer
from assay.contract.toml import write_inferred
from assay.errors import InputError
from assay.oracle.cache import DIRECTORY_VARIABLE, package_version
from assay.run.process import Zygote
from assay.run.reference import ReferenceFailed, ReferenceSession
from assay.task import parse_candidate, parse_task
from assay.verify import Options, verify_task
from assay.vocabulary import EffortTier, Label, Outcome
from common import ROOT, write_result

COMPILED_EVERY = 3
"""One task in so many is also judged compiled; what was judged before is kept."""
VARIANTS = {"identity": "candidate", "compiled": "compiled", "contiguous_free": "without_contiguous"}
"""What a metric calls a variant, and what the generator does."""
BUDGET_S = 60.0
"""Seconds of a study, as `assay contract infer` has it."""


def generated() -> Any:
    """The module that makes the tasks."""
    if "identity_tasks" not in sys.modules:
        spec = importlib.util.spec_from_file_location("identity_tasks", ROOT / "tests/identity/generate.py")
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules["identity_tasks"] = module
        spec.loader.exec_module(module)
    return sys.modules["identity_tasks"]


@dataclass(frozen=True)
class Work:
    """One task and what is to be done with it."""

    name: str
    source: str
    candidates: dict[str, str]
    """Source text of each variant, by the name that metrics have."""
    tier: str
    seed: int

    @property
    def digest(self) -> str:
        """What a row must have been made from to stand for this task."""
        text = json.dumps([self.source, self.candidates, self.tier, self.seed], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()


def work_of(task: Any, number: int, options: argparse.Namespace, kept: dict[str, dict[str, Any]]) -> Work:
    """A generated task with the variants that are wanted; one that changes nothing is left out.

    Compiled ones are a sample, but for those that were judged before.
    """
    whole = _whole(task, options)
    if number % COMPILED_EVERY == 0 or whole.digest in kept:
        return whole
    return replace(whole, candidates={name: text for name, text in whole.candidates.items() if name != "compiled"})


def _whole(task: Any, options: argparse.Namespace) -> Work:
    candidates = {name: getattr(task, VARIANTS[name]) for name in options.variants}
    if candidates.get("contiguous_free") == task.candidate:
        del candidates["contiguous_free"]
    return Work(task.name, task.source, candidates, options.tier, options.seed)


def contract_text(zygote: Zygote, name: str, source: str) -> str:
    """The contract of a task as `assay contract infer` writes it, studied in a fresh process."""
    session = ReferenceSession(zygote, parse_task(source, id=name))
    try:
        return write_inferred(infer(session.study(budget_s=BUDGET_S)), name)
    finally:
        session.close()


def verdict(zygote: Zygote, work: Work, variant: str) -> dict[str, Any]:
    """What a verification found in a candidate that is right."""
    began = time.monotonic()
    try:
        report = verify_task(
            parse_task(work.source, id=work.name), parse_candidate(work.candidates[variant]),
            options=Options(device="cpu", tier=EffortTier(work.tier), seed=work.seed, lanes=1), zygote=zygote)
    except (InputError, ReferenceFailed) as error:
        return {"label": "error", "seconds": round(time.monotonic() - began, 2), "findings": [],
                "undecided": [], "error": str(error)[:300]}
    return {
        "label": report.label.value, "seconds": round(time.monotonic() - began, 2),
        "findings": [f"{f.slug}:{f.reason.value}:{f.probe}" for f in report.findings],
        "undecided": [f"{g.slug}:{g.reason.value if g.reason else ''}" for g in report.gates
                      if g.outcome in (Outcome.INCONCLUSIVE, Outcome.ERROR)],
    }


def row(zygote: Zygote, work: Work) -> dict[str, Any]:
    """One task: two inferences, and its reference as candidate in each variant."""
    found: dict[str, Any] = {"task": work.name, "digest": work.digest, "code": package_version()[:12],
                             "inferred": False, "stable": False, "verdicts": {}}
    try:
        first = contract_text(zygote, work.name, work.source)
        found["inferred"] = True
        found["stable"] = first == contract_text(zygote, work.name, work.source)
    except (InputError, ReferenceFailed) as error:
        found["error"] = str(error)[:300]
        return found
    for variant in work.candidates:
        found["verdicts"][variant] = verdict(zygote, work, variant)
    return found


def serve(pipe: Connection) -> None:
    """Answer tasks with rows until the pipe closes: one process with one warm parent."""
    import torch

    torch.set_num_threads(1)
    with Zygote() as zygote:
        zygote.wait_ready()
        while True:
            try:
                work: Work = pipe.recv()
            except (EOFError, OSError):
                return
            try:
                answer = row(zygote, work)
            except Exception:
                answer = {"task": work.name, "digest": work.digest, "inferred": False, "stable": False,
                          "verdicts": {}, "error": traceback.format_exc()[-900:]}
            pipe.send(answer)


class Worker:
    """One process that makes rows."""

    def __init__(self) -> None:
        context = multiprocessing.get_context("spawn")
        self.pipe, theirs = context.Pipe()
        self.process: SpawnProcess = context.Process(target=serve, args=(theirs,), daemon=True)
        self.process.start()
        theirs.close()
        self.work: Work | None = None

    def give(self, work: Work) -> None:
        """Start a task."""
        self.work = work
        self.pipe.send(work)

    def take(self) -> dict[str, Any] | None:
        """The row of the task under way; None where the process died."""
        try:
            found: dict[str, Any] = self.pipe.recv()
        except (EOFError, OSError):
            return None
        self.work = None
        return found

    def close(self) -> None:
        """End the process; its warm parent and workers end with it."""
        self.pipe.close()
        self.process.terminate()
        self.process.join(10)


def rows_of(todo: list[Work], jobs: int, until: float) -> Iterator[dict[str, Any]]:
    """Rows as they are finished, until none is left or the time is over; a task whose process dies is tried twice."""
    queue, deaths = list(todo), Counter[str]()
    workers = [Worker() for _ in range(min(jobs, len(todo)))]
    try:
        for worker in workers:
            worker.give(queue.pop(0))
        while busy := [w for w in workers if w.work is not None]:
            left = max(0.0, until - time.monotonic())
            # a selector takes no endless number of seconds
            ready = wait([w.pipe for w in busy], timeout=min(left, 3600.0))
            if not ready:
                if time.monotonic() < until:
                    continue
                return
            for worker in [w for w in busy if w.pipe in ready]:
                work = worker.work
                assert work is not None
                found = worker.take()
                if found is None:
                    deaths[work.name] += 1
                    worker.close()
                    workers[workers.index(worker)] = worker = Worker()
                    if deaths[work.name] < 2:
                        worker.give(work)
                        continue
                    found = {"task": work.name, "digest": work.digest, "inferred": False, "stable": False,
                             "verdicts": {}, "error": "the judging process died twice"}
                if queue:
                    worker.give(queue.pop(0))
                yield found
    finally:
        for worker in workers:
            worker.close()


def read_rows(path: Path) -> dict[str, dict[str, Any]]:
    """Finished rows by the digest of what they are of; a last line cut short is not one."""
    found = {}
    with suppress(FileNotFoundError):
        for line in path.read_text(encoding="utf-8").splitlines():
            with suppress(ValueError):
                data = json.loads(line)
                found[data["digest"]] = data
    return found


def metrics(rows: list[dict[str, Any]], remaining: int) -> dict[str, float]:
    """Counts and shares over all rows."""
    verdicts = [v for r in rows for v in r["verdicts"].values()]
    tasks = max(1, len(rows))
    found: dict[str, float] = {
        "tasks": len(rows), "remaining": remaining, "inferred": sum(r["inferred"] for r in rows),
        "stable": sum(r["stable"] for r in rows),
        "inferred_share": round(sum(r["inferred"] for r in rows) / tasks, 4),
        "stable_share": round(sum(r["stable"] for r in rows) / tasks, 4),
    }
    for variant in VARIANTS:
        of = [r["verdicts"][variant] for r in rows if variant in r["verdicts"]]
        labels = Counter(v["label"] for v in of)
        found |= {
            f"{variant}_runs": len(of), f"{variant}_findings": sum(len(v["findings"]) for v in of),
            **{f"{variant}_{label.value}": labels[label.value] for label in Label},
            f"{variant}_undecided": sum(bool(v["undecided"]) for v in of),
            f"{variant}_errors": labels["error"],
        }
    seconds = [v["seconds"] for v in verdicts] or [0.0]
    return found | {"seconds_median": round(statistics.median(seconds), 2), "seconds_total": round(sum(seconds), 1),
                    "code_versions": len({r.get("code") for r in rows})}


def tell(found: dict[str, Any]) -> None:
    """One line for each verdict, and one where inference failed."""
    for variant, seen in found["verdicts"].items():
        bad = " ".join([*seen["findings"], *seen["undecided"], seen.get("error", "")])
        print(f"{found['task']:34} {variant:16} {seen['label']:9} {seen['seconds']:6.1f}s {bad}".rstrip(), flush=True)
    if not found["stable"]:
        print(f"{found['task']:34} {found.get('error', 'a second inference differs')}", flush=True)


def chosen(options: argparse.Namespace, kept: dict[str, dict[str, Any]]) -> list[Work]:
    """The tasks asked for, in an order that spreads the families over any part of a run."""
    tasks = generated().tasks()
    if options.folder:
        files = sorted(options.folder.rglob("*.py"))
        tasks = [generated().Task(str(f.relative_to(options.folder).with_suffix("")), f.read_text("utf-8"))
                 for f in files]
    tasks = [t for t in tasks if any(t.name.startswith(o) for o in options.only or [""])]
    if options.sample and options.sample < len(tasks):
        tasks = [tasks[i * len(tasks) // options.sample] for i in range(options.sample)]
    tasks = sorted(tasks, key=lambda t: hashlib.sha256(t.name.encode()).digest())
    return [work_of(task, number, options, kept) for number, task in enumerate(tasks)]


def main() -> None:
    form = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=form)
    parser.add_argument("--tier", default="standard", choices=[t.value for t in EffortTier])
    parser.add_argument("--folder", type=Path, help="problem files in place of generated ones")
    parser.add_argument("--only", nargs="+", help="tasks whose names start with one of these")
    parser.add_argument("--sample", type=int, default=0, help="so many tasks, spread evenly; 0 for all")
    parser.add_argument("--variants", nargs="*", default=list(VARIANTS), choices=list(VARIANTS))
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)), help="processes")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="stop after so long")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--rows", type=Path, default=ROOT / "build" / "contract.jsonl", help="finished tasks")
    parser.add_argument("--fresh", action="store_true", help="forget the finished tasks first")
    parser.add_argument("--out", type=Path, help="another result file")
    options = parser.parse_args()
    until = time.monotonic() + options.seconds
    if options.fresh:
        options.rows.unlink(missing_ok=True)
    kept = read_rows(options.rows)
    wanted = chosen(options, kept)
    todo = [work for work in wanted if work.digest not in kept]
    options.rows.parent.mkdir(parents=True, exist_ok=True)
    cache = tempfile.mkdtemp(prefix="assay-contract-")
    os.environ[DIRECTORY_VARIABLE] = cache
    try:
        with options.rows.open("a", encoding="utf-8") as file, suppress(KeyboardInterrupt):
            if file.tell() and not options.rows.read_text(encoding="utf-8").endswith("\n"):
                file.write("\n")
            for found in rows_of(todo, options.jobs, until) if todo else ():
                file.write(json.dumps(found) + "\n")
                file.flush()
                kept[found["digest"]] = found
                tell(found)
    finally:
        shutil.rmtree(cache, ignore_errors=True)
    rows = [kept[work.digest] for work in wanted if work.digest in kept]
    numbers = metrics(rows, len(wanted) - len(rows))
    for name, value in numbers.items():
        print(f"{name:26} {value}")
    print(write_result("contract", "cpu", numbers, rows, out=options.out))


if __name__ == "__main__":
    main()
