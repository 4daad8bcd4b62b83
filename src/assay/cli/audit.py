"""`assay audit`: whole corpora, their statistics, and what others published about theirs."""

from __future__ import annotations

import json as json_module
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from assay.cli.output import console, json_target
from assay.errors import InputError

if TYPE_CHECKING:
    from rich.console import Console

    from assay.audit.tables import Table

app = typer.Typer(no_args_is_help=True, rich_markup_mode=None,
                  help="Audit a corpus of kernels, and count what came of it.")

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


def _document(title: str, tables: list[Table]) -> str:
    from assay.audit.tables import markdown

    return "\n".join([f"# {title}", "", *(markdown(table) for table in tables)]).rstrip() + "\n"
