"""`assay mcp`."""

from __future__ import annotations

from typing import Annotated

import typer

from assay.cli import evidence
from assay.contract.cli import Redact
from assay.errors import InputError


def mcp(
    device: Annotated[str, typer.Option(help="auto, cpu (device emulation) or cuda.")] = "auto",
    redaction: Annotated[Redact, typer.Option(help="How much of a verdict is kept back.")] = Redact.NONE,
    sandbox: Annotated[str, typer.Option(help="How candidates are confined: auto, strict or off.")] = "auto",
    store: evidence.StoreDirectory = None,
    no_store: Annotated[bool, typer.Option("--no-store", help="Keep nothing; then findings cannot be "
                                                              "replayed.")] = False,
) -> None:
    """Serve verdicts to coding agents over standard input and output (Model Context Protocol)."""
    try:
        import mcp as _  # noqa: F401

        from assay.integrations.mcp_server import create
    except ModuleNotFoundError as error:
        raise InputError(f"{error.name} is not installed", "assay mcp", "pip install 'assay[mcp]'") from None
    create(device=device, redaction=redaction.value, sandbox=sandbox,
           store=evidence.directory(store, none=no_store)).run("stdio")
