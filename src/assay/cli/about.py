"""`assay gates`, `assay explain`, `assay schema` and `assay doctor`: what Assay checks, and where."""

from __future__ import annotations

import sys
import textwrap
from typing import TYPE_CHECKING, Annotated

import typer

from assay.cli.output import console
from assay.errors import InputError

if TYPE_CHECKING:
    from assay.gates import Gate

TOLERANCE_FREE = {"no": "yes", "yes": "no"}


def gates() -> None:
    """List the gates: id, name, whether a failure is free of tolerance, and the obligation."""
    from rich.table import Table

    from assay.gates import BATTERY
    from assay.pages import gate_page, needs_tolerance

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for name in ("id", "gate", "tolerance-free", "obligation"):
        table.add_column(name, no_wrap=name != "obligation")
    for gate in BATTERY:
        need = needs_tolerance(gate_page(gate.slug) or "")
        table.add_row(gate.id, gate.slug, TOLERANCE_FREE.get(need, need),
                      gate.obligation + (" (opt-in)" if gate.opt_in else ""))
    console().print(table)


def explain(
    gate: Annotated[str, typer.Argument(metavar="GATE", show_default=False,
                                        help="Name, id or alias of a gate.")],
) -> None:
    """Print the page of one gate: its obligation, its probes, a wrong kernel and its right twin."""
    from assay.gates import GATES, find
    from assay.pages import gate_page, gate_pages, page_names

    found: Gate | None = find(gate)
    slug = found.slug if found is not None else _slug_by_page(gate)
    if slug is None:
        from assay.accept import nearest

        names = {name for s in gate_pages() for name in page_names(gate_page(s) or "")} | set(GATES)
        raise InputError(f"no gate `{gate}`{nearest(gate, sorted(names))}", "explain",
                         "`assay gates` lists them")
    page = gate_page(slug)
    if page is None:
        page = f"# {slug}\n\n**Obligation.** {found.obligation if found else ''}\n"
    if found is None:
        page += "\n---\n\nThis gate is not part of the battery of this version.\n"
    if sys.stdout.isatty():
        from rich.markdown import Markdown

        console().print(Markdown(page))
    else:
        sys.stdout.write(page)


def _slug_by_page(name: str) -> str | None:
    from assay.pages import gate_page, gate_pages, page_names

    wanted = name.strip().lower()
    for slug in gate_pages():
        if wanted in {slug, *(n.lower() for n in page_names(gate_page(slug) or ""))}:
            return slug
    return None


def schema(
    contract: Annotated[bool, typer.Option("--contract", help="The contract's schema.")] = False,
    screen: Annotated[bool, typer.Option("--screen", help="The schema of the screen's report.")] = False,
    gate: Annotated[bool, typer.Option("--gate", help="The schema of a gate's report.")] = False,
    bench: Annotated[bool, typer.Option("--bench", help="The schema of a benchmark's report.")] = False,
) -> None:
    """Print the JSON Schema of the report."""
    from assay.report.model import canonical_json
    from assay.report.schema import SCHEMAS

    name = "contract" if contract else "screen" if screen else "gate" if gate else "bench" if bench else "report"
    sys.stdout.write(canonical_json(SCHEMAS[name]()))


def doctor() -> None:
    """Say what this machine can check, and what to install for the rest.

    Exit status: 0 when kernels can be verified here, 1 when not.
    """
    from rich.text import Text

    from assay.doctor import State, examine

    out = console()
    lead = 29
    styles = {State.OK: "green", State.LIMITED: "yellow", State.MISSING: "red"}
    usable = True
    for check in examine():
        usable = usable and not (check.required and check.state is State.MISSING)
        line = Text(f"{check.name:<20}")
        line.append(f"{check.state.value:<9}", style=styles[check.state])
        pieces = textwrap.wrap(check.found, out.width - lead) + textwrap.wrap(check.advice, out.width - lead)
        line.append(pieces[0])
        out.print(line)
        for piece in pieces[1:]:
            out.print(Text(f"{'':{lead}}{piece}", style="dim"))
    out.print(f"\n{'Kernels can be verified here.' if usable else 'Kernels cannot be verified here.'}")
    if usable:
        out.print("`assay selftest` tries every gate on a right and a wrong kernel, in about a minute.", soft_wrap=True)
    raise typer.Exit(0 if usable else 1)
