"""`assay replay`, `assay shrink` and `assay store`: findings run again, made smaller, kept and looked after."""

from __future__ import annotations

import contextlib
import os
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from assay.cli.output import console, one_line
from assay.cli.progress import Show, progress
from assay.errors import InputError

if TYPE_CHECKING:
    from assay.evidence import FindingRecord, Store
    from assay.evidence.replay import Replay
    from assay.evidence.shrink import Shrunk
    from assay.report.model import Report
    from assay.run.process import Zygote

VARIABLE = "ASSAY_STORE"
DIRECTORY = ".assay"
NOT_REPRODUCED = 1
COULD_NOT_RUN = 3
FAULTY = 1

app = typer.Typer(no_args_is_help=True, rich_markup_mode=None,
                  help="The store of verdicts and findings: numbers, checks, cleaning, copies.")

FindingName = Annotated[str, typer.Argument(metavar="FINDING", show_default=False,
                                            help="Id of the finding, or the start of it.")]
StoreDirectory = Annotated[str | None, typer.Option("--store", metavar="DIR", show_default=False,
                                                    help=f"Folder of the store; {DIRECTORY} by default, or what "
                                                         f"{VARIABLE} names.")]
Sandbox = Annotated[str, typer.Option(help="How the candidate is confined: auto, strict or off.")]


def directory(store: str | None, *, none: bool = False) -> str | None:
    """The folder of the store that a command uses; None for none.

    Args:
        store: as given on the command line.
        none: whether no store is wanted. Raises InputError when one is given all the same.
    """
    if none:
        if store is not None:
            raise InputError("a store is given, and none is wanted", "--no-store", "leave one of the two out")
        return None
    found = store if store is not None else os.environ.get(VARIABLE, DIRECTORY)
    return found or None


def words(store: str | None) -> str:
    """The store as a command has to name it; empty for the default one."""
    return "" if store is None or store == os.environ.get(VARIABLE, DIRECTORY) else store


@contextlib.contextmanager
def warnings_told() -> Iterator[None]:
    """Tell warnings of the store in one line on standard error."""
    from assay.evidence.errors import StoreWarning

    with warnings.catch_warnings():
        usual = warnings.showwarning

        def show(message: Warning | str, category: type[Warning], *rest: Any) -> None:
            if issubclass(category, StoreWarning):
                print(f"assay: warning: {one_line(str(message))}", file=sys.stderr)
            else:
                usual(message, category, *rest)

        warnings.showwarning = show  # type: ignore[assignment]
        warnings.simplefilter("always", StoreWarning)
        yield


def opened(store: str | None) -> Store:
    """The store that a command reads. Raises InputError when there is none."""
    from assay.evidence import Store

    found = directory(store)
    if found is None:
        raise InputError("no store is named", VARIABLE, "give --store")
    return Store.open(found)


def replay(
    finding: FindingName,
    store: StoreDirectory = None,
    device: Annotated[str, typer.Option(help="auto (where it was found), cpu or cuda.")] = "auto",
    minimal: Annotated[bool, typer.Option("--minimal", help="Replay the smallest input that was found.")] = False,
    script: Annotated[bool, typer.Option("--script", help="Write a Python file that shows it with torch (and "
                                                          "triton) alone, instead of running it.")] = False,
    output: Annotated[str | None, typer.Option("--output", "-o", metavar="FILE", show_default=False,
                                               help="Where to write the script; standard output by default.")] = None,
    sandbox: Sandbox = "auto",
) -> None:
    """Run one finding again, from the store alone: the same inputs bit for bit, judged by the same gate.

    Exit status: 0 it shows again, 1 it does not, 3 it cannot run here, 2 the command line or the store is at
    fault.
    """
    if output is not None and not script:
        raise InputError("a file is named, but no script is asked for", "--output", "add --script")
    with opened(store) as found:
        # an unknown finding is told before anything is started
        record = found.finding(finding)
        with progress() as show:
            show("start", 0, 0)
            from assay.run.process import Zygote

            with Zygote(sandbox) as zygote:
                if script:
                    from assay.evidence.script import script_of

                    text = script_of(found, record.id, zygote, minimal=minimal, device=device)
                else:
                    from assay.evidence.replay import replay as again

                    show("replay", 0, 0)
                    result = again(found, record.id, zygote, device=device, minimal=minimal)
    if script:
        _write_script(text, output)
        raise typer.Exit(0)
    _tell(result, record.id)
    raise typer.Exit({"reproduced": 0, "not_reproduced": NOT_REPRODUCED}.get(result.outcome.value, COULD_NOT_RUN))


