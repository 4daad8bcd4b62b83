"""Progress of an audit on standard error: rows, rate, time left and what came of them so far."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

from assay.cli.output import console

if TYPE_CHECKING:
    from rich.console import Console

    from assay.audit.run import Progress, Show

PHASES = {"reading": "reading the corpus", "classes": "classes of operation", "running": "judging",
          "tables": "writing tables"}
LOG_SECONDS = 10.0


@contextlib.contextmanager
def progress() -> Iterator[Show]:
    """Shown until the block ends: one line that moves on a terminal, sparse lines in a log file."""
    out = console(error=True)
    if out.is_terminal and not out.is_dumb_terminal:
        with _live(out) as show:
            yield show
    else:
        yield _log(out)


class Pace:
    """Rows a minute and time left, from when the running began."""

    def __init__(self) -> None:
        self._began: float | None = None

    def __call__(self, now: Progress) -> str:
        """`12.3/min, 4 min left`; empty before the first row is done."""
        if now.phase != "running":
            return ""
        if self._began is None:
            self._began = time.monotonic()
        done = now.done - now.before
        passed = time.monotonic() - self._began
        if done <= 0 or passed <= 0:
            return ""
        rate = done / passed
        return f"{60 * rate:.1f}/min, {duration((now.total - now.done) / rate)} left"


def duration(seconds: float) -> str:
    """`40 s`, `12 min`, `3 h 05 min`, `2 d 4 h`."""
    minutes = round(seconds / 60)
    if seconds < 90:
        return f"{seconds:.0f} s"
    if minutes < 90:
        return f"{minutes} min"
    if minutes < 48 * 60:
        return f"{minutes // 60} h {minutes % 60:02d} min"
    return f"{minutes // 1440} d {minutes % 1440 // 60} h"


def tallies(now: Progress) -> str:
    """`contract 12, rejected 30`."""
    return ", ".join(f"{name} {count:,}" for name, count in sorted(now.counts.items()))


@contextlib.contextmanager
def _live(out: Console) -> Iterator[Show]:
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
    from rich.progress import Progress as Bar

    columns = (TextColumn("{task.description}", markup=False), BarColumn(bar_width=24), MofNCompleteColumn(),
               TimeElapsedColumn(), TextColumn("{task.fields[pace]}", markup=False))
    pace = Pace()
    with Bar(*columns, console=out, transient=True) as bar:
        task = bar.add_task(PHASES["reading"], total=None, pace="")

        def show(now: Progress) -> None:
            words = "  ".join(part for part in (pace(now), tallies(now)) if part)
            bar.update(task, description=PHASES[now.phase], completed=now.done, total=now.total or None, pace=words)

        yield show


def _log(out: Console) -> Show:
    """A line when a phase begins, then one every ten seconds at most, and the last."""
    pace = Pace()
    seen: set[str] = set()
    last = time.monotonic()

    def show(now: Progress) -> None:
        nonlocal last
        moment = time.monotonic()
        whole = now.phase == "running" and now.done == now.total
        words = "  ".join(part for part in (pace(now), tallies(now)) if part)
        if now.phase in seen and moment - last < LOG_SECONDS and not (whole and f"{now.phase} whole" not in seen):
            return
        seen.add(now.phase)
        if whole:
            seen.add(f"{now.phase} whole")
        last = moment
        count = f" {now.done:,}/{now.total:,}" if now.total else ""
        out.print(f"assay: {PHASES[now.phase]}{count}  {words}".rstrip(), soft_wrap=True)

    return show
