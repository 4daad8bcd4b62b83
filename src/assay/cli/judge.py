"""`assay verify` and `assay screen`."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from assay.cli import evidence
from assay.cli.output import console, json_target, one_line
from assay.cli.progress import progress
from assay.cli.render import report_targets, write_reports
from assay.errors import InputError

if TYPE_CHECKING:
    from assay.screen import ScreenReport

Reference = Annotated[str, typer.Argument(metavar="REFERENCE", show_default=False,
                                          help="File with Model, get_inputs and get_init_inputs; or a folder of "
                                               "another format, FOLDER::NAME for one of its tasks.")]
CandidateFile = Annotated[str, typer.Argument(metavar="CANDIDATE", show_default=False,
                                              help="File with ModelNew.")]
Device = Annotated[str, typer.Option(help="auto, cpu (device emulation) or cuda.")]
Emulate = Annotated[str, typer.Option(help="Device that emulation answers as.")]
Json = Annotated[str | None, typer.Option("--json", metavar="FILE", show_default=False,
                                          help="Write the report as JSON; - for standard output.")]


def verify(
    reference: Reference,
    candidate: CandidateFile,
    contract: Annotated[str | None, typer.Option(metavar="FILE", show_default=False,
                                                 help="TOML with the obligations.")] = None,
    device: Device = "auto",
    tier: Annotated[str, typer.Option(help="quick, standard or deep.")] = "standard",
    only: Annotated[list[str] | None, typer.Option(metavar="GATE", show_default=False,
                                                   help="Run this gate alone; may be repeated.")] = None,
    seed: Annotated[int | None, typer.Option(metavar="N", show_default=False,
                                             help="Seed of the probes; drawn by default.")] = None,
    json: Json = None,
    html: Annotated[str | None, typer.Option("--html", metavar="FILE", show_default=False,
                                             help="Write the report as a page.")] = None,
    junit: Annotated[str | None, typer.Option("--junit", metavar="FILE", show_default=False,
                                              help="Write it as JUnit XML.")] = None,
    sarif: Annotated[str | None, typer.Option("--sarif", metavar="FILE", show_default=False,
                                              help="Write it as SARIF 2.1.0.")] = None,
    markdown: Annotated[str | None, typer.Option("--markdown", metavar="FILE", show_default=False,
                                                 help="Write a summary in GitHub's Markdown.")] = None,
    timeout: Annotated[float | None, typer.Option(metavar="S", show_default=False,
                                                  help="Seconds for everything.")] = None,
    fail_fast: Annotated[bool, typer.Option("--fail-fast", help="Stop at the first finding that "
                                                                "rejects.")] = False,
    emulate: Emulate = "sm_90",
    sandbox: Annotated[str, typer.Option(help="How candidates are confined: auto, strict or off.")] = "auto",
    no_cache: Annotated[bool, typer.Option("--no-cache", help="Evaluate the reference anew.")] = False,
    store: evidence.StoreDirectory = None,
    no_store: Annotated[bool, typer.Option("--no-store", help="Keep nothing, and try no earlier failures.")] = False,
    shrink: Annotated[bool, typer.Option("--shrink", help="Look for the smallest input of each finding.")] = False,
    seconds: Annotated[float, typer.Option("--shrink-seconds", metavar="S", help="How long to look.")] = 30.0,
) -> None:
    """Decide whether CANDIDATE is the same program as REFERENCE.

    Exit status: 0 contract, 1 rejected, 3 nothing wrong found but blocking gates undecided, 2 the task or
    the command line is at fault.
    """
    from assay.run.process import Zygote

    _exist(reference, candidate, contract)
    kept = evidence.directory(store, none=no_store)
    evidence.can_shrink(kept, shrink, seconds)
    began = time.monotonic()
    asked = {"json": json, "html": html, "junit": junit, "sarif": sarif, "markdown": markdown}
    with report_targets(asked) as targets, progress() as show, evidence.warnings_told():
        show("start", 0, 0)
        # started before anything heavy is imported here, so that both import at the same time
        with Zygote() as zygote:
            from assay import accept
            from assay.report.terminal import Names, print_report
            from assay.verify import verify_task

            task, found = accept.pair(Path(reference), Path(candidate))
            clauses = accept.contract(None if contract is None else Path(contract))
            options = accept.options(device=device, tier=tier, only=only, seed=seed, timeout=timeout,
                                     fail_fast=fail_fast, emulate=emulate, sandbox=sandbox, cache=not no_cache,
                                     store=kept)
            before = time.monotonic() - began
            for note in task.notes:
                typer.echo(f"note: {one_line(note)}", err=True)
            report = verify_task(task, found, contract=clauses, options=options, zygote=zygote,
                                 progress=show)
            if shrink:
                report = evidence.smallest_inputs(report, kept, zygote, seconds, show)
        given = {"--contract": (contract, None), "--device": (device, "auto"), "--tier": (tier, "standard"),
                 "--emulate": (emulate, "sm_90"), "--sandbox": (sandbox, "auto")}
        repeated = tuple(word for name, (value, default) in given.items() if value != default
                         for word in (name, str(value)))
        names, timing = Names(reference, candidate, repeated, evidence.words(kept)), report.timing
        report = report.model_copy(update={"names": names, "timing": timing.model_copy(update={
            "total_s": round(timing.total_s + before, 3), "start_s": round(timing.start_s + before, 3)})})
        piped = write_reports(report, targets)
    print_report(console(error=piped), report, names)
    raise typer.Exit({"contract": 0, "rejected": 1, "screened": 3}[report.label.value])


def screen(
    reference: Reference,
    candidate: CandidateFile,
    variant: Annotated[str, typer.Option(help="kernelbench-v0 (1e-2), kernelbench (1e-4 at fp32, 1e-2 at "
                                              "half precision) or hardened.")] = "kernelbench-v0",
    precision: Annotated[str, typer.Option(help="Precision of the kernelbench variant: fp32, fp16 or "
                                                "bf16.")] = "fp32",
    device: Device = "auto",
    json: Json = None,
    timeout: Annotated[float, typer.Option(metavar="S", help="Seconds for the candidate's calls.")] = 300.0,
    emulate: Emulate = "sm_90",
) -> None:
    """The usual cheap check of CANDIDATE: five random inputs at the native sizes. Passing is no verdict.

    Exit status: 0 passed, 1 failed, 3 it could not run here, 2 the task or the command line is at fault.
    """
    from assay.run.process import Zygote

    _exist(reference, candidate)
    with json_target(json) as target, progress() as show:
        show("start", 0, 0)
        with Zygote() as zygote:
            from assay import accept
            from assay.screen import screen_task

            task, found = accept.pair(Path(reference), Path(candidate))
            chosen = accept.variant(variant)
            named = accept.target(emulate)
            accept.options(device=device, timeout=timeout)
            show("screen", 0, 0)
            report = screen_task(task, found, variant=chosen, precision=precision, device=device,
                                 target=named, timeout=timeout, zygote=zygote)
        if target is not None:
            target.write(report.to_json())
    _print_screen(report, error=target is not None and target.stdout)
    raise typer.Exit({"pass": 0, "fail": 1}.get(report.outcome.value, 3))


def _exist(reference: str, candidate: str, contract: str | None = None) -> None:
    """Refuse paths that do not exist before anything is started."""
    paths = {"the reference": reference, "the candidate": candidate, "the contract": contract}
    for what, path in paths.items():
        if path is not None and not Path(path.partition("::")[0]).exists():
            raise InputError(f"no such file for {what}", path, "check the path")


def _print_screen(report: ScreenReport, *, error: bool) -> None:
    """The screen's report: a line per trial, then what it says."""
    from rich.text import Text

    from assay.report.words import OUTCOMES, REASONS, printable

    out = console(error=error)
    for number, trial in enumerate(report.trials, 1):
        line = f"trial {number:>2}  seed {trial.seed:<10}  {OUTCOMES[trial.outcome]:<13}"
        if trial.reason is not None:
            line += REASONS[trial.reason]
        elif trial.max_error is not None:
            line += f"largest error {trial.max_error:.3g}"
        out.print(Text(line.rstrip(), overflow="ellipsis", no_wrap=True))
        if trial.expected is not None:
            place = f"[{', '.join(map(str, trial.index))}]" if trial.index is not None else ""
            words = f"{trial.output or 'outputs'}{place}: expected {trial.expected}, got {trial.actual}"
            out.print(Text(f"{'':10}{printable(words)}"))
    if report.text:
        out.print(Text(printable(f"{'':10}{report.text}")))
    word = {"pass": "passed", "fail": "failed"}.get(report.outcome.value, "undecided")
    rule = f"{report.variant.value}, atol = rtol = {report.tolerance:g}"
    seconds = report.timing["total_s"]
    out.print(f"{word} the screen ({rule}) on {report.scope} in {seconds:.1f} s", soft_wrap=True)
    if report.passed:
        out.print("No verdict: `assay verify` decides.")