def shrink(
    finding: FindingName,
    store: StoreDirectory = None,
    seconds: Annotated[float, typer.Option(metavar="S", help="How long to look.")] = 30.0,
    device: Annotated[str, typer.Option(help="auto (where it was found), cpu or cuda.")] = "auto",
    sandbox: Sandbox = "auto",
) -> None:
    """Find the smallest input that still shows a finding: sizes, then special values, then values.

    Exit status: 0 found and kept, 3 the finding does not show here, 2 the command line or the store is at fault.
    """
    positive(seconds)
    with opened(store) as found:
        record = found.finding(finding)
        with progress() as show:
            show("start", 0, 0)
            from assay.run.process import Zygote

            with Zygote(sandbox) as zygote:
                from assay.evidence.shrink import DoesNotShow
                from assay.evidence.shrink import shrink as smaller

                try:
                    result = smaller(found, record.id, zygote, seconds=seconds, device=device, progress=show)
                except DoesNotShow as error:
                    text = str(error)
                    result = None
        if result is None:
            print(f"assay: {one_line(text)}", file=sys.stderr)
            raise typer.Exit(COULD_NOT_RUN)
        _tell_shrunk(found.finding(record.id), result, words(directory(store)))


def can_shrink(store: str | None, wanted: bool, seconds: float) -> None:
    """Refuse to look for smallest inputs without a store to look in. Raises InputError."""
    if wanted and store is None:
        raise InputError("there is no store to replay findings from", "--shrink", "leave out --no-store")
    if wanted:
        positive(seconds)


def smallest_inputs(report: Report, store: str | None, zygote: Zygote, seconds: float, show: Show) -> Report:
    """The report with the smallest input of each finding; as it is where it was not kept."""
    from assay.evidence import Store
    from assay.evidence.shrink import shrink_report

    if store is None or not any(f.id for f in report.findings):
        return report
    with Store.open(store) as found:
        return shrink_report(found, report, zygote, seconds=seconds, progress=show)


def positive(seconds: float) -> None:
    """Refuse a time that leaves none. Raises InputError."""
    if not seconds > 0:
        raise InputError(f"{seconds:g} s leave no time", "--seconds", "give positive seconds")


def _tell_shrunk(found: FindingRecord, result: Shrunk, store: str) -> None:
    """The finding as it was found and at its smallest."""
    import shlex

    from rich.text import Text

    from assay.report.words import REASONS, describe_probe, printable

    out = console()

    def line(label: str, text: str) -> None:
        out.print(Text(f"{label:<12}{printable(text)}"), soft_wrap=True)

    finding, small = found.finding, result.minimal
    line("finding", f"{found.id}  {finding.slug} ({finding.gate}): {REASONS[finding.reason]} [{finding.reason.value}]")
    if found.bundle is not None:
        line("found at", describe_probe(found.bundle.probe))
    line("", f"expected {finding.expected}, got {finding.actual}")
    line("smallest", describe_probe(result.bundle.probe))
    line("", f"expected {small.expected}, got {small.actual}")
    line("inputs", f"{small.elements:,} elements")
    for each in (e for draw in result.bundle.probe.draws for e in draw.literals):
        values = ", ".join(f"[{p}] = {v:g}" for p, v in list(zip(each.places, each.values, strict=True))[:8])
        more = f" and {len(each.places) - 8} more" if len(each.places) > 8 else ""
        line("", f"input {each.leaf}: {each.fill:g} throughout" + (f", but {values}{more}" if values else ""))
    ended = "nothing smaller was found" if small.complete else "time ran out"
    line("search", f"{result.attempts} experiments in {result.seconds:.1f} s; {ended}")
    place = ["--store", store] if store else []
    line("replay", shlex.join(["assay", "replay", found.id, "--minimal", *place]))


def _write_script(text: str, output: str | None) -> None:
    if output is None or output == "-":
        sys.stdout.write(text)
        return
    try:
        Path(output).write_text(text, encoding="utf-8")
    except OSError as error:
        raise InputError(f"cannot write the script: {error.strerror or error}", f"--output {output}",
                         "give a file in a folder that exists and can be written") from None
    console(error=True).print(f"wrote {output}: python {output} exits with 1 while the fault is there", soft_wrap=True)


