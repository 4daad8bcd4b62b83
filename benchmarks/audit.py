"""An audit killed again and again against one left alone; the same on Ray; and the scheduler at 100,000 rows.

Each step is one call, keeps what it found in DIR, and can be repeated:

    python benchmarks/audit.py corpus DIR [--tasks 30] [--rows 320]
    python benchmarks/audit.py whole DIR [-- options of `assay audit run`]
    python benchmarks/audit.py killed DIR [--kills 10] [-- the same options]
    python benchmarks/audit.py control DIR [-- the same options]
    python benchmarks/audit.py ray DIR [-- the same options, and --sample N for fewer rows]
    python benchmarks/audit.py scale DIR [--rows 100000]
    python benchmarks/audit.py result DIR [--ray-in OTHER]

On a GPU: `whole DIR --device cuda` with `--gpus N` for the first N of the GPUs that there are, and `--called NAME` for
further audits of the same corpus with other GPUs and workers; then `device DIR` compares them, verdict by verdict.

The corpus is the package's own kernels and their mutants. `killed` ends the command with SIGKILL after a random
number of results, as often as asked, and lets the last one end. Some mutants return memory that nobody wrote, which
is another each time: `control` judges the rows that differ once more, and those that differ again from the audit left
alone, killed by nobody, are unstable themselves. Every step takes `--seconds S`: the time after
which it stops as Ctrl-C would, to be called again. Where the machine of DIR has no Ray, `whole` and `ray` can be run
on another, in a folder that `result` is told.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import random
import resource
import signal
import subprocess
import sys
import time
from concurrent.futures import Future
from pathlib import Path
from typing import Any

from assay.oracle.cache import DIRECTORY_VARIABLE
from common import write_result

ROW_WISE = (
    "bias_silu", "center_rows", "clamp", "elu", "gelu", "gelu_tanh", "hardswish", "leaky_relu", "log_softmax",
    "logsumexp", "min_max", "mish", "relu", "residual_add", "row_abs_sum", "row_mean", "row_min", "row_norm",
    "row_var", "sigmoid", "silu", "softmax", "softplus", "swiglu", "tanh", "l2_normalize", "rms_norm", "kl_div",
    "mse", "mean_var", "glu", "row_max", "row_sum", "square", "gather_rows",
)
"""Operators whose kernels cost little under emulation, tried first."""


def make_corpus(folder: Path, tasks: int, rows: int) -> None:
    """Write `corpus.jsonl`: right kernels and mutants of them, as even over the tasks as they allow."""
    from assay.corpus import entry, names
    from assay.mutants import OPERATORS, mutants_of

    chosen = [n for n in ROW_WISE if n in names()]
    chosen = [*chosen, *(n for n in names() if n not in chosen)][:tasks]
    queues = []
    for name in chosen:
        one = entry(name)
        kinds = {o.name: o.kind.value for o in OPERATORS}
        # a mutant that never ends costs its whole budget and tells nothing about the audit
        mutants = [m for m in mutants_of(name, one.kernel, most=2) if kinds[m.operator] != "resource"]
        queues.append([(one, "right", one.kernel, "right"),
                       *((one, f"{m.operator}-{m.number}", m.source, m.kind.value) for m in mutants)])
    taken = [q for turn in itertools.zip_longest(*queues) for q in turn if q is not None][:rows]
    generator = random.Random(7)
    with (folder / "corpus.jsonl").open("w", encoding="utf-8") as out:
        for one, name, source, kind in sorted(taken, key=lambda t: (t[0].name, t[1])):
            out.write(json.dumps({
                "id": f"{one.name}/{name}", "task": one.name, "reference": one.reference, "candidate": source,
                "generator": kind, "created": f"2026-{1 + generator.randrange(6):02d}-15",
                "speedup": round(generator.uniform(0.3, 3.0), 2)}) + "\n")
    print(f"{len(taken)} candidates of {len(chosen)} tasks")


def start(folder: Path, name: str, extra: list[str], gpus: int = 0) -> subprocess.Popen[bytes]:
    """The command, in a process group of its own; with `gpus` it sees that many."""
    corpus = folder / ("control.jsonl" if name == "control" else "corpus.jsonl")
    command = [sys.executable, "-m", "assay", "audit", "run", str(corpus), "-o", str(folder / name), *extra]
    seen = {}
    if gpus:
        # compared with others: none finds truths that another has left
        seen = {"CUDA_VISIBLE_DEVICES": ",".join(_indices(gpus)),
                DIRECTORY_VARIABLE: str(folder / f"{name}-truths")}
    return subprocess.Popen(command, stdin=subprocess.DEVNULL, start_new_session=True, env={**os.environ, **seen})


def _indices(gpus: int) -> list[str]:
    """The first so many GPUs, of those that the environment leaves."""
    named = [name for name in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if name.strip().isdigit()]
    return (named or [str(number) for number in range(gpus)])[:gpus]


class Busy:
    """How busy each GPU is while something runs, by `nvidia-smi`: the share of its time in which a kernel runs.

    Args:
        gpus: how many GPUs are looked at; none where 0.
    """

    def __init__(self, gpus: int) -> None:
        self._gpus = _indices(gpus)
        self._process: subprocess.Popen[str] | None = None

    def __enter__(self) -> Busy:
        if self._gpus:
            self._process = subprocess.Popen(
                ["nvidia-smi", "--query-gpu=index,utilization.gpu", "--format=csv,noheader,nounits", "-lms", "500"],
                stdout=subprocess.PIPE, text=True)
        return self

    def __exit__(self, *_: object) -> None:
        if self._process is not None:
            self._process.terminate()

    def shares(self) -> list[float]:
        """Mean share of each GPU, from 0 to 1, up to now; ends the looking."""
        if self._process is None:
            return []
        self._process.terminate()
        seen: dict[str, list[float]] = {index: [] for index in self._gpus}
        for line in self._process.communicate()[0].splitlines():
            index, _, share = line.partition(", ")
            if share.strip().isdigit() and index in seen:
                seen[index].append(float(share) / 100)
        return [round(sum(one) / len(one), 3) for one in seen.values() if one]


def results_of(folder: Path) -> int:
    """How many results an audit has kept; 0 before it is there."""
    from assay.audit.store import Store
    from assay.errors import InputError

    try:
        with Store(folder) as store:
            return store.results()
    except InputError:
        return 0


def finished(folder: Path) -> bool:
    """Whether an audit's tables hold everything and nothing is left to run."""
    from assay.audit.outcome import Status
    from assay.audit.store import Store
    from assay.audit.summary import summarise

    with Store(folder) as store:
        return summarise(store).statuses[Status.PENDING.value] == 0


