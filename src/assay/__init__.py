"""Assay decides whether a generated GPU kernel is the same program as its reference.

    import assay

    report = assay.verify("candidate.py", "reference.py")
    report.raise_for_findings()

Importing this package is light: torch is imported by the first call that needs it.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping, Sequence
from os import PathLike
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from assay.contract import Contract
    from assay.errors import InputError
    from assay.report.model import AssayFailure, Finding, GateResult, Report
    from assay.screen import ScreenReport, ScreenVariant
    from assay.task import (
        Candidate,
        Task,
        TaskError,
        load_candidate,
        load_task,
        parse_candidate,
        parse_task,
    )

__version__ = "0.1.0"

_HOMES = {
    "AssayFailure": "assay.report.model", "Candidate": "assay.task", "Contract": "assay.contract",
    "Finding": "assay.report.model", "GateResult": "assay.report.model", "InputError": "assay.errors",
    "Report": "assay.report.model", "ScreenReport": "assay.screen", "ScreenVariant": "assay.screen",
    "Task": "assay.task", "TaskError": "assay.task", "load_candidate": "assay.task",
    "load_task": "assay.task", "parse_candidate": "assay.task", "parse_task": "assay.task",
}

__all__ = [
    "AssayFailure",
    "Candidate",
    "Contract",
    "Finding",
    "GateResult",
    "InputError",
    "Report",
    "ScreenReport",
    "ScreenVariant",
    "Task",
    "TaskError",
    "__version__",
    "load_candidate",
    "load_task",
    "parse_candidate",
    "parse_task",
    "screen",
    "verify",
]


def verify(
    candidate: str | PathLike[str] | Candidate | Callable[..., Any],
    reference: str | PathLike[str] | Task | Callable[..., Any],
    *,
    inputs: Callable[..., Any] | Sequence[Any] | Mapping[str, Any] | None = None,
    init: Sequence[Any] = (),
    contract: str | PathLike[str] | Mapping[str, Any] | Contract | None = None,
    device: str = "auto",
    tier: str = "standard",
    only: str | Sequence[str] | None = None,
    seed: int | None = None,
    timeout: float | None = None,
    fail_fast: bool = False,
    emulate: str = "sm_90",
    sandbox: str = "auto",
    store: str | PathLike[str] | None = None,
) -> Report:
    """Decide whether a candidate is the same program as its reference.

    Args:
        candidate: a path, source text, a Candidate, or a function or class. A function travels as source,
            with the module-level names that it uses, because it only ever runs in a process of its own.
        reference: a path, source text, a Task, or a function or class.
        inputs: with a function or class as reference, what makes its inputs: a function returning the
            arguments of one call (its integer parameters with defaults are the sizes that are varied), or
            example arguments.
        init: constructor arguments, when the reference is a class. Plain literals.
        contract: the obligations: a Contract, data, or a path to TOML. None for the defaults.
        device: `auto`, `cpu` (device emulation) or `cuda`.
        tier: `quick`, `standard` or `deep`.
        only: gates to run, by slug, id or alias; None for all.
        seed: seed of the probes; None draws one, which the report names.
        timeout: seconds for the whole verification; None for the tier's own.
        fail_fast: stop at the first finding that rejects.
        emulate: device that emulation answers as, such as `sm_90`.
        sandbox: how the candidate is confined: `auto` as far as this machine can, `strict` fully or not at all,
            `off`.
        store: folder of a store that keeps the verdict, so that `assay replay` shows its findings again, and
            whose failures of the task are tried first; None keeps nothing.

    Raises:
        InputError: the task, the contract or an argument is at fault.
    """
    from assay import accept, warm
    from assay.verify import verify_task

    task, found = accept.pair(reference, candidate, inputs, init)
    options = accept.options(device=device, tier=tier, only=only, seed=seed, timeout=timeout,
                             fail_fast=fail_fast, emulate=emulate, sandbox=sandbox, store=store)
    clauses = accept.contract(contract)
    return warm.call(
        lambda zygote: verify_task(task, found, contract=clauses, options=options, zygote=zygote))


def screen(
    candidate: str | PathLike[str] | Candidate | Callable[..., Any],
    reference: str | PathLike[str] | Task | Callable[..., Any],
    *,
    inputs: Callable[..., Any] | Sequence[Any] | Mapping[str, Any] | None = None,
    init: Sequence[Any] = (),
    variant: str | ScreenVariant = "kernelbench-v0",
    precision: str = "fp32",
    device: str = "auto",
    timeout: float = 300.0,
    emulate: str = "sm_90",
) -> ScreenReport:
    """The cheap check: five random inputs at the native sizes. Passing it is no verdict of correctness.

    Args:
        candidate: as in `verify`.
        reference: as in `verify`.
        inputs: as in `verify`.
        init: as in `verify`.
        variant: `kernelbench-v0` (1e-2), `kernelbench` (1e-4 at fp32, 1e-2 at half precision, every input
            cast) or `hardened`.
        precision: precision of the `kernelbench` variant: `fp32`, `fp16` or `bf16`.
        device: `auto`, `cpu` or `cuda`.
        timeout: seconds for the candidate's calls.
        emulate: device that emulation answers as.

    Raises:
        InputError: the task or an argument is at fault.
    """
    from assay import accept, warm
    from assay.screen import screen_task

    task, found = accept.pair(reference, candidate, inputs, init)
    target = accept.target(emulate)
    chosen = accept.variant(variant)
    return warm.call(lambda zygote: screen_task(
        task, found, variant=chosen, precision=precision, device=device, target=target, timeout=timeout,
        zygote=zygote))


def __getattr__(name: str) -> Any:
    """The public nouns, imported when first asked for."""
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """Public names, imported or not."""
    return sorted({*globals(), *__all__})


class _Package(ModuleType):
    """Keeps `assay.verify` and `assay.screen` the functions: importing a submodule binds its name here."""

    def __setattr__(self, name: str, value: object) -> None:
        if name in ("verify", "screen") and isinstance(value, ModuleType):
            return
        super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package
