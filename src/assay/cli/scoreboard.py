"""`assay scoreboard`: how much of what is wrong is caught here, and how much of what is right is rejected."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from assay.cli.output import console
from assay.cli.progress import progress
from assay.errors import InputError


def scoreboard(
    sample: Annotated[int | None, typer.Option(metavar="N", show_default=False,
                                               help="So many mutants, and a quarter as many controls.")] = None,
    seed: Annotated[int, typer.Option(help="Seed of the sample.")] = 0,
    tier: Annotated[list[str] | None, typer.Option(metavar="TIER", show_default=False,
                                                   help="quick, standard (default) or deep; may be repeated.")] = None,
    only: Annotated[list[str] | None, typer.Option(metavar="GROUP", show_default=False,
                                                   help="mutants, controls, published or operators.")] = None,
    workers: Annotated[int | None, typer.Option(show_default=False,
                                                help="Verdicts at a time; by default three for four processors."
                                                )] = None,
    seconds: Annotated[float | None, typer.Option(show_default=False,
                                                  help="Begin nothing after so long; a later call goes on.")] = None,
    most: Annotated[int, typer.Option(help="Places per mutation operator and kernel.")] = 2,
    merge: Annotated[list[Path] | None, typer.Option(metavar="ROWS", show_default=False,
                                                     help="Rows of another run, to count too.")] = None,
    folder: Annotated[Path, typer.Option("--output", "-o", metavar="DIR",
                                         help="Where rows, tables and plots go; a run goes on from its rows."
                                         )] = Path("scoreboard"),
) -> None:
    """Measure the verifier: mutants that it has to reject, and right candidates that it must not.

    Exit status: 0, or 1 when a right candidate was rejected, or when all was run and a gate found nothing.
    """
    from assay.accept import nearest
    from assay.vocabulary import EffortTier

    tiers = []
    for name in tier or ["standard"]:
        if name not in list(EffortTier):
            raise InputError(f"unknown tier `{name}`{nearest(name, list(EffortTier))}", "--tier",
                             f"one of {', '.join(EffortTier)}")
        tiers.append(EffortTier(name))
    for value, option in ((sample, "--sample"), (workers, "--workers"), (most, "--most"), (seconds, "--seconds")):
        if value is not None and value <= 0:
            raise InputError(f"{value} is too few", option, "give a positive number")
    from assay.scoreboard.plan import GROUPS, plan

    for name in only or []:
        if name not in GROUPS:
            raise InputError(f"no group `{name}`{nearest(name, GROUPS)}", "--only", f"one of {', '.join(GROUPS)}")
    for path in merge or []:
        if not path.is_file():
            raise InputError("no such file of rows", str(path), "check the path")
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"cannot be written: {error.strerror}", str(folder), "choose another folder") from None
    from assay.scoreboard.render import markdown, plots, terminal, to_json
    from assay.scoreboard.rows import Rows
    from assay.scoreboard.run import Effort, run
    from assay.scoreboard.score import score

    cases = plan(only or GROUPS, most=most, sample=sample, seed=seed)
    rows = Rows(folder / "rows.jsonl", merge or [])
    out = console()
    try:
        with progress() as show:
            run(cases, rows, Effort(tuple(tiers), workers=workers or 0, seconds=seconds), show)
    finally:
        rows.close()
    # a folder may hold rows of a larger run: what counts is what was asked for
    ids = {case.id for case in cases}
    found = score(row for row in rows.known.values() if row["id"] in ids or merge)
    terminal(found, out)
    (folder / "scoreboard.json").write_text(to_json(found), encoding="utf-8")
    (folder / "scoreboard.md").write_text(markdown(found), encoding="utf-8")
    try:
        plots(found, folder)
    except InputError as error:
        console(error=True).print(f"assay: no plots: {error}", soft_wrap=True)
    out.print(f"\nrows, tables and plots are in {folder}", soft_wrap=True)
    whole = sample is None and seconds is None and only is None
    raise typer.Exit(1 if found.alarmed or (whole and found.vacuous) else 0)


