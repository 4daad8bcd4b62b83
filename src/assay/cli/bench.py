"""`assay bench`."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from assay.cli import evidence
from assay.cli.judge import CandidateFile, Reference, _exist
from assay.cli.output import console, json_target, one_line
from assay.cli.progress import progress
from assay.errors import InputError

if TYPE_CHECKING:
    from assay.bench.basis import Basis

EXIT = {"rejected": 1, "screened": 3}


def bench(
    reference: Reference,
    candidate: CandidateFile,
    contract: Annotated[str | None, typer.Option(metavar="FILE", show_default=False,
                                                 help="TOML with the obligations.")] = None,
    anyway: Annotated[bool, typer.Option("--anyway", help="Time it without a verdict, as `unverified`.")] = False,
    tier: Annotated[str, typer.Option(help="Effort of the verdict, where one has to be made: quick, standard or "
                                           "deep.")] = "standard",
    size: Annotated[list[str] | None, typer.Option(metavar="NAME=VALUE", show_default=False,
                                                   help="Another size of the task; may be repeated.")] = None,
    rounds: Annotated[int, typer.Option(min=3, max=200, help="Rounds that count.")] = 12,
    no_compile: Annotated[bool, typer.Option("--no-compile", help="Leave torch.compile of the reference "
                                                                  "out.")] = False,
    device: Annotated[str, typer.Option(help="auto or cuda; times on a CPU mean nothing.")] = "auto",
    seed: Annotated[int | None, typer.Option(min=0, metavar="N", show_default=False,
                                             help="Seed of the schedule; drawn by default.")] = None,
    json: Annotated[str | None, typer.Option("--json", metavar="FILE", show_default=False,
                                             help="Write the report as JSON; - for standard output.")] = None,
    html: Annotated[str | None, typer.Option("--html", metavar="FILE", show_default=False,
                                             help="Write the report as a page.")] = None,
    timeout: Annotated[float, typer.Option(min=1.0, metavar="S", help="Seconds after which no further round "
                                                                      "starts.")] = 90.0,
    sandbox: Annotated[str, typer.Option(help="How the candidate is confined: auto, strict or off.")] = "auto",
    store: evidence.StoreDirectory = None,
    no_store: Annotated[bool, typer.Option("--no-store", help="Take no verdict from a store, and keep none.")] = False,
) -> None:
    """How fast CANDIDATE is beside REFERENCE, once a verdict says that it is the same program.

    Needs a GPU. The verdict comes from the store, or is made first. Exit status: 0 timed, 1 rejected or the times do
    not count, 3 undecided, 2 the task or the command line is at fault.
    """
    _exist(reference, candidate, contract)
    sizes = _sizes(size or [])
    kept = evidence.directory(store, none=no_store)
    began = time.monotonic()
    with (json_target(json) as target, json_target(html, "--html") as page, progress() as show,
          evidence.warnings_told()):
        from assay.bench.options import BenchOptions, timing_device
        from assay.bench.run import bench_task

        options = BenchOptions(device=device, rounds=rounds, compiled=not no_compile, sizes=sizes, seed=seed,
                               sandbox=sandbox, seconds=timeout)
        timing_device(options)
        show("start", 0, 0)
        from assay import accept
        from assay.bench.basis import basis_of
        from assay.run.process import Zygote
        from assay.run.references import References

        task, found = accept.pair(Path(reference), Path(candidate))
        clauses = accept.contract(None if contract is None else Path(contract))
        asked = accept.options(device=device, tier=tier, sandbox=sandbox, store=kept)
        for note in task.notes:
            typer.echo(f"note: {one_line(note)}", err=True)
        with Zygote() as zygote, References(zygote) as references:
            basis = None if anyway else basis_of(task, found, clauses, asked, zygote, references=references,
                                                 progress=show)
            if basis is not None and not basis.holds:
                raise typer.Exit(refusal(basis, reference, candidate))
            report = bench_task(
                task, found, standing="unverified" if basis is None else "contract",
                verdict=None if basis is None else basis.to_json(), contract=clauses, options=options, zygote=zygote,
                references=references, progress=show)
        report = report.model_copy(update={"seconds": round(time.monotonic() - began, 3)})
        if target is not None:
            target.write(report.to_json())
        if page is not None:
            from assay.bench.page import to_html

            page.write(to_html(report))
    from assay.bench.render import print_bench

    piped = any(t is not None and t.stdout for t in (target, page))
    print_bench(console(error=piped), report)
    raise typer.Exit(1 if report.findings else 0 if report.counts else 3)


def _sizes(given: list[str]) -> dict[str, int]:
    """`NAME=VALUE` pairs. Raises InputError."""
    found = {}
    for text in given:
        name, mark, value = text.partition("=")
        if not mark or not name or not value.isdecimal() or int(value) < 1:
            raise InputError(f"`{text}` is no size", "--size", "write NAME=VALUE with a positive integer")
        found[name] = int(value)
    return found


def refusal(basis: Basis, reference: str, candidate: str) -> int:
    """Say why it is not timed; the exit status."""
    report = basis.report
    label = report.label.value
    what = sorted({f.slug for f in report.findings}) or sorted(
        g.slug for g in report.gates if g.blocking and g.outcome.value in ("inconclusive", "error"))
    gates = f" ({', '.join(what[:6])})" if what else ""
    typer.echo(f"assay: not timed: the verdict is `{label}`{gates}, and only `contract` is timed; see `assay verify "
               f"{one_line(reference)} {one_line(candidate)}`, or time it as unverified with --anyway", err=True)
    return EXIT.get(label, 3)
