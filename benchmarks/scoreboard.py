"""How many faults Assay misses, and how many right kernels it rejects: mutants, controls, remade published sets.

Two steps, so that the first can run on other machines and in several sittings:

    python benchmarks/scoreboard.py run --rows ROWS.jsonl [--have OTHER.jsonl ...] [--seconds 420]
    python benchmarks/scoreboard.py result --have ROWS.jsonl [OTHER.jsonl ...]

`run` appends a row to ROWS.jsonl for each witness, verdict and screen as it ends; what has a row, in ROWS.jsonl
or in a file given with --have, is not done again, so that it goes on where it was stopped or killed. With
--seconds nothing further is begun after that time, and what runs may take 40 s more. --part I/N takes every N-th
subject, for machines side by side. --workers sets the judges (default: three for four processors; a judge takes
about one processor and 1.5 GB), --searchers the processes that look for witnesses (default: one for four).
--groups says what to judge, --most the places per mutation operator and kernel, --sample the number of mutants
(their order is such that any beginning is a fair sample), --tiers the tiers. --device cuda judges on a GPU, in rows
of their own; witnesses are looked for under emulation all the same, and may come from a run without a GPU.

`result` merges rows, prints the scoreboard and writes benchmarks/results/scoreboard.cpu.json. Metrics:

- mutants, killed: mutants with a witness that were judged, and those rejected at the standard tier;
- precision_mutants, precision_killed: of these, faults of precision;
- screen_missed: mutants that the kernelbench-v0 screen passes, of screen_judged that it could run;
  screen_missed_kernelbench, screen_missed_hardened: the same for the other screens;
- controls, false_alarms: verdicts on right candidates, and rejections among them; controls_undecided: neither
  accepted nor rejected;
- vacuous_gates: gates that judged nothing, or found nothing on any wrong candidate, where this scope could have;
- equivalent, stillborn: mutants without a witness, and those that never run; neither is counted;
- seeded_caught, tricks_caught, seeded_controls_clean, each with _of: the remade published sets.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from common import write_result

if TYPE_CHECKING:
    from assay.scoreboard.score import Score

GROUPS = ("mutants", "controls", "published", "operators")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(dest="command", required=True)
    run = commands.add_parser("run", help="judge what has no row yet")
    result = commands.add_parser("result", help="merge rows and write the result file")
    result.add_argument("--have", type=Path, nargs="+", required=True)
    result.add_argument("--out", type=Path)
    run.add_argument("--rows", type=Path, required=True, help="file to append to")
    run.add_argument("--have", type=Path, nargs="*", default=[], help="files with rows that need not be made again")
    run.add_argument("--seconds", type=float, help="begin nothing after so long")
    run.add_argument("--workers", type=int, default=0)
    run.add_argument("--searchers", type=int, default=0)
    run.add_argument("--groups", nargs="*", choices=GROUPS, default=list(GROUPS))
    run.add_argument("--most", type=int, default=2)
    run.add_argument("--sample", type=int)
    run.add_argument("--part", default="0/1")
    run.add_argument("--tiers", nargs="*", default=["standard"])
    for command in (run, result):
        command.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    options = parser.parse_args()
    if options.command == "run":
        _run(options)
    else:
        _result(options)


def _run(options: argparse.Namespace) -> None:
    # truths kept on disk would be those of an earlier version of the oracle
    os.environ.setdefault("ASSAY_CACHE_DIR", "")
    from assay.scoreboard.plan import plan
    from assay.scoreboard.rows import Rows
    from assay.scoreboard.run import Effort, run
    from assay.vocabulary import EffortTier

    part, parts = (int(n) for n in options.part.split("/"))
    cases = plan(groups=options.groups, most=options.most, sample=options.sample)
    subjects = sorted({c.subject for c in cases})
    mine = {s for i, s in enumerate(subjects) if i % parts == part}
    cases = [c for c in cases if c.subject in mine]
    rows = Rows(options.rows, options.have)
    before, began, shown = len(rows.known), time.monotonic(), [0.0]

    def show(phase: str, done: int, total: int) -> None:
        now = time.monotonic()
        if now - shown[0] > 20:
            shown[0] = now
            print(f"{now - began:6.0f} s: {done} {phase}, {len(rows.known) - before} new rows", flush=True)

    effort = Effort(tuple(EffortTier(t) for t in options.tiers), workers=options.workers,
                    searchers=options.searchers, seconds=options.seconds, device=options.device)
    print(f"{len(cases)} cases, {before} rows known, {effort.judges} judges, {effort.witnesses} searchers", flush=True)
    try:
        run(cases, rows, effort, show)
    except KeyboardInterrupt:
        print("interrupted; every row so far is kept", file=sys.stderr)
    finally:
        rows.close()
    print(f"{len(rows.known) - before} rows added to {options.rows}", flush=True)


def _result(options: argparse.Namespace) -> None:
    from rich.console import Console

    from assay.scoreboard.render import markdown, terminal
    from assay.scoreboard.rows import load
    from assay.scoreboard.score import score

    rows = list(load(options.have).values())
    found = score(rows, options.device)
    terminal(found, Console())
    listed = parts(found, rows, options.device)
    path = write_result("scoreboard", options.device, found.metrics, listed, out=options.out)
    path.with_suffix(".md").write_text(markdown(found), encoding="utf-8")
    print(path)


def parts(found: Score, rows: list[dict[str, object]], device: str) -> list[dict[str, object]]:
    """Rates by operator, subject and gate, and one record for each case that came out otherwise than it should."""
    listed: list[dict[str, object]] = []
    for by, rates in (("kind", found.by_kind), ("operator", found.by_operator), ("subject", found.by_subject),
                      ("control", found.alarms), ("dtype", found.alarms_by_dtype)):
        count = "rejected" if by in ("control", "dtype") else "killed"
        listed += [{"by": by, "name": n, count: r.count, "of": r.total} for n, r in rates.items()]
    listed += [{"by": "gate", "name": g.slug, "exercised": g.exercised, "found": g.fired, "alone": g.sole,
                "alarms": g.alarms, "undecided": g.undecided, "vacuous": g.vacuous} for g in found.gates]
    listed += [{"by": "policy", "name": n, "killed": kill.count, "of": kill.total, "false_alarms": alarm.count}
               for n, (kill, alarm) in found.policies.items()]
    listed += [{"by": "curve", "name": n, "multiples": [f for f, _ in c], "rejected": [round(r, 4) for _, r in c]}
               for n, c in found.curves.items()]
    witnesses = {r["id"]: r for r in rows if r["type"] == "witness"}
    odd = {*found.survivors, *found.alarmed}
    for row in rows:
        published = row["group"] in ("seeded", "trick")
        if row["type"] != "verdict" or row.get("device", "cpu") != device or not (row["id"] in odd or published):
            continue
        seen = witnesses.get(row["id"], {})
        findings = row["findings"]
        assert isinstance(findings, list)
        listed.append({"by": "case", "name": row["id"], "about": row["kind"], "label": row["label"],
                       "tier": row["tier"], "gates": sorted({f["gate"] for f in findings}),
                       **{k: seen[k] for k in ("how", "where", "ratio", "note", "line") if k in seen},
                       **{str(r["variant"]): r["outcome"] for r in rows
                          if r["type"] == "screen" and r["id"] == row["id"]}})
    return listed


if __name__ == "__main__":
    main()
