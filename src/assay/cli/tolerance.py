"""`assay oracle` and `assay calibrate`: what the tolerance of a task is, and whether λ is right here."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def oracle(
    reference: Annotated[Path, typer.Argument(help="The task's reference file.", show_default=False)],
    contract: Annotated[
        Path | None, typer.Option("--contract", help="A contract in TOML.", show_default=False)
    ] = None,
    variant: Annotated[
        str, typer.Option(help="Variation of the inputs, such as wide10; `task` for the task's own.")
    ] = "task",
    dtype: Annotated[
        str | None, typer.Option(help="Cast inputs and parameters first, such as bfloat16.", show_default=False)
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of the inputs.")] = 0,
) -> None:
    """Print per output what the tolerance is, its parts, and what lower precisions would give."""
    from assay.contract import Contract
    from assay.oracle_report import oracle_report

    clauses = Contract.from_file(contract) if contract is not None else None
    print(oracle_report(reference, variant=variant, dtype=dtype, seed=seed, contract=clauses))


def calibrate(
    part: Annotated[
        int | None,
        typer.Option(min=1, help="Measure about one control and one fault in this many.", show_default=False),
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Write the result as JSON.", show_default=False)] = None,
    device: Annotated[str, typer.Option(help="Where references and controls run: cpu or cuda.")] = "cpu",
) -> None:
    """Measure right and wrong implementations against the oracle's tolerances.

    Exit status 1 if a right implementation has a finding, a wrong one has none, or λ lacks its margin.
    """
    from assay.calibration.cli import calibrate_command

    calibrate_command(part, out, device)
