"""What a person may pass, turned into a Task, a Candidate, a Contract and Options."""

from __future__ import annotations

import difflib
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from assay.contract import Contract
from assay.errors import InputError
from assay.gates import GATES, find
from assay.run.emulation.targets import TARGETS
from assay.run.sandbox import MODES
from assay.screen import ScreenVariant
from assay.task import Candidate, Task, formats, load_candidate, load_task, parse_candidate, parse_task
from assay.verify import Options
from assay.vocabulary import EffortTier

T = TypeVar("T")


def pair(reference: Any, candidate: Any, inputs: Any = None,
         init: Sequence[Any] = ()) -> tuple[Task, Candidate]:
    """The task and the candidate. Raises InputError."""
    if _is_path(reference) and _is_path(candidate) and (loaded := formats.find(reference)) is not None:
        _no_inputs(inputs, init)
        return loaded.whole(), loaded.candidate(Path(candidate))
    found = task(reference, inputs, init)
    return found, as_candidate(candidate, found)


def task(reference: Any, inputs: Any = None, init: Sequence[Any] = ()) -> Task:
    """A Task from a path, source text, a Task, or a callable with its inputs. Raises InputError.

    A path may be a folder of another format; `PATH::NAME` names one of several tasks in it.
    """
    live = callable(reference) and not isinstance(reference, Task)
    if not live:
        _no_inputs(inputs, init)
    if isinstance(reference, Task):
        return reference
    if _is_path(reference):
        loaded = formats.find(reference)
        return loaded.whole() if loaded is not None else load_task(Path(reference))
    if isinstance(reference, str):
        return parse_task(reference)
    if live:
        from assay.portable import task_from

        return task_from(reference, inputs, init)
    raise InputError(f"a {type(reference).__name__} is no reference", "reference",
                     "give a path, source text, a Task, or a function or class")


def _no_inputs(inputs: Any, init: Sequence[Any]) -> None:
    if inputs is not None or init:
        raise InputError("`inputs` and `init` go with a function or class as reference", "inputs",
                         "leave them out: the reference file makes its own inputs")


def _is_path(value: Any) -> bool:
    return isinstance(value, str | os.PathLike) and not _is_source(value)


def as_candidate(candidate: Any, found: Task) -> Candidate:
    """A Candidate from a path, source text, a Candidate, or a callable. Raises InputError."""
    if isinstance(candidate, Candidate):
        return candidate
    if isinstance(candidate, str | os.PathLike):
        entries = found.candidate_entries
        if _is_source(candidate):
            return parse_candidate(str(candidate), entries=entries, strict=False)
        return load_candidate(Path(candidate), entries=entries, strict=False)
    if callable(candidate):
        from assay.portable import candidate_from

        return candidate_from(candidate)
    raise InputError(f"a {type(candidate).__name__} is no candidate", "candidate",
                     "give a path, source text, a Candidate, or a function or class")


def _is_source(value: Any) -> bool:
    """Source text has lines; a path has none."""
    return isinstance(value, str) and "\n" in value


def contract(value: Any) -> Contract:
    """A Contract from a Contract, data, a path to TOML, or None. Raises InputError."""
    if value is None:
        return Contract()
    if isinstance(value, Contract):
        return value
    if isinstance(value, Mapping):
        return Contract.from_data(dict(value))
    if isinstance(value, str | os.PathLike):
        return Contract.from_file(Path(value))
    raise InputError(f"a {type(value).__name__} is no contract", "contract",
                     "give a Contract, a dict or a path")


def gates(only: str | Iterable[str] | None) -> tuple[str, ...] | None:
    """Slugs of gates named by slug, id or alias; None for all. Raises InputError with the nearest name."""
    if only is None:
        return None
    names = [only] if isinstance(only, str) else list(only)
    found = []
    for name in (part for text in names for part in text.split(",")):
        gate = find(name)
        if gate is None:
            raise InputError(f"no gate `{name}`{nearest(name, GATES)}", "--only", "`assay gates` lists them")
        found.append(gate.slug)
    if not found:
        return None
    return tuple(dict.fromkeys(found))


def target(name: str) -> str:
    """A device that emulation knows. Raises InputError with the nearest name."""
    if name not in TARGETS:
        raise InputError(f"unknown device `{name}`{nearest(name, TARGETS)}", "--emulate",
                         f"one of {', '.join(TARGETS)}")
    return name


def variant(name: str | ScreenVariant) -> ScreenVariant:
    """A variant of the screen. Raises InputError."""
    return _member(ScreenVariant, name, "--variant")


def options(*, device: str = "auto", tier: str = "standard", only: str | Iterable[str] | None = None,
            seed: int | None = None, timeout: float | None = None, fail_fast: bool = False,
            emulate: str = "sm_90", sandbox: str = "auto", cache: bool = True,
            store: str | os.PathLike[str] | None = None) -> Options:
    """Checked options of a verification. Raises InputError."""
    if sandbox not in MODES:
        raise InputError(f"unknown sandbox `{sandbox}`{nearest(sandbox, MODES)}", "--sandbox",
                         f"use {', '.join(MODES)}")
    if timeout is not None and not timeout > 0:
        raise InputError(f"a timeout of {timeout} s leaves no time", "--timeout", "give positive seconds")
    if seed is not None and not 0 <= seed < 1 << 63:
        raise InputError(f"seed {seed} is out of range", "--seed", "use 0 to 2**63 - 1")
    return Options(device=device, tier=_member(EffortTier, tier, "--tier"), only=gates(only), seed=seed,
                   timeout=timeout, fail_fast=fail_fast, target=target(emulate),
                   sandbox=sandbox, cache=cache, store=None if store is None else os.fspath(store))


def _member(kind: type[T], name: Any, where: str) -> T:
    try:
        return kind(name)  # type: ignore[call-arg]
    except ValueError:
        names = [str(member) for member in kind]  # type: ignore[attr-defined]
        raise InputError(f"unknown value `{name}`{nearest(str(name), names)}", where,
                         f"one of {', '.join(names)}") from None


def nearest(name: str, known: Iterable[str]) -> str:
    """`; did you mean X?` for the nearest known name, or nothing."""
    found = difflib.get_close_matches(name.lower(), list(known), n=1, cutoff=0.4)
    return f"; did you mean `{found[0]}`?" if found else ""