def _tell(result: Replay, identity: str) -> None:
    """A replay in a few lines."""
    from rich.text import Text

    from assay.report.words import REASONS, printable

    out = console()

    def line(label: str, text: str) -> None:
        out.print(Text(f"{label:<12}{printable(text)}"), soft_wrap=True)

    recorded = result.recorded
    line("finding", f"{identity}  {recorded.slug} ({recorded.gate}): {REASONS[recorded.reason]} "
                    f"[{recorded.reason.value}]")
    line("expected", recorded.expected or "-")
    line("got then", recorded.actual or "-")
    if result.found is not None:
        if result.found.expected != recorded.expected:
            line("expect now", result.found.expected or "-")
        line("got now", result.found.actual or "-")
    same = {True: "the same, bit for bit", False: "not those of then", None: "nothing kept to compare with"}
    line("inputs", same[result.same_inputs])
    if result.differences:
        for name, then, now in result.differences:
            line("differs", f"{name}: {then} then, {now} now")
    else:
        line("environment", "as it was" if not result.why else "not compared")
    verdict = {"reproduced": "reproduced: the candidate still shows it",
               "not_reproduced": "not reproduced: the candidate passes what it failed then",
               "could_not_run": f"could not run here: {result.why}"}
    if result.instead is not None:
        other = result.instead
        verdict["not_reproduced"] = (
            f"not reproduced as it was: now it is {REASONS[other.reason]} [{other.reason.value}]"
            + (f" in output {other.output}" if other.output != recorded.output else "")
            + f", expected {other.expected}, got {other.actual}")
    line("verdict", verdict[result.outcome.value])
    if result.unsteady is not None:
        why = REASONS[result.unsteady.finding.reason]
        line("", f"finding {result.unsteady.id} of the same verdict ({why}) lets its results come and go")


@app.command("stats")
def stats(store: StoreDirectory = None) -> None:
    """Numbers of verdicts, findings and files, and the room they take."""
    with opened(store) as found:
        for name, number in found.stats().items():
            shown = f"{number / (1 << 20):,.1f} MiB" if name.endswith("_bytes") else f"{number:,}"
            print(f"{name.removesuffix('_bytes').replace('_', ' '):<20}{shown:>14}")


@app.command("list")
def list_(
    store: StoreDirectory = None,
    label: Annotated[str | None, typer.Option(metavar="LABEL", show_default=False,
                                              help="Only verdicts with this label: rejected, screened or "
                                                   "contract.")] = None,
    limit: Annotated[int, typer.Option(metavar="N", help="At most so many, the latest first.")] = 20,
    findings: Annotated[bool, typer.Option("--findings/--no-findings", help="List the findings of each.")] = True,
) -> None:
    """Verdicts, the latest first, each with its findings."""
    from assay.report.words import REASONS, printable

    if label not in (None, "rejected", "screened", "contract"):
        raise InputError(f"unknown label `{label}`", "--label", "use rejected, screened or contract")
    with opened(store) as found:
        for verdict in found.verdicts(label=label, limit=max(0, limit)):
            print(f"{verdict.id}  {verdict.created[:19]}  {verdict.label:<9} {printable(verdict.task)} / "
                  f"{printable(verdict.candidate)}  on {verdict.scope}, {verdict.tier}, seed {verdict.seed}")
            for each in found.findings(verdict.id) if findings else ():
                small = ", minimised" if each.minimal is not None else ""
                print(f"    {each.id}  {each.finding.slug}: {REASONS[each.finding.reason]}{small}")


@app.command("verify")
def verify(store: StoreDirectory = None) -> None:
    """Check everything: SQLite's own check, every hash, every file. Exit status 1 when something is wrong."""
    with opened(store) as found:
        problems = found.verify()
        for problem in problems:
            print(problem)
        if problems:
            raise typer.Exit(FAULTY)
        numbers = found.stats()
        print(f"sound: {numbers['verdicts']:,} verdicts, {numbers['findings']:,} findings, "
              f"{numbers['tensor_files']:,} files")


@app.command("gc")
def gc(
    store: StoreDirectory = None,
    older_than: Annotated[float | None, typer.Option(metavar="DAYS", show_default=False,
                                                     help="Remove verdicts older than this.")] = None,
    keep: Annotated[int | None, typer.Option(metavar="N", show_default=False,
                                             help="Remove all but the latest N verdicts.")] = None,
) -> None:
    """Remove what nothing refers to; old verdicts only where --older-than or --keep says so."""
    if older_than is not None and not older_than >= 0:
        raise InputError(f"{older_than:g} days lie in the future", "--older-than", "give 0 or more")
    if keep is not None and keep < 0:
        raise InputError(f"{keep} verdicts cannot be kept", "--keep", "give 0 or more")
    with opened(store) as found:
        removed = found.gc(older_than_days=older_than, keep=keep)
    print(f"removed {removed['verdicts']:,} verdicts, {removed['texts']:,} texts, {removed['files']:,} files "
          f"({removed['bytes'] / (1 << 20):,.1f} MiB)")


@app.command("export")
def export(
    to: Annotated[str, typer.Argument(metavar="DIR", show_default=False,
                                      help="Folder of the other store; made where there is none.")],
    wanted: Annotated[list[str] | None, typer.Argument(metavar="[ID]...", show_default=False,
                                                       help="Verdicts and findings; everything by default.")] = None,
    store: StoreDirectory = None,
) -> None:
    """Copy verdicts, with all that replays them, into another store."""
    with opened(store) as found:
        done = found.export(to, wanted or [])
    print(f"{to}: {done['verdicts']:,} verdicts, {done['findings']:,} findings, {done['files']:,} files")
