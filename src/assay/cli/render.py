"""`assay render` and `assay diff`, and where `assay verify` writes its report."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from assay.cli.output import JsonTarget, console, json_target
from assay.errors import InputError
from assay.report.renderers import RENDERERS

if TYPE_CHECKING:
    from assay.report.model import Report

ReportFile = Annotated[str, typer.Argument(metavar="REPORT", show_default=False,
                                           help="Report written by --json; - for standard input.")]
MOST_BYTES = 1 << 28


@contextlib.contextmanager
def report_targets(paths: Mapping[str, str | None]) -> Iterator[dict[str, JsonTarget]]:
    """Targets of the formats asked for, by name, each checked before any work is done.

    Raises InputError when one cannot be written, when two are the same file, or when two want standard output.
    """
    wanted = {name: path for name, path in paths.items() if path is not None}
    with contextlib.ExitStack() as stack:
        targets: dict[str, JsonTarget] = {}
        for name, path in wanted.items():
            target = stack.enter_context(json_target(path, f"--{name}"))
            assert target is not None
            clash = next((other for other, taken in targets.items() if taken.path == target.path), None)
            if clash is not None and target.path != "/dev/null":
                what = "standard output" if target.stdout else "one file"
                raise InputError(f"two reports for {what}", f"--{clash} and --{name}", "give each its own")
            targets[name] = target
        yield targets


def write_reports(report: Report, targets: Mapping[str, JsonTarget]) -> bool:
    """Write every format asked for; True when one went to standard output."""
    from assay.report.renderers import render as to_text

    for name, target in targets.items():
        target.write(report.to_json() if name == "json" else to_text(report, name))
    return any(target.stdout for target in targets.values())


def read_report(path: str) -> Report:
    """A report from its JSON. Raises InputError with the first thing that is wrong with it."""
    from pydantic import ValidationError

    from assay.report.model import Report

    shown = "standard input" if path == "-" else path
    try:
        if path == "-":
            text = sys.stdin.buffer.read(MOST_BYTES + 1)
        else:
            with open(path, "rb") as file:
                text = file.read(MOST_BYTES + 1)
    except OSError as error:
        raise InputError(f"cannot read the report: {error.strerror or error}", shown, "check the path") from None
    if len(text) > MOST_BYTES:
        raise InputError("too large for a report", shown, "give the JSON that `assay verify --json` wrote")
    try:
        return Report.model_validate_json(text)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = ".".join(map(str, first["loc"]))
        what = f"no report: {first['msg']}" + (f" at {place}" if place else "")
        raise InputError(what, shown, "give the JSON that `assay verify --json` wrote") from None


def render(
    report: ReportFile,
    to: Annotated[str, typer.Option("--to", metavar="FORMAT", help=f"{', '.join(RENDERERS)}.")] = "terminal",
    output: Annotated[str, typer.Option("--output", "-o", metavar="FILE", show_default=False,
                                        help="File to write; standard output by default.")] = "-",
) -> None:
    """Write a saved report in another format.

    Exit status: 0 written, 2 there is no such report or format.
    """
    if to not in RENDERERS:
        from difflib import get_close_matches

        near = get_close_matches(to.lower(), RENDERERS, n=1, cutoff=0.4)
        raise InputError(f"unknown format `{to}`" + (f"; did you mean `{near[0]}`?" if near else ""), "--to",
                         f"one of {', '.join(RENDERERS)}")
    with json_target(output, "--output") as target:
        assert target is not None
        found = read_report(report)
        if to == "terminal" and target.stdout:
            from assay.report.phrases import names_of
            from assay.report.terminal import print_report

            print_report(console(), found, names_of(found))
            return
        from assay.report.renderers import render as to_text

        target.write(to_text(found, to))


def diff(
    before: ReportFile,
    after: ReportFile,
    json: Annotated[str | None, typer.Option("--json", metavar="FILE", show_default=False,
                                             help="Write the differences as JSON; - for standard output.")] = None,
) -> None:
    """What changed from one verdict to another: label, gates, findings, and what they were decided on.

    Exit status: 0 the same decision, 1 another one, 2 one of the files is no report.
    """
    from assay.report.diff import compare, lines

    if before == after == "-":
        raise InputError("only one report can come from standard input", "REPORT REPORT", "give a file for the other")
    with json_target(json) as target:
        found = compare(read_report(before), read_report(after))
        if target is not None:
            target.write(found.to_json())
    out = console(error=target is not None and target.stdout)
    for line in lines(found, _short(before), _short(after), width=out.width):
        out.print(line, soft_wrap=True)
    raise typer.Exit(0 if found.same_decision else 1)


def _short(path: str) -> str:
    return "standard input" if path == "-" else Path(path).name
