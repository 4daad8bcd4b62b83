"""Whether a verdict can be forged: exploits, random frames, killed workers, leftovers, the cost of guards.

    python benchmarks/isolation.py [--frames N] [--workers N] [--jobs hostile,cheats,frames,workers,cost] [--part I/N]
    python benchmarks/isolation.py --join PART.json PART.json ...

It takes an hour; `--part` does every N-th of the exploits, and `--join` makes one result of several, which have to
be of one commit.
`exploits` counts candidates that attack the process or fake the work, `escaped` those that got a better label
than they deserve; `twins` are right programs that look like them. Leaks are processes, descriptors, threads,
directories and shared memory that were there afterwards and not before.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import sys
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

sys.path[:0] = [str(Path(__file__).resolve().parent), str(Path(__file__).resolve().parent.parent)]

from tests.exploits.test_hostile import GATES, HOSTILE, NAMES, Traces
from tests.run.peek import DEVICE, load
from tests.run.test_wire_fuzz import Frame, answer, frame, judged, read_all
from tests.run.test_workers import until

from assay.probe.model import Call, Draw, Probe
from assay.report.model import Report
from assay.run.candidate import CandidateSession
from assay.run.lanes import Budget, Run
from assay.run.process import Death, Limits, Zygote
from assay.run.reference import ReferenceSession
from assay.task import load_candidate, load_task
from assay.verify import Options, verify_task
from assay.vocabulary import EffortTier, Label
from common import ROOT, write_result

CHEATS = ROOT / "tests" / "exploits" / "cheats"
DESERVED = {Label.REJECTED}


def verify(zygote: Zygote, reference: Path, candidate: Path, **options: Any) -> Report:
    """The report on one pair, on CPU with a fixed seed."""
    task = load_task(reference)
    found = load_candidate(candidate, entries=task.candidate_entries, strict=False)
    chosen = Options(**{"device": "cpu", "seed": 11, "tier": EffortTier.STANDARD, **options})
    return verify_task(task, found, options=chosen, zygote=zygote)


def hostile(zygote: Zygote, part: slice) -> list[dict[str, Any]]:
    """Every candidate that attacks the process, with little patience, and what it left."""
    rows = []
    for name in NAMES[part]:
        before = Traces.now(zygote)
        began = time.monotonic()
        report = verify(zygote, HOSTILE / "reference.py", HOSTILE / f"{name}.py", tier=EffortTier.QUICK,
                        timeout=25.0, patience=1.0, only=GATES)
        clean = until(lambda before=before: Traces.now(zygote).within(before))
        rows.append({"kind": "hostile", "name": name, "label": report.label.value, "leak": not clean,
                     "reasons": sorted({f.reason.value for f in report.findings}),
                     "seconds": round(time.monotonic() - began, 1)})
        print(f"{name:34} {report.label.value:9} {'clean' if clean else 'LEAK'}", flush=True)
    return rows


def cheats(zygote: Zygote, part: slice) -> list[dict[str, Any]]:
    """Every candidate that fakes the work, and its right twin."""
    rows = []
    for path in sorted(p for p in CHEATS.glob("*/*.py") if p.name != "reference.py")[part]:
        twin = path.stem.endswith("_twin")
        report = verify(zygote, path.parent / "reference.py", path)
        rows.append({"kind": "twin" if twin else "cheat", "name": f"{path.parent.name}/{path.stem}",
                     "label": report.label.value,
                     "reasons": sorted({f.reason.value for f in report.findings})})
        print(f"{rows[-1]['name']:50} {'twin ' if twin else 'cheat'} {report.label.value}", flush=True)
    return rows


def frames(count: int) -> int:
    """Send that many random or damaged frames to the judge's reader; how many made it do anything but refuse
    or read them."""
    source = random.Random(5)
    right = frame(*answer())
    bad = 0
    for turn in range(count):
        data = bytearray(right)
        if turn % 3 == 0:
            data = bytearray(source.randbytes(source.randrange(300)))
        elif turn % 3 == 1:
            for _ in range(source.randrange(1, 12)):
                data[source.randrange(len(data))] = source.randrange(256)
        else:
            del data[source.randrange(len(data)):]
            data += source.randbytes(source.randrange(200))
        try:
            found = read_all(bytes(data))
            if isinstance(found, Frame):
                judged(found.header, bytes(found.payload))
        except Exception as error:
            bad += 1
            print(f"frame {turn}: {type(error).__name__}: {error}", flush=True)
    return bad


def workers(zygote: Zygote, count: int) -> int:
    """Start and kill that many workers; how many things are left of them."""
    zygote.spawn("candidate").close()
    before = Traces.now(zygote)
    for turn in range(count):
        worker = zygote.spawn("candidate", options=DEVICE, limits=Limits(address_space=8 << 30))
        if turn % 10 == 0:
            load(worker, "class ModelNew: pass")
        assert isinstance(worker.close(), Death)
    if until(lambda: Traces.now(zygote).within(before), 30):
        return 0
    after = Traces.now(zygote)
    return (len(after.processes - before.processes) + max(0, len(after.descriptors) - len(before.descriptors))
            + max(0, after.threads - before.threads) + len(after.shared - before.shared)
            + len(after.directories - before.directories))


def start_cost(zygote: Zygote, count: int = 30) -> dict[str, float]:
    """Seconds from the order to the first answer of a worker, confined and not, in turns."""
    seen: dict[str, list[float]] = {"auto": [], "off": []}
    for _ in range(count):
        for mode, times in seen.items():
            began = time.perf_counter()
            worker = zygote.spawn("candidate", options=DEVICE, confinement=mode)
            load(worker, "class ModelNew: pass")
            times.append(time.perf_counter() - began)
            worker.close()
    return {mode: statistics.median(times) for mode, times in seen.items()}


def guard_cost(zygote: Zygote, repeats: int = 5) -> list[dict[str, Any]]:
    """Seconds of three calls of each right example, with filled and fenced memory and without; best of a few."""
    rows = []
    for folder in sorted(p.parent for p in (ROOT / "examples").glob("*/right.py")):
        task = load_task(folder / "reference.py")
        candidate = load_candidate(folder / "right.py", entries=task.candidate_entries, strict=False)
        reference = ReferenceSession(zygote, task)
        session = CandidateSession(zygote, candidate.source, task.candidate_entries, DEVICE,
                                   Limits(address_space=10 << 30))
        run = Run(reference, [session], Budget(time.monotonic() + 600, floor=120.0), 1)
        study = reference.study()
        sizes = dict(study.small or study.sizes)
        seconds: dict[str, list[float]] = {"guarded": [], "plain": []}
        for _ in range(repeats):
            for kind, conditions in (("guarded", ("fresh:ff", "fence:c3")), ("plain", ("fresh:none",))):
                probe = Probe(id=f"cost/{kind}", gate="initialization", sizes=sizes, draws=(Draw(seed=3),),
                              calls=(Call(),) * 3, conditions=conditions)
                seen = run.one(probe, session).observation
                if seen.status == "ok":
                    seconds[kind].append(sum(c.seconds for c in seen.calls))
        session.close()
        reference.close()
        if seconds["guarded"] and seconds["plain"]:
            guarded, plain = min(seconds["guarded"]), min(seconds["plain"])
            rows.append({"kind": "cost", "name": folder.name, "guarded_s": round(guarded, 5),
                         "plain_s": round(plain, 5), "ratio": round(guarded / plain, 3)})
            print(f"{folder.name:34} {rows[-1]['ratio']:.2f}", flush=True)
    return rows


def counted(rows: list[dict[str, Any]]) -> dict[str, float]:
    """What the rows of exploits and twins add up to."""
    attacks = [r for r in rows if r["kind"] in ("hostile", "cheat")]
    twins = [r for r in rows if r["kind"] == "twin"]
    found: dict[str, float] = {}
    if attacks:
        found["exploits"] = len(attacks)
        found["escaped"] = sum(Label(r["label"]) not in DESERVED for r in attacks)
    if twins:
        found["twins"] = len(twins)
        found["twins_rejected"] = sum(r["label"] == Label.REJECTED.value for r in twins)
    return found


def join(paths: list[Path], out: Path | None) -> None:
    """Write one result file of several that did a part each."""
    parts = [json.loads(path.read_text(encoding="utf-8")) for path in paths]
    if len(commits := {part["commit"] for part in parts}) > 1:
        raise SystemExit(f"parts of different commits: {', '.join(sorted(map(str, commits)))}")
    rows = [row for part in parts for row in part["rows"] if row["kind"] != "sandbox"]
    names = [(row["kind"], row["name"]) for row in rows]
    if twice := [name for name, count in Counter(names).items() if count > 1]:
        raise SystemExit(f"done by two parts: {twice[0][1]}")
    metrics: dict[str, float] = {}
    for part in parts:
        metrics |= part["metrics"]
    metrics |= counted(rows) | {"leaks": sum(part["metrics"]["leaks"] for part in parts)}
    rows += [row for row in parts[0]["rows"] if row["kind"] == "sandbox"]
    path = write_result("isolation", "cpu", metrics, rows, out=out)
    record = json.loads(path.read_text(encoding="utf-8"))
    record |= {"commit": parts[0]["commit"], "command": "; ".join(part["command"] for part in parts)}
    path.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    print(f"written to {path}")


def main() -> None:
    """Run the chosen parts, print a table and write the result file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--frames", type=int, default=10_000)
    parser.add_argument("--workers", type=int, default=1_000)
    parser.add_argument("--jobs", default="hostile,cheats,frames,workers,cost")
    parser.add_argument("--part", default="1/1", help="I/N: every N-th of the exploits, from the I-th")
    parser.add_argument("--join", type=Path, nargs="+", help="result files of parts")
    parser.add_argument("--out", type=Path, default=None)
    chosen = parser.parse_args()
    if chosen.join:
        join(chosen.join, chosen.out)
        return
    first, _, every = chosen.part.partition("/")
    part = slice(int(first) - 1, None, int(every))
    jobs = chosen.jobs.split(",")
    rows: list[dict[str, Any]] = []
    metrics: dict[str, float] = {}
    leaks = 0
    with Zygote() as zygote:
        zygote.wait_ready()
        # the first verification of a process imports what later ones share
        verify(zygote, HOSTILE / "reference.py", HOSTILE / "sys_exit_zero.py", tier=EffortTier.QUICK,
               only=GATES)
        if "hostile" in jobs:
            rows += hostile(zygote, part)
        if "cheats" in jobs:
            rows += cheats(zygote, part)
        if "frames" in jobs:
            threads = threading.active_count()
            metrics["frames_fuzzed"] = chosen.frames
            metrics["frames_crashed"] = frames(chosen.frames)
            leaks += max(0, threading.active_count() - threads)
        if "workers" in jobs:
            metrics["workers_killed"] = chosen.workers
            leaks += workers(zygote, chosen.workers)
        if "cost" in jobs:
            starts = start_cost(zygote)
            metrics["start_confined_ms"] = round(1e3 * starts["auto"], 1)
            metrics["start_free_ms"] = round(1e3 * starts["off"], 1)
            cost = guard_cost(zygote)
            metrics["guard_cost_ratio"] = statistics.median(r["ratio"] for r in cost)
            metrics["guard_cost_ratio_largest"] = max(r["ratio"] for r in cost)
            rows += cost
        level = zygote.level().to_json()
    metrics |= counted(rows)
    leaks += sum(bool(r.get("leak")) for r in rows)
    metrics["leaks"] = leaks
    rows.append({"kind": "sandbox", "name": level["level"], "parts": level["parts"]})
    for name, value in metrics.items():
        print(f"{name:24} {value}")
    print(f"written to {write_result('isolation', 'cpu', metrics, rows, out=chosen.out)}")


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    main()
