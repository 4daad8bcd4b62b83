"""`assay contract infer`, `assay contract check`, `assay contract schema` and `assay prompt`."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from assay.errors import InputError

if TYPE_CHECKING:
    from assay.contract.inference import InferredContract
    from assay.contract.model import Contract
    from assay.report.model import Report
    from assay.task import Task

INFERENCE_SECONDS = 60.0
"""Time for trying sizes: enough that a busy machine finds what an idle one finds."""

app = typer.Typer(no_args_is_help=True, rich_markup_mode=None, pretty_exceptions_enable=False,
                  help="Infer, check and describe contracts.")


class Redact(StrEnum):
    """How much of a verdict is kept back."""

    NONE = "none"
    KINDS = "kinds"
    FULL = "full"


def inferred_from(task: Task) -> InferredContract:
    """Study a task in a worker of its own, and infer its contract. Raises InputError."""
    from dataclasses import replace

    from assay.contract.inference import infer, merge
    from assay.contract.model import Contract
    from assay.run.process import Zygote
    from assay.run.reference import ReferenceFailed, ReferenceSession

    with Zygote() as zygote:
        session = ReferenceSession(zygote, task)
        try:
            found = infer(session.study(budget_s=INFERENCE_SECONDS))
            told = dict.fromkeys(_clauses(task.stated), "stated by the task's own format")
            return replace(found, contract=merge(found.contract, Contract.from_data(task.stated)),
                           observed={**found.observed, **told})
        except ReferenceFailed as error:
            raise InputError(f"the reference could not be studied: {error}", task.shown,
                             "make it run on its own") from None
        finally:
            session.close()


def _clauses(data: dict[str, Any], path: str = "") -> Iterator[str]:
    """Dotted keys of the clauses in tables."""
    for key, value in data.items():
        if isinstance(value, dict):
            yield from _clauses(value, f"{path}{key}.")
        else:
            yield path + key


def _task(reference: Path, entry: str = "Model") -> Task:
    """The task of a reference file, or of `FOLDER` or `FOLDER::NAME` in another format. Raises InputError."""
    from assay.task import formats, load_task

    found = formats.find(reference)
    return load_task(reference, entry=entry) if found is None else found.whole()


@app.command("infer")
def infer_command(
    reference: Annotated[Path, typer.Argument(help="The reference file.", show_default=False)],
    output: Annotated[Path | None, typer.Option("-o", "--output", help="File to write; standard output when "
                                                "left out.", show_default=False)] = None,
    entry: Annotated[str, typer.Option(help="Name of the reference class.")] = "Model",
) -> None:
    """Write the contract of a reference, each clause with how it was observed."""
    from assay.contract.toml import write_inferred

    task = _task(reference, entry)
    found = inferred_from(task)
    text = write_inferred(found, task.id)
    for warning in found.warnings:
        typer.echo(f"warning: {warning}", err=True)
    if output is None:
        sys.stdout.write(text)
        return
    try:
        output.write_text(text, encoding="utf-8")
    except OSError as error:
        raise InputError(f"cannot write the contract: {error.strerror or error}", str(output),
                         "give another path") from None


@app.command("check")
def check_command(
    file: Annotated[Path, typer.Argument(help="The contract.", show_default=False)],
    reference: Annotated[Path | None, typer.Option(help="Also hold the contract against this reference.",
                                                   show_default=False)] = None,
) -> None:
    """Say whether a contract can be read, and, beside a reference, what it changes."""
    from assay.contract.model import Contract

    contract = Contract.from_file(file)
    if reference is not None:
        for line in differences(contract, inferred_from(_task(reference)).contract, str(file)):
            typer.echo(line)
    typer.echo(f"{file}: a valid contract")


def differences(written: Contract, inferred: Contract, where: str) -> list[str]:
    """What a written contract says otherwise than inference, one clause a line.

    Raises:
        InputError: it names a size or an input that the task has not got.
    """
    from assay.contract.inference import merge

    for table in ("sizes", "inputs", "parameters"):
        known = getattr(inferred.domain, table)
        for name in getattr(written.domain, table):
            if name not in known:
                raise InputError(f"the reference has no {table[:-1]} `{name}`", f"{where}: domain.{table}",
                                 f"known: {', '.join(known) or 'none'}")
    merged = merge(inferred, written).model_dump(mode="json")
    return list(_changed(inferred.model_dump(mode="json"), merged, ""))


def _changed(before: object, after: object, path: str) -> list[str]:
    if isinstance(before, dict) and isinstance(after, dict):
        return [line for key in after
                for line in _changed(before.get(key), after[key], f"{path}.{key}" if path else str(key))]
    return [] if before == after else [f"{path}: {after!r} in place of {before!r}"]


@app.command("schema")
def schema_command() -> None:
    """Print the JSON Schema of a contract."""
    from assay.contract.schema import contract_schema
    from assay.report.model import canonical_json

    sys.stdout.write(canonical_json(contract_schema()))


def prompt(
    reference: Annotated[Path, typer.Argument(help="The reference file.", show_default=False)],
    contract: Annotated[Path | None, typer.Option(help="A contract; what it leaves out is inferred.",
                                                  show_default=False)] = None,
    report: Annotated[Path | None, typer.Option(help="A verdict (JSON) to give feedback on.",
                                                show_default=False)] = None,
    redact: Annotated[Redact, typer.Option(help="How much of the verdict to keep back: none tells all, kinds "
                                           "only gates and kinds of fault, full only the label.")
                      ] = Redact.KINDS,
    entry: Annotated[str, typer.Option(help="Name of the reference class.")] = "Model",
) -> None:
    """Print the contract as instructions for a writer of kernels, or a verdict as feedback to them."""
    from assay.contract.inference import merge
    from assay.contract.model import Contract
    from assay.contract.prompt import feedback, instructions

    task = _task(reference, entry)
    written = Contract.from_file(contract) if contract is not None else None
    verdict = read_report(report) if report is not None else None
    if verdict is not None and verdict.task.sha256 != task.digest:
        raise InputError("the report is about another reference", str(report),
                         f"give a report on {reference}")
    found = inferred_from(task)
    merged = found.contract if written is None else merge(found.contract, written)
    sys.stdout.write(instructions(merged, reference=task.source, inferred=found))
    if verdict is not None:
        sys.stdout.write("\n" + feedback(verdict, redact.value))


def read_report(path: Path) -> Report:
    """A report from its JSON file. Raises InputError."""
    from pydantic import ValidationError

    from assay.report.model import Report

    try:
        return Report.model_validate_json(path.read_bytes())
    except OSError as error:
        raise InputError(f"cannot read the report: {error.strerror or error}", str(path),
                         "check the path") from None
    except ValidationError as error:
        fault = error.errors()[0]
        place = ".".join(map(str, fault["loc"]))
        raise InputError(f"not a report: {place + ': ' if place else ''}{fault['msg']}", str(path),
                         "give what `assay verify --json` wrote") from None
