"""`assay selftest`: which gates can be trusted on this machine."""

from __future__ import annotations

import time
from typing import Annotated

import typer

from assay.cli.output import console
from assay.cli.progress import progress


def selftest(
    quick: Annotated[bool, typer.Option("--quick", help="At the quick tier.")] = False,
    only: Annotated[list[str] | None, typer.Option(metavar="GATE", show_default=False,
                                                   help="This gate alone; may be repeated.")] = None,
    device: Annotated[str, typer.Option(help="auto, cpu (device emulation) or cuda.")] = "auto",
    workers: Annotated[int | None, typer.Option(show_default=False,
                                                help="Verdicts at a time; by default what the machine takes.")] = None,
) -> None:
    """Try every gate on a right kernel and on a wrong one, and say which can be trusted here.

    Exit status: 0 when each passes what is right and rejects what is wrong, 1 when one does not.
    """
    from assay import accept
    from assay.selftest import CONTROLS, Trust, selftest
    from assay.verify import resolve_device

    gates = accept.gates(only)
    where = resolve_device(device)
    out = console()
    began = time.monotonic()
    count = sum(1 for c in CONTROLS if gates is None or c.gate in gates)
    styles = {Trust.WORKS: "green", Trust.ELSEWHERE: "dim"}
    broken = []
    with progress() as show:
        for found in selftest(quick=quick, gates=gates, device=where, workers=workers,
                              progress=lambda done, total: show("probes", done, total)):
            out.print(f"{found.gate:<18}{found.trust.value:<15}{found.note}", soft_wrap=True,
                      style=styles.get(found.trust, "bold red"), markup=False, highlight=False)
            if found.trust not in (Trust.WORKS, Trust.ELSEWHERE):
                broken.append(found.gate)
    seconds = time.monotonic() - began
    words = f"do not work here: {', '.join(broken)}" if broken else "every gate that can be tried here works"
    out.print(f"\n{count} gates tried in {seconds:.0f} s; {words}", soft_wrap=True)
    raise typer.Exit(1 if broken else 0)
