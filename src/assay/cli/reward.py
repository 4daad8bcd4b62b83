"""`assay reward`."""

from __future__ import annotations

import json as jsons
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from assay.cli.output import console, json_target
from assay.cli.progress import progress
from assay.errors import InputError


def reward(
    reference: Annotated[Path, typer.Argument(metavar="REFERENCE", show_default=False,
                                              help="File with Model, get_inputs and get_init_inputs.")],
    completions: Annotated[list[Path], typer.Argument(metavar="COMPLETION...", show_default=False,
                                                      help="Files with what a model wrote: code, or text with "
                                                           "fenced code.")],
    contract: Annotated[Path | None, typer.Option(metavar="FILE", show_default=False,
                                                  help="TOML with the obligations.")] = None,
    device: Annotated[str, typer.Option(help="auto, cpu (device emulation) or cuda.")] = "auto",
    tier: Annotated[str, typer.Option(help="quick, standard or deep.")] = "quick",
    workers: Annotated[int | None, typer.Option(min=1, metavar="N", show_default=False,
                                                help="Judges at a time.")] = None,
    json: Annotated[str | None, typer.Option("--json", metavar="FILE", show_default=False,
                                             help="Write the rewards as JSON; - for standard output.")] = None,
) -> None:
    """What completions would earn in a training loop, before speed.

    Exit status: 0 whatever they earn, 2 the reference or the command line is at fault.
    """
    texts = [_text(path) for path in completions]
    source = _text(reference)
    with json_target(json) as target, progress() as show:
        show("start", 0, 0)
        from assay.reward.judge import KernelReward

        with KernelReward(contract=contract, device=device, tier=tier, workers=workers) as judge:
            pending = [judge.submit(source, text) for text in texts]
            found = []
            for future in pending:
                found.append(future.result())
                show("verify", len(found), len(pending))
        rows = [{"completion": str(path), **asdict(reward)} for path, reward in zip(completions, found, strict=True)]
        if target is not None:
            target.write(jsons.dumps(rows, indent=2) + "\n")
    out = console(error=target is not None and target.stdout)
    for path, earned in zip(completions, found, strict=True):
        value = "neutral" if earned.value is None else f"{earned.value:.3f}"
        gates = f"{earned.gates_passed} of {earned.gates} gates" if earned.gates else ""
        out.print(f"{value:>7}  {earned.stage.value:<9}  {path}  {gates}".rstrip(), soft_wrap=True)


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise InputError(f"cannot read it: {error.strerror or error}", str(path), "check the path") from None
    except UnicodeDecodeError:
        raise InputError("not UTF-8 text", str(path), "save it as UTF-8") from None
