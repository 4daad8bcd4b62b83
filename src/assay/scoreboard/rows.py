"""Results as lines of JSON, appended as they come: a run that is killed loses what was being judged, and no more."""

from __future__ import annotations

import json
import math
import os
import threading
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from assay.errors import InputError
from assay.pool import Done
from assay.report.model import Report
from assay.scoreboard.cases import Case
from assay.screen import ScreenReport

Row = dict[str, Any]


def key(row: Row) -> str:
    """What a row is about: equal keys are the same result."""
    which = row.get("tier") or row.get("variant") or ""
    return f"{row['type']}|{row['id']}|{which}{'/cuda' if row.get('device') == 'cuda' else ''}"


def load(paths: Iterable[Path]) -> dict[str, Row]:
    """Rows of several files by key; the last of equal keys. A half-written last line is passed over.

    Raises:
        InputError: a file is no list of rows.
    """
    found: dict[str, Row] = {}
    for path in paths:
        if not path.exists():
            continue
        lines = path.read_text(encoding="utf-8").splitlines()
        for number, line in enumerate(lines, 1):
            try:
                row = json.loads(line)
                found[key(row)] = row
            except (ValueError, KeyError, TypeError):
                if number < len(lines):
                    raise InputError("not a row of a scoreboard", f"{path}:{number}",
                                     "give files written by `assay scoreboard`") from None
    return found


class Rows:
    """A file of rows: what it holds, and appending to it.

    Args:
        path: the file; made when it is not there.
        others: files whose rows count as known too, such as those of another machine.
    """

    def __init__(self, path: Path, others: Iterable[Path] = ()) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self.path = path
        self.known = load([*others, path])
        self._lock = threading.Lock()
        if path.exists():
            # what was being written when an earlier run was killed
            whole = path.read_bytes().rpartition(b"\n")
            os.truncate(path, len(whole[0]) + len(whole[1]))
        self._file = path.open("a", encoding="utf-8")

    def add(self, row: Row) -> None:
        """Append a row, and keep it."""
        with self._lock:
            self.known[key(row)] = row
            self._file.write(json.dumps(row, separators=(",", ":")) + "\n")
            self._file.flush()

    def get(self, type: str, id: str, which: str = "") -> Row | None:
        """A row, or None."""
        return self.known.get(f"{type}|{id}|{which}")

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def about(case: Case) -> Row:
    """What every row says of its case."""
    return {"id": case.id, "group": case.group, "kind": case.kind, "operator": case.operator, "subject": case.subject,
            "dtype": case.dtype, "right": case.right}


def of_verdict(case: Case, tier: str, device: str, done: Done) -> Row:
    """The row of a verdict."""
    row: Row = {"type": "verdict", **about(case), "tier": tier, "device": device, "seconds": done.seconds,
                "problem": done.problem}
    if not isinstance(done.report, Report):
        return {**row, "label": None, "gates": {}, "findings": []}
    report = done.report
    gates = {g.slug: [g.outcome.value, g.probes_run, g.reason.value if g.reason else None] for g in report.gates}
    findings = [{"gate": f.slug, "reason": f.reason.value, "tier": f.tier.value, "free": f.tolerance_free,
                 "ratio": _number(f.detail.get("ratio")), "probe": f.probe} for f in report.findings]
    return {**row, "label": report.label.value, "gates": gates, "findings": findings, "scope": report.scope,
            "closest": report.coverage.closest}


def of_screen(case: Case, variant: str, device: str, done: Done) -> Row:
    """The row of a screen."""
    row: Row = {"type": "screen", **about(case), "variant": variant, "device": device, "seconds": done.seconds,
                "problem": done.problem}
    if not isinstance(done.report, ScreenReport):
        return {**row, "outcome": None}
    worst = [t.max_error for t in done.report.trials if t.max_error is not None]
    return {**row, "outcome": done.report.outcome.value, "max_error": _number(max(worst, default=None)),
            "reason": done.report.reason.value if done.report.reason else None}


def _number(value: Any) -> float | None:
    return float(f"{value:.6g}") if isinstance(value, int | float) and math.isfinite(value) else None
