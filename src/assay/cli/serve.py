"""`assay serve`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from assay.errors import InputError


def serve(
    host: Annotated[str, typer.Option(help="Address to listen at.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=1, max=65535, help="Port to listen at.")] = 8765,
    workers: Annotated[int | None, typer.Option(min=1, metavar="N", show_default=False,
                                                help="Judges; by default as many as the machine takes.")] = None,
    queue: Annotated[int, typer.Option(min=1, help="Verdicts that may wait; more are refused with 429.")] = 256,
    tokens: Annotated[Path | None, typer.Option(metavar="FILE", show_default=False,
                                                help="TOML with a table [tenants.NAME] and a token for each who may "
                                                     "ask.")] = None,
    device: Annotated[str, typer.Option(help="auto, cpu (device emulation) or cuda.")] = "auto",
    gpus: Annotated[str | None, typer.Option(metavar="LIST", show_default=False,
                                             help="GPUs that judges take in turn, such as 0,1.")] = None,
    sandbox: Annotated[str, typer.Option(help="How candidates are confined: auto, strict or off.")] = "auto",
    body: Annotated[int, typer.Option(min=1024, metavar="BYTES", help="Largest request.")] = 1 << 20,
    seconds: Annotated[float, typer.Option(min=1.0, metavar="S", help="Most that one verdict may take.")] = 600.0,
    drain: Annotated[float, typer.Option(min=0.0, metavar="S", help="Seconds that what was accepted gets after a "
                                                                    "signal to stop.")] = 60.0,
) -> None:
    """Give verdicts over HTTP. A page for people is at /, the interface is described at /docs."""
    try:
        from assay.serve.server import serve as run
        from assay.serve.settings import LOOPBACK, Settings, read_tenants
    except ModuleNotFoundError as error:
        raise InputError(f"{error.name} is not installed", "assay serve", "pip install 'assay[serve]'") from None
    tenants = read_tenants(tokens) if tokens is not None else ()
    if not tenants and host not in LOOPBACK:
        raise InputError(f"without tokens anybody who reaches {host} could use it", "--tokens",
                         "name a file of tokens, or listen at 127.0.0.1")
    settings = Settings(workers=workers, queue=queue, body_bytes=body, seconds=seconds, device=device, sandbox=sandbox,
                        gpus=tuple(gpus.split(",")) if gpus else (), drain_s=drain, tenants=tenants)
    typer.echo(f"assay: verdicts at http://{host}:{port}/", err=True)
    run(settings, host, port)
