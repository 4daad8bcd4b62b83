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

    from assay.audit.run import Backend
    from assay.audit.settings import Settings
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


@app.command("run")
def run(
    corpus: Annotated[Path | None, typer.Argument(metavar="CORPUS", show_default=False,
                                                  help=".jsonl, .parquet, a folder of pairs or of KernelBench runs; "
                                                       "may be left out to go on with an audit.")] = None,
    out: Annotated[Path | None, typer.Option("--out", "-o", metavar="DIR", show_default=False,
                                             help="Folder of the audit; an audit in it goes on.")] = None,
    workers: Annotated[int | None, typer.Option(min=1, metavar="N", show_default=False,
                                                help="Judges at once.")] = None,
    backend: Annotated[str, typer.Option(help="local or ray.")] = "local",
    tier: Annotated[str, typer.Option(help="quick, standard or deep.")] = "standard",
    device: Annotated[str, typer.Option(help="auto, cpu (device emulation) or cuda.")] = "auto",
    emulate: Annotated[str, typer.Option(help="Device that emulation answers as.")] = "sm_90",
    contract: Annotated[Path | None, typer.Option(metavar="FILE", show_default=False,
                                                  help="TOML with the obligations of every row.")] = None,
    only: Annotated[list[str] | None, typer.Option(metavar="GATE", show_default=False,
                                                   help="Run this gate alone; may be repeated.")] = None,
    variant: Annotated[list[str] | None, typer.Option(metavar="RULE", show_default=False,
                                                      help="Rule of the screen; may be repeated. The first "
                                                           "filters.")] = None,
    both: Annotated[bool, typer.Option("--both", help="Screen and battery on every row.")] = False,
    screen_only: Annotated[bool, typer.Option("--screen-only", help="The screen alone.")] = False,
    battery_only: Annotated[bool, typer.Option("--battery-only", help="The battery alone.")] = False,
    sample: Annotated[int | None, typer.Option(min=1, metavar="N", show_default=False,
                                               help="Audit N rows drawn from the corpus.")] = None,
    seed: Annotated[int | None, typer.Option(metavar="S", show_default=False,
                                             help="Seed of probes and sample; drawn by default.")] = None,
    stratify: Annotated[str | None, typer.Option(metavar="COLUMN", show_default=False,
                                                 help="Draw the sample in proportion to this column.")] = None,
    everything: Annotated[bool, typer.Option("--all", help="Also rows that the corpus itself rejects.")] = False,
    timeout: Annotated[float | None, typer.Option(metavar="S", show_default=False,
                                                  help="Seconds for one verdict.")] = None,
    sandbox: Annotated[str, typer.Option(help="How candidates are confined: auto, strict or off.")] = "auto",
    problems: Annotated[Path | None, typer.Option(metavar="DIR", show_default=False,
                                                  help="Problems of KernelBench runs (holds level1/, ...).")] = None,
    retry: Annotated[bool, typer.Option("--retry", help="Run rows again that a lost judge left open.")] = False,
    ray_address: Annotated[str | None, typer.Option(metavar="ADDRESS", show_default=False,
                                                    help="Ray cluster; one is started here by default.")] = None,
    gpus_per_worker: Annotated[float | None, typer.Option(metavar="X", show_default=False,
                                                          help="GPUs of a Ray worker, also a fraction.")] = None,
) -> None:
    """Judge every candidate of CORPUS. Interrupted or killed, the same command goes on where it was.

    Exit status: 0 every row has its result, 2 the corpus or the command line is at fault, 130 interrupted.
    """
    from assay.audit.settings import Settings

    if out is None:
        raise InputError("no folder for the audit", "--out", "give one with -o DIR")
    if sum((both, screen_only, battery_only)) > 1:
        raise InputError("these exclude each other", "--both, --screen-only, --battery-only", "give one of them")
    if stratify is not None and sample is None:
        raise InputError("there is no sample to stratify", "--stratify", "give --sample N too")
    if backend not in ("local", "ray"):
        raise InputError(f"no backend `{backend}`", "--backend", "use local or ray")
    _need("pyarrow")
    if corpus is not None and not corpus.exists():
        raise InputError("no such corpus", str(corpus), "check the path")
    from assay import accept
    from assay.audit.outcome import Checks

    mode = "both" if both else "screen" if screen_only else "battery" if battery_only else "screen-first"
    options = accept.options(device=device, tier=tier, only=only, seed=seed, timeout=timeout, emulate=emulate,
                             sandbox=sandbox)
    clauses = None if contract is None else accept.contract(contract).model_dump(mode="json", exclude_defaults=True)
    variants = tuple(accept.variant(name).value for name in variant or ["kernelbench-v0"])
    settings = Settings(
        checks=Checks(mode, tuple(dict.fromkeys(variants))), seed=seed, tier=options.tier.value, device=device,
        target=options.target, timeout=timeout, only=options.only, contract=clauses, everything=everything,
        sample=sample, stratify=stratify, sandbox=sandbox)
    _run(corpus, out, settings, problems, retry, lambda: _backend(
        backend, workers, sandbox, device, ray_address, gpus_per_worker))


def _need(module: str) -> None:
    """Refuse work whose end needs an extra that is not installed."""
    from importlib.util import find_spec

    if find_spec(module) is None:
        raise InputError(f"audits need {module}", "", "pip install 'assay[audit]'")


def _backend(name: str, workers: int | None, sandbox: str, device: str, address: str | None,
             gpus: float | None) -> Backend:
    if name == "ray":
        from assay.audit.ray_backend import RayBackend

        return RayBackend(workers, address=address, sandbox=sandbox, gpus=0.0 if device == "cpu" else gpus)
    from assay.audit.local import local_pool

    return local_pool(workers, sandbox, device)


def _run(corpus: Path | None, out: Path, settings: Settings, problems: Path | None, retry: bool,
         backend: Any) -> None:
    from assay.audit.corpus import open_corpus
    from assay.audit.export import export, is_current
    from assay.audit.run import Progress, infer_classes, open_audit, run_audit
    from assay.audit.settings import Settings
    from assay.audit.store import Store
    from assay.cli.audit_progress import progress, tallies

    opened = None if corpus is None else open_corpus(corpus, problems=problems)
    if opened is None and not (out / "audit.sqlite").exists():
        raise InputError("no audit in this folder to go on with", str(out), "give a corpus")
    with Store(out, write=True) as store, progress() as show:
        kept = store.get("settings")
        if opened is None and kept is not None and settings == Settings():
            # nothing but the folder was given: go on as it was begun
            settings = Settings.from_json(kept)
        settings = open_audit(store, opened, settings, show)
        if retry:
            store.forget("lost")
        judges = backend()
        try:
            ended = run_audit(store, settings, judges, show)
        except KeyboardInterrupt:
            console(error=True).print("assay: every finished row is kept; the same command goes on", soft_wrap=True)
            raise
        finally:
            judges.close()
        infer_classes(store, show)
        if not is_current(store):
            show(Progress("tables"))
            export(store)
    words = console()
    words.print(f"{ended.done:,} rows: {tallies(ended) or 'nothing to run'}", soft_wrap=True)
    words.print(f"assay audit report {out}", soft_wrap=True)


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
        _need("matplotlib")
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

    _need("pyarrow")
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