def state(folder: Path, **changes: Any) -> dict[str, Any]:
    """What the steps have found so far, with these changes kept."""
    file = folder / "state.json"
    data: dict[str, Any] = json.loads(file.read_text()) if file.exists() else {}
    if changes:
        data.update(changes)
        file.write_text(json.dumps(data, indent=1))
    return data


def follow(process: subprocess.Popen[bytes], seconds: float, stop: Any = None) -> str:
    """Wait for the command: `ended`, `stopped` when the time is up, or `killed` when `stop()` says so."""
    deadline = time.monotonic() + seconds
    try:
        while process.poll() is None:
            if stop is not None and stop():
                process.kill()
                process.wait()
                return "killed"
            if time.monotonic() > deadline:
                process.send_signal(signal.SIGINT)
                process.wait()
                return "stopped"
            time.sleep(0.05)
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGINT)
            process.wait()
    if process.returncode != 0:
        sys.exit(f"the audit ended with status {process.returncode}")
    return "ended"


def whole(folder: Path, seconds: float, extra: list[str], name: str = "whole", gpus: int = 0) -> None:
    """One audit, left alone. A run that the time ends is not left alone, and is said to be in parts."""
    began, before = time.monotonic(), results_of(folder / name)
    with Busy(gpus) as busy:
        how = follow(start(folder, name, extra, gpus), seconds)
        shares = busy.shares()
    spent = state(folder).get(f"{name}_s", 0.0) + time.monotonic() - began
    parts = state(folder).get(f"{name}_parts", 0) + 1
    state(folder, **{f"{name}_s": spent, f"{name}_parts": parts, f"{name}_options": extra, f"{name}_gpus": gpus,
                     f"{name}_shares": shares})
    print(f"{name}: {how} after {spent:.0f} s in {parts} parts, {results_of(folder / name) - before} results")


