"""`assay audit run`: judge every candidate of a corpus, and lose nothing."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from assay.cli.output import console
from assay.errors import InputError

if TYPE_CHECKING:
    from assay.audit.run import Backend
    from assay.audit.settings import Settings


def run(
    corpus: Annotated[Path | None, typer.Argument(metavar="CORPUS", show_default=False,
                                                  help=".jsonl, .parquet, a folder of pairs or of KernelBench runs; "
                                                       "may be left out to go on with an audit.")] = None,
    out: Annotated[Path | None, typer.Option("--out", "-o", metavar="DIR", show_default=False,
                                             help="Folder of the audit; an audit in it goes on.")] = None,
    workers: Annotated[int | None, typer.Option(min=1, metavar="N", show_default=False,
                                                help="Judges at once; by default as many as the machine "
                                                     "takes.")] = None,
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
    need("pyarrow")
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


def need(module: str) -> None:
    """Refuse work whose end needs an extra that is not installed."""
    from importlib.util import find_spec

    if find_spec(module) is None:
        raise InputError(f"audits need {module}", "", "pip install 'assay[audit]'")
