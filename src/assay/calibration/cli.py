"""`assay calibrate`: is λ right on this machine?"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from assay.errors import InputError

if TYPE_CHECKING:
    from rich.table import Table

    from assay.calibration.calibrate import Calibration

NOT_CALIBRATED = 1


def calibrate_command(
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
    import torch
    from rich.console import Console

    from assay.calibration.calibrate import calibrate

    if device not in ("cpu", "cuda"):
        raise InputError(f"unknown device {device!r}", "--device", "give cpu or cuda")
    if device == "cuda" and not torch.cuda.is_available():
        raise InputError("no CUDA device here", "--device", "leave it out, or run on a machine with a GPU")
    console = Console()
    with console.status("measuring") as status:
        result = calibrate(part, device, lambda what: status.update(f"measuring {what}"))
    console.print(controls_table(result))
    console.print(faults_table(result))
    for line in summary(result):
        console.print(line)
    if out is not None:
        try:
            out.write_text(json.dumps(document(result, part, device), indent=1) + "\n", encoding="utf-8")
        except OSError as error:
            raise InputError(
                f"cannot write: {error.strerror}", str(out), "name a file in a folder that exists"
            ) from None
    if not result.holds:
        raise typer.Exit(NOT_CALIBRATED)


def document(result: Calibration, part: int | None, device: str) -> dict[str, object]:
    """The result file: where it was measured, the numbers, the rows."""
    from datetime import UTC, datetime

    from assay.environment import describe

    where = describe(device, "sm_90")
    return {
        "name": "calibration",
        "device": where.get("device", device),
        "driver": where.get("driver"),
        "python": where["python"],
        "torch": where["torch"],
        "triton": where["triton"],
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "command": "assay calibrate" + (f" --part {part}" if part else "") + f" --device {device}",
        "metrics": result.metrics(),
        "rows": result.rows(),
    }


def controls_table(result: Calibration) -> Table:
    """Right implementations, by operator and dtype."""
    from rich.table import Table

    table = Table(box=None, title="Right implementations", title_justify="left")
    for name in ("operator", "dtype", "controls", "findings", "error ÷ tolerance", "λ needed", "closest"):
        table.add_column(name, justify="right" if name in ("controls", "findings", "λ needed") else "left")
    for row in result.rows():
        if "operator" in row:
            table.add_row(
                row["operator"],
                row["dtype"],
                str(row["controls"]),
                str(row["findings"]),
                f"{row['ratio']:.2f}",
                f"{row['needed']:.2f}",
                row["closest"],
            )
    return table


def faults_table(result: Calibration) -> Table:
    """Wrong implementations, one a line."""
    from rich.table import Table

    table = Table(box=None, title="Wrong implementations", title_justify="left")
    for name in ("fault", "caught", "size", "error ÷ tolerance", "shown by"):
        table.add_column(name)
    for fault in result.faults:
        table.add_row(fault.name, "yes" if fault.caught else "no", f"{fault.size:.0e}", f"{fault.ratio:.3g}", fault.on)
    return table


def summary(result: Calibration) -> list[str]:
    """What it comes to, in lines."""
    m = result.metrics()
    return [
        f"λ is {m['lambda']:g}; the calibration half needs {m['lambda_needed']:.2f} for a margin of two",
        f"calibration half: {m['control_findings']:g} findings on {m['controls']:g} controls",
        f"held-back half: {m['heldback_findings']:g} findings on {m['heldback_controls']:g} controls",
        f"faults caught: {m['faults_caught']:g} of {m['faults']:g}",
    ]