def killed(folder: Path, kills: int, seconds: float, extra: list[str]) -> None:
    """The same audit, killed after random numbers of results."""
    from assay.audit.store import Store

    began = time.monotonic()
    with Store(folder / "whole") as store:
        total = store.results()
    cuts = sorted(random.Random(13).sample(range(1, total), kills))
    done = list(state(folder).get("killed_at", []))
    spent = float(state(folder).get("killed_s", 0.0))
    while True:
        left = seconds - (time.monotonic() - began)
        cut = cuts[len(done)] if len(done) < kills else None
        stop = None if cut is None else (lambda cut=cut: results_of(folder / "killed") >= cut)
        how = follow(start(folder, "killed", extra), max(1.0, left), stop)
        if how == "killed":
            done.append(results_of(folder / "killed"))
        state(folder, killed_at=done, killed_s=spent + time.monotonic() - began)
        print(f"{how} at {results_of(folder / 'killed')} of {total} results, {len(done)} kills")
        if how != "killed":
            return


def outcomes(folder: Path) -> dict[tuple[str, str], str]:
    """Every result of an audit as text, times left out."""
    from assay.audit.store import Store

    found = {}
    with Store(folder) as store:
        for row in store.rows(chosen=True):
            for kind, (outcome, _) in store.outcomes(row.id).items():
                report = outcome["report"]
                if report is not None:
                    report.pop("timing")
                found[row.id, kind] = json.dumps(outcome, sort_keys=True)
    return found


def doubled(folder: Path) -> int:
    """Rows that the tables hold more than once."""
    import pyarrow.parquet as parquet

    ids = parquet.read_table(folder / "rows.parquet", columns=["id"])["id"].to_pylist()
    return len(ids) - len(set(ids))


def label(outcome: str) -> str | None:
    """The label of a battery's result."""
    report = json.loads(outcome)["report"]
    return None if report is None else report["label"]


def compared(first: Path, second: Path) -> dict[str, Any]:
    """Two audits, result by result, on the rows that the second is about."""
    from assay.audit.store import Store

    with Store(second) as store:
        rows = {row.id for row in store.rows(chosen=True)}
    a, b = {key: text for key, text in outcomes(first).items() if key[0] in rows}, outcomes(second)
    return {"rows": len(rows), "lost": len(a.keys() - b.keys()), "more": len(b.keys() - a.keys()),
            "doubled": doubled(second),
            "labels": sum(label(a[key]) != label(b[key]) for key in a.keys() & b.keys() if key[1] == "battery"),
            "different": sorted("/".join(key) for key in a.keys() & b.keys() if a[key] != b[key])}


def different_rows(folder: Path) -> list[str]:
    """Ids of the rows that the killed audit, or the one over Ray, tells otherwise than the one left alone."""
    names = [name for name in ("killed", "ray") if (folder / name / "rows.parquet").exists()]
    return sorted({key.rpartition("/")[0] for name in names
                   for key in compared(folder / "whole", folder / name)["different"]})


def control(folder: Path, seconds: float, extra: list[str]) -> None:
    """Judge the rows that differ once more, with nothing killed."""
    wanted = set(different_rows(folder))
    lines = [line for line in (folder / "corpus.jsonl").read_text().splitlines() if json.loads(line)["id"] in wanted]
    if lines:
        (folder / "control.jsonl").write_text("\n".join(lines) + "\n")
        whole(folder, seconds, extra, "control")


class Stub:
    """A backend that answers at once with one ready report: what is left is the scheduler's own cost."""

    workers = 8

    def __init__(self, report: Any) -> None:
        self._report = report

    def submit(self, job: Any) -> Future[Any]:
        """Answer."""
        from assay.pool import Done

        future: Future[Any] = Future()
        future.set_result(Done(job, self._report, None, "", 0.0))
        return future

    def close(self) -> None:
        """Nothing runs."""


