"""`assay demo`."""

from __future__ import annotations

import time
from itertools import groupby
from typing import TYPE_CHECKING, Annotated

import typer

from assay.cli.output import console
from assay.cli.progress import progress

if TYPE_CHECKING:
    from rich.console import Console

    from assay.demo import Case, Result

KERNEL_WIDTH, SCREEN_WIDTH, LABEL_WIDTH = 30, 6, 8


def demo(
    only: Annotated[list[str] | None, typer.Option(metavar="TASK", show_default=False,
                                                   help="Run this example alone; may be repeated.")] = None,
    device: Annotated[str, typer.Option(help="auto, cpu (device emulation) or cuda.")] = "auto",
) -> None:
    """Run the bundled examples, right and wrong: what the usual screen says of each, and what Assay says.

    Exit status: 0 when everything comes out as the examples say, 1 when not.
    """
    from assay.run.process import Zygote

    out = console()
    began = time.monotonic()
    results: list[Result] = []
    with progress() as show, Zygote() as zygote:
        show("start", 0, 0)
        from assay.demo import load_cases, run_cases
        from assay.pages import examples

        cases = _chosen(load_cases(examples()), only)

        def step(case: Case, phase: str, done: int, total: int) -> None:
            show(f"{case.task}/{case.candidate.name}", len(results), len(cases))

        _row(out, "kernel", "screen", "Assay", "why", style="bold")
        found = run_cases(cases, zygote, device=device, progress=step)
        for task, group in groupby(found, key=lambda result: result.case.task):
            first = True
            for result in group:
                if first:
                    out.print()
                    out.print(f"{task}: {result.case.title}", style="bold")
                first = False
                results.append(result)
                label = result.report.label.value
                _row(out, f"  {result.case.candidate.name}", "pass" if result.screen.passed else "fail",
                     label.upper() if label == "rejected" else label,
                     result.why + ("" if result.as_expected else "  <- not as expected"),
                     style="" if result.as_expected else "bold red")
    _summary(out, results, time.monotonic() - began)
    raise typer.Exit(0 if all(result.as_expected for result in results) else 1)


def _chosen(cases: list[Case], only: list[str] | None) -> list[Case]:
    """The cases of the examples that were named. Raises InputError for a name that no example has."""
    from assay.accept import nearest
    from assay.errors import InputError

    known = dict.fromkeys(case.task for case in cases)
    for name in only or ():
        if name not in known:
            raise InputError(f"no example `{name}`{nearest(name, known)}", "--only",
                             f"one of {', '.join(known)}")
    return [case for case in cases if not only or case.task in only]


def _row(out: Console, kernel: str, screen: str, label: str, why: str, *, style: str) -> None:
    from rich.table import Table
    from rich.text import Text

    row = Table.grid(padding=(0, 1, 0, 0))
    for width in (KERNEL_WIDTH, SCREEN_WIDTH, LABEL_WIDTH):
        row.add_column(width=width, overflow="fold")
    row.add_column()
    row.add_row(*(Text(cell, style=style) for cell in (kernel, screen, label, why)))
    out.print(row)


def _summary(out: Console, results: list[Result], seconds: float) -> None:
    wrong = [r for r in results if not r.case.right]
    right = [r for r in results if r.case.right]
    caught = sum(1 for r in wrong if r.report.label.value == "rejected")
    accepted = sum(1 for r in right if r.report.label.value == "contract")
    out.print()
    fooled = sum(r.screen.passed for r in wrong)
    out.print(f"{fooled} of {len(wrong)} wrong kernels pass the usual screen; "
              f"Assay rejects {caught} of {len(wrong)} and accepts {accepted} of {len(right)} right ones "
              f"({seconds:.0f} s).")
    pending = [r for r in wrong if r.pending and r.report.label.value != "rejected"]
    for result in pending:
        out.print(f"{result.case.task}/{result.case.candidate.name} shows to {', '.join(result.pending)}, "
                  "a gate that this version does not have.")
