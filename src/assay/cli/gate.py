"""`assay gate`."""

from __future__ import annotations

import contextlib
import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from assay.cli.output import JsonTarget, console
from assay.cli.progress import progress
from assay.cli.render import report_targets
from assay.errors import InputError

if TYPE_CHECKING:
    from assay.repository.model import GateReport

STORE = ".assay"


def gate(
    paths: Annotated[list[Path] | None, typer.Argument(metavar="[PATH]...", show_default=False,
                                                       help="Repositories, folders or files of them; by default "
                                                            "the current folder.")] = None,
    policy: Annotated[Path | None, typer.Option(metavar="FILE", show_default=False,
                                                help="TOML that says what may merge.")] = None,
    changed_since: Annotated[str | None, typer.Option(metavar="REV", show_default=False,
                                                      help="Look only at pairs of which something changed since "
                                                           "this git revision.")] = None,
    store: Annotated[Path | None, typer.Option(metavar="DIR", show_default=False,
                                               help="Where verdicts are kept; by default .assay beside "
                                                    "assay.toml.")] = None,
    fresh: Annotated[bool, typer.Option("--fresh", help="Judge everything again.")] = False,
    workers: Annotated[int | None, typer.Option(min=1, metavar="N", show_default=False,
                                                help="Judges at a time.")] = None,
    share: Annotated[float | None, typer.Option(min=0.0, max=1.0, metavar="X", show_default=False,
                                                help="Share of candidates not to be released that get the full "
                                                     "battery; wins over assay.toml.")] = None,
    sample_seed: Annotated[str | None, typer.Option(metavar="TEXT", show_default=False,
                                                    help="Draw the sample from this text; wins over "
                                                         "assay.toml.")] = None,
    device: Annotated[str | None, typer.Option(show_default=False,
                                               help="auto, cpu or cuda; wins over assay.toml.")] = None,
    tier: Annotated[str | None, typer.Option(show_default=False,
                                             help="quick, standard or deep; wins over assay.toml.")] = None,
    json: Annotated[str | None, typer.Option("--json", metavar="FILE", show_default=False,
                                             help="Write everything as JSON; - for standard output.")] = None,
    junit: Annotated[str | None, typer.Option(metavar="FILE", show_default=False,
                                              help="Write JUnit XML.")] = None,
    sarif: Annotated[str | None, typer.Option(metavar="FILE", show_default=False, help="Write SARIF 2.1.0.")] = None,
    markdown: Annotated[str | None, typer.Option(metavar="FILE", show_default=False,
                                                 help="Write a summary as Markdown.")] = None,
    html_dir: Annotated[Path | None, typer.Option(metavar="DIR", show_default=False,
                                                  help="Write a page for each verdict, and an index.")] = None,
) -> None:
    """Decide whether the kernels of a repository may merge, as its assay.toml and the policy say.

    Exit status: 0 all may merge, 1 one is blocked, 2 bad input, 3 nothing wrong found but one is undecided.
    """
    from assay.repository.collect import collect

    given = paths or [Path(".")]
    settings = _settings(share, sample_seed, device, tier)
    groups, notes = collect(given, policy=policy, since=changed_since, settings=settings)
    where = store if store is not None else (groups[0].root if groups else Path()) / STORE
    if html_dir is not None:
        _folder(html_dir)
    with report_targets({"json": json, "junit": junit, "sarif": sarif, "markdown": markdown}) as targets:
        report = _run(groups, notes, where, fresh, workers, changed_since)
        _write(report, targets, html_dir)
    from assay.repository.render import print_gate

    print_gate(console(error=any(target.stdout for target in targets.values())), report)
    raise typer.Exit(report.status)


def _settings(share: float | None, sample_seed: str | None, device: str | None,
              tier: str | None) -> dict[str, dict[str, Any]]:
    """What the command line says over the files. Raises InputError."""
    if share is not None and math.isnan(share):
        raise InputError("no share", "--share", "give a number from 0 to 1")
    sample = {"share": share, "seed": sample_seed}
    battery = {"device": device, "tier": tier}
    if device is not None or tier is not None:
        from assay import accept

        accept.options(device=device or "auto", tier=tier or "standard")
        if device not in (None, "auto", "cpu", "cuda"):
            raise InputError(f"unknown device `{device}`", "--device", "use auto, cpu or cuda")
    return {name: {k: v for k, v in table.items() if v is not None}
            for name, table in (("sample", sample), ("battery", battery))}


def _run(groups: list[Any], notes: list[str], store: Path, fresh: bool, workers: int | None,
         since: str | None) -> GateReport:
    """Do the work; the pool is closed whatever happens, and what was decided stays kept."""
    with progress() as show, contextlib.ExitStack() as stack:
        show("start", 0, 0)
        from assay.pool import Pool
        from assay.repository.run import Work
        from assay.repository.verdicts import Verdicts

        verdicts = Verdicts(store, read=not fresh)
        work = Work(groups, verdicts, lambda: stack.enter_context(Pool(workers)), show)
        return work.run(since=since, notes=notes)


def _folder(path: Path) -> None:
    """Make a folder before any work is done for it. Raises InputError."""
    try:
        path.mkdir(parents=True, exist_ok=True)
        writable = os.access(path, os.W_OK | os.X_OK)
    except OSError as error:
        raise InputError(f"cannot write there: {error.strerror or error}", f"--html-dir {path}",
                         "give a folder that can be written") from None
    if not writable:
        raise InputError("cannot write there", f"--html-dir {path}", "give a folder that can be written")


def _write(report: GateReport, targets: Mapping[str, JsonTarget], html_dir: Path | None) -> None:
    from assay.repository import render

    for name, target in targets.items():
        if name == "sarif":
            from assay.repository.artefacts import to_sarif

            target.write(to_sarif(report))
        else:
            text = {"junit": render.to_junit, "markdown": render.to_markdown}.get(name)
            target.write(text(report) if text is not None else report.to_json())
    if html_dir is not None:
        from assay.repository.artefacts import write_pages

        write_pages(report, html_dir)