def scale(folder: Path, rows: int) -> None:
    """The scheduler alone: rows a second, and memory as the audit grows."""
    from assay.audit.corpus import Corpus, CorpusRow
    from assay.audit.outcome import Checks
    from assay.audit.run import open_audit, run_audit
    from assay.audit.settings import Settings
    from assay.audit.store import Store
    from assay.report.model import Report

    with Store(folder / "whole") as store:
        kept = next(row for row in store.rows(chosen=True) if store.verdicts(row.id).get("battery") == "rejected")
        report = Report.model_validate(store.outcomes(kept.id)["battery"][0]["report"])
        reference, candidate = store.source(kept.reference) or "", store.source(kept.candidate) or ""

    def corpus() -> Any:
        for number in range(rows):
            yield CorpusRow(f"row-{number}", f"{reference}\n# task {number // 100}\n",
                            f"{candidate}\n# candidate {number}\n", op_class="elementwise")

    target = folder / f"scale-{rows}"
    memory: list[tuple[int, float]] = []
    began = time.monotonic()
    with Store(target, write=True) as store:
        settings = open_audit(store, Corpus(target, "made", corpus, str(rows)),
                              Settings(checks=Checks("battery"), seed=1, device="cpu"))
        read = time.monotonic() - began
        began = time.monotonic()

        def show(progress: Any) -> None:
            if progress.done % max(1, rows // 20) == 0:
                memory.append((progress.done, _resident()))

        ended = run_audit(store, settings, Stub(report), show)
        ran = time.monotonic() - began
        held = store.results()
    tenth = next(m for done, m in memory if done >= rows // 10)
    state(folder, scale={"rows": ended.done, "results": held, "read_s": round(read, 1), "run_s": round(ran, 1),
                         "per_second": round(rows / ran, 1), "mib_at_a_tenth": round(tenth, 1),
                         "mib_at_the_end": round(memory[-1][1], 1), "peak_mib": round(_peak(), 1)})
    print(state(folder)["scale"])


def _resident() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize() / (1 << 20)


def _peak() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def result(folder: Path, device: str, gpus: int, out: Path | None, ray_in: Path) -> None:
    """Put everything together and write the result file; what ran over Ray did so in the folder `ray_in`."""
    from assay.audit.store import Store
    from assay.audit.summary import summarise

    found = state(folder)
    against = compared(folder / "whole", folder / "killed")
    unstable = set()
    if (folder / "control").exists():
        unstable = {key.rpartition("/")[0] for key in compared(folder / "whole", folder / "control")["different"]}

    def unexplained(keys: list[str]) -> list[str]:
        return [key for key in keys if key.rpartition("/")[0] not in unstable]

    with Store(folder / "whole") as store:
        counted = summarise(store)
        tasks = len({row.task_key for row in store.rows(chosen=True)})
    metrics: dict[str, float] = {
        "candidates": counted.rows, "tasks": tasks, "kills": len(found["killed_at"]),
        "rows_lost": against["lost"], "rows_doubled": against["doubled"] + against["more"],
        "rows_different": len({key.rpartition("/")[0] for key in unexplained(against["different"])}),
        "rows_unstable": len(unstable), "labels_different": against["labels"],
        "per_minute": round(60 * counted.rows / found["whole_s"], 1), "parts": found["whole_parts"], "gpus": gpus,
        "killed_s": round(found["killed_s"], 1), "whole_s": round(found["whole_s"], 1),
        "rejected": counted.whole.rejected, "decided": counted.whole.decided,
    }
    rows: list[dict[str, Any]] = [
        {"step": "whole", "options": found["whole_options"], "statuses": dict(counted.statuses)},
        {"step": "killed", "at": found["killed_at"], "different": unexplained(against["different"]),
         "unstable": sorted(unstable)},
    ]
    if (ray_in / "ray").exists() and finished(ray_in / "ray"):
        ray = compared(ray_in / "whole", ray_in / "ray")
        ray["different"] = unexplained(ray["different"])
        metrics["ray_equal"] = float(not any(ray[name] for name in ("lost", "more", "doubled", "different", "labels")))
        metrics["ray_rows"] = ray["rows"]
        metrics["ray_per_minute"] = round(60 * ray["rows"] / state(ray_in)["ray_s"], 1)
        rows.append({"step": "ray", **ray})
    if "scale" in found:
        metrics.update({f"scale_{name}": value for name, value in found["scale"].items()})
    path = write_result("audit", device, metrics, rows, out=out)
    print(json.dumps(metrics, indent=1), path)


def device_result(folder: Path, device: str, out: Path | None) -> None:
    """Compare audits of one corpus that ran with other GPUs and workers, and write the result file.

    `whole` is the audit that the others are compared to: their labels, on the rows that they judged.
    """
    from assay.audit.export import export
    from assay.audit.store import Store
    from assay.audit.summary import summarise

    found = state(folder)
    for key in (k for k in found if k.endswith("_shares")):
        with Store(folder / key.removesuffix("_shares")) as store:
            export(store)
    with Store(folder / "whole") as store:
        counted = summarise(store)
    metrics: dict[str, float] = {
        "candidates": counted.rows, "decided": counted.whole.decided, "rejected": counted.whole.rejected,
        "rows_lost": counted.statuses["pending"], "rows_doubled": doubled(folder / "whole")}
    rows: list[dict[str, Any]] = []
    for key in sorted(k for k in found if k.endswith("_shares")):
        name = key.removesuffix("_shares")
        with Store(folder / name) as store:
            judged = sum(1 for row in store.rows(chosen=True) if "battery" in store.verdicts(row.id))
        spent, shares = found[f"{name}_s"], found[key]
        options = found[f"{name}_options"]
        row: dict[str, Any] = {
            "audit": name, "gpus": found[f"{name}_gpus"], "workers": int(options[options.index("--workers") + 1]),
            "judged": judged, "seconds": round(spent, 1), "parts": found[f"{name}_parts"],
            "per_minute": round(60 * judged / spent, 1), "gpu_shares": shares, "options": options}
        if name != "whole":
            against = compared(folder / "whole", folder / name)
            row |= {"labels_different": against["labels"], "doubled": against["doubled"]}
        rows.append(row)
        prefix = "" if name == "whole" else f"{name.replace('-', '_')}_"
        metrics |= {f"{prefix}{what}": row[what] for what in ("gpus", "workers", "judged", "per_minute")}
        metrics[f"{prefix}gpu_share"] = round(sum(shares) / max(1, len(shares)), 3)
        if "labels_different" in row:
            metrics[f"{prefix}labels_different"] = row["labels_different"]
    path = write_result("audit", device, metrics, rows, out=out)
    print(json.dumps(metrics, indent=1), path)


def main() -> None:
    """One step."""
    arguments = sys.argv[1:]
    extra = arguments[arguments.index("--") + 1:] if "--" in arguments else []
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("step", choices=("corpus", "whole", "killed", "control", "ray", "scale", "result",
                                             "device"))
    parser.add_argument("folder", type=Path)
    parser.add_argument("--tasks", type=int, default=30)
    parser.add_argument("--rows", type=int, default=None)
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--seconds", type=float, default=1e9)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--gpus", type=int, default=0)
    parser.add_argument("--called", default="whole")
    parser.add_argument("--ray-in", type=Path, default=None)
    parser.add_argument("--out", type=Path, default=None)
    options = parser.parse_args(arguments[:arguments.index("--")] if "--" in arguments else arguments)
    folder: Path = options.folder
    folder.mkdir(parents=True, exist_ok=True)
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    settings = ["--seed", "17", "--both", "--device", options.device, *extra]
    if options.step == "corpus":
        make_corpus(folder, options.tasks, options.rows or 320)
    elif options.step == "whole":
        whole(folder, options.seconds, settings, options.called, options.gpus)
    elif options.step == "killed":
        killed(folder, options.kills, options.seconds, settings)
    elif options.step == "control":
        control(folder, options.seconds, settings)
    elif options.step == "ray":
        whole(folder, options.seconds, [*settings, "--backend", "ray"], "ray")
    elif options.step == "scale":
        scale(folder, options.rows or 100_000)
    elif options.step == "device":
        device_result(folder, options.device, options.out)
    else:
        result(folder, options.device, options.gpus, options.out, options.ray_in or folder)


if __name__ == "__main__":
    main()
