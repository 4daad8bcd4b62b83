"""What a candidate may not replace: functions of torch, triton and the standard library that others rely on.

The judge decides in its own process, so a patch gains nothing; it is reported because the same source in
someone else's process would.
"""

from __future__ import annotations

import builtins
import json
import os
import statistics
import struct
import sys
import time
from typing import Any

import torch
import torch.cuda

_MODULES: tuple[tuple[str, Any], ...] = (
    ("torch", torch), ("torch.Tensor", torch.Tensor), ("torch.testing", torch.testing),
    ("torch.nn.functional", torch.nn.functional), ("torch.linalg", torch.linalg),
    ("torch.cuda", torch.cuda), ("torch.cuda.Event", torch.cuda.Event), ("torch.cuda.Stream", torch.cuda.Stream),
    ("torch.nn.Module", torch.nn.Module), ("torch.autograd", torch.autograd),
    ("time", time), ("builtins", builtins), ("json", json), ("os", os), ("struct", struct),
    ("statistics", statistics),
)


def _spaces() -> list[tuple[str, Any]]:
    spaces = list(_MODULES)
    for name in ("triton.testing", "triton.runtime.driver", "numpy", "numpy.testing"):
        if name in sys.modules:
            spaces.append((name, sys.modules[name]))
    return spaces


def snapshot() -> dict[str, Any]:
    """The callables that are watched, by dotted name. Holding them keeps their identities."""
    seen: dict[str, Any] = {}
    for prefix, space in _spaces():
        for name, value in list(vars(space).items()):
            if not name.startswith("__") and (callable(value) or isinstance(value, staticmethod | classmethod | property)):
                seen[f"{prefix}.{name}"] = value
    return seen


def changed(before: dict[str, Any]) -> list[str]:
    """Dotted names that hold another object now; what was only added is not counted."""
    spaces = dict(_spaces())
    found = []
    for dotted, value in before.items():
        prefix, name = dotted.rsplit(".", 1)
        if prefix in spaces and vars(spaces[prefix]).get(name) is not value:
            found.append(dotted)
    return sorted(found)
