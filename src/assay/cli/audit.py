"""`assay audit`: what came of audits, and of one that others published. `run` is in a module of its own."""

from __future__ import annotations

import json as json_module
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from assay.cli import audit_run
from assay.cli.audit_run import need
from assay.cli.output import console, json_target
from assay.errors import InputError

if TYPE_CHECKING:
    from rich.console import Console

    from assay.audit.tables import Table

app = typer.Typer(no_args_is_help=True, rich_markup_mode=None,
                  help="Audit a corpus of kernels, and count what came of it.")
app.command("run")(audit_run.run)

Folder = Annotated[Path, typer.Argument(metavar="DIR", show_default=False, help="Folder of an audit.")]
Json = Annotated[str | None, typer.Option("--json", metavar="FILE", show_default=False,
                                          help="Write it as JSON; - for standard output.")]
Markdown = Annotated[str | None, typer.Option("--markdown", metavar="FILE", show_default=False,
                                              help="Write it as Markdown; - for standard output.")]


@contextmanager
def _outputs(json: str | None, markdown: str | None) -> Iterator[Any]:
    """Where the two forms go, checked before any work; and the console that the readable one goes to."""
    if json == "-" and markdown == "-":
        raise InputError("two forms for standard output", "--json - --markdown -", "give one of them a file")
    with json_target(json) as data, json_target(markdown, "--markdown") as text:
        error = any(t is not None and t.stdout for t in (data, text))
        yield data, text, console(error=error)


def _print(out: Console, tables: list[Table]) -> None:
    from assay.audit.tables import print_table

    for table in tables:
        print_table(out, table)


@app.command("published")
def published(
    rows: Annotated[Path, typer.Argument(metavar="ROWS", show_default=False,
                                         help="Per-row records of the published audit, .jsonl or .jsonl.gz.")],
    json: Json = None,
    markdown: Markdown = None,
) -> None:
    """Re-derive the figures of the published audit from its per-row records.

    Exit status: 0 every figure that should follow from the rows does, 1 one does not, 2 the rows are at fault.
    """
    from assay.audit.published import check, summary
    from assay.audit.published_report import tables
    from assay.audit.published_rows import read_rows

    with _outputs(json, markdown) as (data, text, out):
        outcomes = check(read_rows(rows))
        counts = summary(outcomes)
        shown = tables(outcomes)
        if data is not None:
            data.write(json_module.dumps({"schema_version": 1, **counts, "figures": [o.to_json() for o in outcomes]},
                                         indent=2, ensure_ascii=False) + "\n")
        if text is not None:
            text.write(_document("Published figures, re-derived", shown))
        _print(out, shown)
    raise typer.Exit(1 if counts["differs"] else 0)


@app.command("report")
def report(
    folder: Folder,
    json: Json = None,
    markdown: Markdown = None,
    html: Annotated[str | None, typer.Option("--html", metavar="FILE", show_default=False,
                                             help="Write it as one self-contained page.")] = None,
) -> None:
    """Count what came of an audit, finished or not: every rate with its denominator and its 95% interval."""
    from assay.audit.report_tables import tables
    from assay.audit.store import Store
    from assay.audit.summary import summarise

    if html == "-":
        raise InputError("a page is a file", "--html -", "give a file name")
    if html is not None:
        need("matplotlib")
    with _outputs(json, markdown) as (data, text, out), json_target(html, "--html") as page:
        with Store(folder) as store:
            summary = summarise(store)
        shown = tables(summary)
        if data is not None:
            data.write(json_module.dumps(summary.to_json(), indent=2, ensure_ascii=False) + "\n")
        if text is not None:
            text.write(_document("Audit", shown))
        if page is not None:
            from assay.audit.page import render

            page.write(render(summary))
        _print(out, shown)


