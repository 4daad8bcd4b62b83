"""Live progress: one line that moves on a terminal, sparse lines in a log file. On standard error."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Protocol

from assay.cli.output import console

if TYPE_CHECKING:
    from rich.console import Console

PHASES = {"start": "starting workers", "study": "studying the task", "pilot": "first call",
          "probes": "probing", "screen": "screening", "replay": "replaying", "shrink": "shrinking",
          "verify": "verifying", "truths": "evaluating the reference", "load": "loading contenders",
          "rounds": "timing"}
LOG_SECONDS = 10.0


class Show(Protocol):
    """What reports progress: (phase, done, total); a total of 0 is unknown."""

    def __call__(self, phase: str, done: int, total: int) -> None:
        """Take note of one step."""
        ...


@contextlib.contextmanager
def progress(label: str = "") -> Iterator[Show]:
    """Progress of one piece of work, shown until the block ends.

    Args:
        label: put before the phase, to tell several pieces of work apart.
    """
    out = console(error=True)
    lead = f"{label}: " if label else ""
    if out.is_terminal and not out.is_dumb_terminal:
        with _live(out, lead) as show:
            yield show
    else:
        yield _log(out, lead)


@contextlib.contextmanager
def _live(out: Console, lead: str) -> Iterator[Show]:
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}", markup=False), BarColumn(bar_width=24), MofNCompleteColumn(),
               TimeElapsedColumn())
    with Progress(*columns, console=out, transient=True) as bar:
        task = bar.add_task(f"{lead}{PHASES['start']}", total=None)

        def show(phase: str, done: int, total: int) -> None:
            words = f"{lead}{PHASES.get(phase, phase)}"
            bar.update(task, description=words, completed=done, total=total or None)

        yield show


def _log(out: Console, lead: str) -> Show:
    """A line for each known phase, then one every ten seconds at most."""
    lock = threading.Lock()
    seen: set[str] = set()
    last = time.monotonic()

    def show(phase: str, done: int, total: int) -> None:
        nonlocal last
        with lock:
            now = time.monotonic()
            if phase not in PHASES or (phase in seen and now - last < LOG_SECONDS):
                return
            seen.add(phase)
            last = now
            count = f" {done}/{total}" if total else ""
            out.print(f"assay: {lead}{PHASES.get(phase, phase)}{count}", soft_wrap=True)

    return show
