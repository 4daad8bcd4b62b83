"""Forty launches that break, one after another, between good kernels: what the good ones' reports notice of it.

Run on a machine with a GPU: `python benchmarks/gpu_faults.py`. Good kernels are judged alone first; then again with
a faulty candidate before each. A good report is equal when label, outcomes, coverage, findings and probes are.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import time
from pathlib import Path
from typing import Any

from assay.pool import Job, Pool
from assay.report.model import Report
from assay.task import parse_candidate
from assay.verify import Options, load_pair
from assay.vocabulary import EffortTier
from common import ROOT, write_result

CORPUS = ROOT / "src" / "assay" / "corpus" / "kernels"
GOOD = ("relu", "row_mean", "softmax_row", "gelu")
HEAD = '''import torch
import triton
import triton.language as tl


@triton.jit
def kernel(x_ptr, y_ptr, flag_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offsets, mask=offsets < n, other=0.0)
    {body}
    tl.store(y_ptr + offsets, tl.maximum(x, 0.0), mask=offsets < n)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        flag = torch.zeros(1, dtype=torch.int32, device=x.device)
        {before}
        kernel[(triton.cdiv(x.numel(), 1024),)](x, y, flag, x.numel(), BLOCK=1024)
        return y
'''
FAULTS = {
    "illegal_read": ("x += tl.load(x_ptr + offsets + (1 << 40))", ""),
    "illegal_write": ("tl.store(y_ptr + offsets + (1 << 40), x)", ""),
    "null": ("x += tl.load((flag_ptr.to(tl.int64) * 0).to(tl.pointer_type(tl.float32)) + offsets)", ""),
    "misaligned": ("x += tl.load(((flag_ptr.to(tl.int64) + 2).to(tl.pointer_type(tl.int64))) + offsets * 0)"
                   ".to(tl.float32)", ""),
    "trap": ("x = tl.inline_asm_elementwise('trap; mov.b32 $0, $1;', '=r,r', [x], dtype=tl.float32, is_pure=False, "
             "pack=1)", ""),
    "endless": ("seen = tl.atomic_add(flag_ptr, 0)\n    while seen < 1:\n"
                "        seen = tl.atomic_add(flag_ptr, 0)", ""),
    "out_of_memory": ("", "huge = torch.empty(1 << 42, dtype=torch.float32, device=x.device)"),
    "too_many_programs": ("", "kernel[(1, 1 << 20)](x, y, flag, x.numel(), BLOCK=1024)"),
    "assertion": ("", "torch.zeros(4, device=x.device)[torch.full((1,), 1 << 20, device=x.device)]"),
    "late_illegal_read": ("", "kernel[(1,)](x, y, flag, 1 << 45, BLOCK=1024)\n"
                              "        kernel[(1 << 22,)](x, y, flag, 1 << 45, BLOCK=1024)"),
}


def _told(report: Report) -> str:
    """What has to be equal."""
    data = json.loads(report.to_json())
    kept = {k: data[k] for k in ("label", "coverage", "findings", "probes", "gates") if k in data}
    for gate in kept.get("gates", []):
        # registers and the like are said there, and numbers that the machine's load may move
        gate.pop("note", None)
    return json.dumps(kept, sort_keys=True)


def _metrics(rows: list[dict[str, Any]], lost: int, seconds: float) -> dict[str, float]:
    good = [r for r in rows if "/good/" in r["name"]]
    faulty = [r for r in rows if "/good/" not in r["name"]]
    return {
        "faulty": len(faulty), "good": len(good), "good_reports_equal": sum(bool(r.get("equal")) for r in good),
        "faulty_rejected": sum(r["label"] == "rejected" for r in faulty),
        "faulty_accepted": sum(r["label"] == "contract" for r in faulty), "judges_lost": lost,
        "wall_s": round(seconds, 1),
    }


def main() -> None:
    """Run everything and write the result file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=8)
    parser.add_argument("--faulty", type=int, default=40)
    parser.add_argument("--seconds", type=float, default=math.inf, help="judge nothing further after this long")
    parser.add_argument("--out", type=Path, default=None)
    given = parser.parse_args()
    until = time.monotonic() + given.seconds
    options = Options(device="cuda", tier=EffortTier.QUICK, seed=5)
    pairs = {name: load_pair(CORPUS / name / "reference.py", CORPUS / name / "kernel.py") for name in GOOD}
    task = pairs["relu"][0]
    rows: list[dict[str, Any]] = []
    with Pool(given.jobs) as pool:
        alone = {done.job.id: _told(done.verdict)
                 for done in pool.run([Job(n, *pairs[n], options=options) for n in GOOD])}
    jobs = []
    for at in range(given.faulty):
        kind = list(FAULTS)[at % len(FAULTS)]
        body, before = FAULTS[kind]
        source = HEAD.format(body=body or "pass", before=before) + f"\n# {at}\n"
        jobs.append(Job(f"{at:02}/{kind}", task, parse_candidate(source), options=options))
        name = GOOD[at % len(GOOD)]
        jobs.append(Job(f"{at:02}/good/{name}", *pairs[name], options=options))
    began = time.perf_counter()
    with Pool(given.jobs) as pool:
        # what has been begun by then is waited for
        for done in pool.run(itertools.takewhile(lambda _: time.monotonic() < until, jobs), ahead=given.jobs):
            name = done.job.id.split("/")[2:]
            row: dict[str, Any] = {"name": done.job.id, "seconds": done.seconds, "tries": done.tries}
            if isinstance(done.report, Report):
                row |= {"label": done.report.label.value, "probes": done.report.coverage.probes_run,
                        "reasons": sorted({f"{f.slug}:{f.reason.value}" for f in done.report.findings})}
                if name:
                    row["equal"] = _told(done.report) == alone[name[0]]
            else:
                row |= {"label": "error", "problem": done.problem}
            rows.append(row)
            print(row)
            metrics = _metrics(rows, pool.lost, time.perf_counter() - began)
            metrics["complete"] = int(len(rows) == len(jobs))
            # after each, so that a run cut short leaves what it has
            write_result("gpu-faults", "cuda", metrics, rows, out=given.out)
    print(metrics)


if __name__ == "__main__":
    main()