@app.command("compare")
def compare(
    first: Annotated[Path, typer.Argument(metavar="A", show_default=False, help="Folder of an audit.")],
    second: Annotated[Path, typer.Argument(metavar="B", show_default=False, help="Folder of another.")],
    json: Json = None,
    markdown: Markdown = None,
) -> None:
    """Compare two audits of the same rows, for example on two stacks: labels, gates, and the rows that differ."""
    from assay.audit.compare import compare as compared
    from assay.audit.compare import tables
    from assay.audit.store import Store
    from assay.audit.summary import all_records

    with _outputs(json, markdown) as (data, text, out), Store(first) as a, Store(second) as b:
        names = (first.name or "A", second.name or "B")
        found = compared(all_records(a), all_records(b), names if names[0] != names[1] else (str(first), str(second)))
        if found.rows == 0:
            raise InputError("the two audits have no row in common that ran", f"{first}, {second}",
                             "give audits of one corpus")
        shown = tables(found)
        if data is not None:
            data.write(json_module.dumps(found.to_json(), indent=2, ensure_ascii=False) + "\n")
        if text is not None:
            text.write(_document(f"{names[0]} and {names[1]}", shown))
        _print(out, shown)


@app.command("sample")
def sample(
    folder: Folder,
    number: Annotated[int, typer.Option("-n", min=1, help="Rows to draw.")] = 31,
    out: Annotated[Path, typer.Option("--out", "-o", metavar="FILE",
                                      help="The sheet: .html (with a .csv to fill), .csv or .md.")
                   ] = Path("sheet.html"),
    stratify: Annotated[list[str] | None, typer.Option(metavar="COLUMN", show_default=False,
                                                       help="op_class, generator, run, gate, tier, or a column of the "
                                                            "corpus; may be repeated.")] = None,
    label: Annotated[str, typer.Option(help="rejected or contract.")] = "rejected",
    seed: Annotated[int | None, typer.Option(metavar="S", show_default=False,
                                             help="Seed of the draw; the audit's by default.")] = None,
) -> None:
    """Draw verdicts for judging by hand: sources side by side, findings, and a column for what a person says."""
    from assay.audit.sheet import sample as drawn
    from assay.audit.sheet import write
    from assay.audit.store import Store

    if label not in ("rejected", "contract"):
        raise InputError(f"no label `{label}`", "--label", "use rejected or contract")
    with Store(folder) as store:
        entries = drawn(store, number, stratify=tuple(stratify or ()), seed=seed, label=label)
    files = write(entries, out)
    words = console()
    words.print(f"{len(entries)} rows: {', '.join(map(str, files))}", soft_wrap=True)
    words.print("Fill the column human with yes, no or unclear, then: assay audit precision "
                + str(files[-1] if out.suffix == ".html" else out), soft_wrap=True)


@app.command("precision")
def precision(
    sheet: Annotated[Path, typer.Argument(metavar="SHEET", show_default=False, help="A filled sheet, .csv or .md.")],
    json: Json = None,
) -> None:
    """Precision of an audit, with its interval, from a sheet that a person has filled."""
    from assay.audit.sheet import precision as counted
    from assay.audit.sheet import precision_table, read

    with _outputs(json, None) as (data, _, out):
        found = counted(read(sheet), str(sheet))
        if data is not None:
            data.write(json_module.dumps(found.to_json(), indent=2, ensure_ascii=False) + "\n")
        _print(out, [precision_table(found)])


@app.command("query")
def query(
    folder: Folder,
    sql: Annotated[str, typer.Argument(metavar="SQL", show_default=False, help="One SELECT.")],
    json: Json = None,
) -> None:
    """Answer one SELECT over the results: tables rows, gates, findings, screens, and a few views."""
    from assay.audit.query import query as answered
    from assay.audit.tables import Table

    need("pyarrow")
    with _outputs(json, None) as (data, _, out):
        found = answered(folder, sql)
        if data is not None:
            data.write(json_module.dumps([dict(zip(found.columns, row, strict=True)) for row in found.rows], indent=2,
                                         ensure_ascii=False, default=str) + "\n")
        cells = tuple(tuple("" if v is None else str(v) for v in row) for row in found.rows)
        numbers = [all(isinstance(row[i], int | float) and not isinstance(row[i], bool) for row in found.rows
                       if row[i] is not None) and bool(found.rows) for i in range(len(found.columns))]
        columns = tuple(f"#{c}" if number else c for c, number in zip(found.columns, numbers, strict=True))
        _print(out, [Table(f"{len(cells):,} rows", columns, cells)])


def _document(title: str, tables: list[Table]) -> str:
    from assay.audit.tables import markdown

    return "\n".join([f"# {title}", "", *(markdown(table) for table in tables)]).rstrip() + "\n"
