"""Writing a contract as TOML, with what was observed beside each clause."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

from assay.contract.inference import InferredContract
from assay.contract.model import Contract

_BARE = re.compile(r"[A-Za-z0-9_-]+")

_TABLES = {
    "domain": "Where a candidate has to be right.",
    "domain.sizes": "Module-level integers of the task.",
    "domain.inputs": "Tensor inputs, by position or keyword.",
    "domain.parameters": "Parameters and buffers of the reference.",
    "numerics": "The arithmetic that tolerances are derived from.",
    "exceptional": "NaN, infinities and subnormal numbers: propagate, reference or ignore.",
    "memory": "Aliasing, inputs that may change, scratch.",
    "resources": "Targets to compile for, such as sm_90; empty means the device at hand.",
    "policy": "Which gates block the label; none listed means all that are not opt-in.",
}


def write(contract: Contract, *, observed: Mapping[str, str] | None = None, head: Sequence[str] = ()) -> str:
    """A contract as TOML text that reads back as the same contract.

    Args:
        contract: the clauses; those that are None are left out.
        observed: how a clause was seen, by its dotted key, written as a comment beside it.
        head: lines of comment at the top.
    """
    data = contract.model_dump(mode="json", exclude_none=True)
    lines = [f"# {_one_line(line)}".rstrip() for line in head]
    lines += [""] if lines else []
    _table(data, (), observed or {}, lines)
    return "\n".join(lines).rstrip() + "\n"


def write_inferred(inferred: InferredContract, name: str) -> str:
    """The file that `assay contract infer` writes for the task of that name."""
    head = [
        f"Contract of {name}, inferred by running its reference.",
        "Beside each clause: how it was observed. Delete what is accidental, change what is wrong.",
        *(f"WARNING: {warning}" for warning in inferred.warnings),
    ]
    return write(inferred.contract, observed=inferred.observed, head=head)


def _table(
    data: Mapping[str, Any], path: tuple[str, ...], observed: Mapping[str, str], lines: list[str]
) -> None:
    """Plain keys first, then tables, as TOML wants them."""
    tables = {key: value for key, value in data.items() if isinstance(value, dict)}
    for key, value in data.items():
        if key not in tables:
            note = observed.get(".".join((*path, key)))
            lines.append(f"{quoted(key)} = {value_text(value)}" + (f"  # {_one_line(note)}" if note else ""))
    for key, value in tables.items():
        if not value:
            continue
        inner = (*path, key)
        dotted = ".".join(inner)
        notes = [text for text in (_TABLES.get(dotted), observed.get(dotted)) if text]
        holds_values = any(not isinstance(item, dict) for item in value.values())
        if notes or holds_values:
            lines += ["", *(f"# {_one_line(text)}" for text in notes)]
        if holds_values:
            lines.append(f"[{'.'.join(map(quoted, inner))}]")
        _table(value, inner, observed, lines)


def quoted(key: str) -> str:
    """A key as TOML, bare where it can be."""
    return key if _BARE.fullmatch(key) else _string(key)


def value_text(value: Any) -> str:
    """A value as TOML. Raises TypeError for what TOML cannot hold."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return _string(value)
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float):
        if math.isnan(value):
            return "nan"
        if math.isinf(value):
            return "inf" if value > 0 else "-inf"
        return repr(value)
    if isinstance(value, list | tuple):
        return "[" + ", ".join(value_text(item) for item in value) + "]"
    raise TypeError(f"{type(value).__name__} has no place in a contract")


def _string(text: str) -> str:
    """A basic string; TOML forbids a bare DEL, which JSON allows."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def _one_line(text: str) -> str:
    return " ".join("".join(c if c.isprintable() else " " for c in text).split())
