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
    ("torch.cuda", torch.cuda),
    ("torch.nn.Module", torch.nn.Module), ("torch.autograd", torch.autograd),
    ("time", time), ("builtins", builtins), ("json", json), ("os", os), ("struct", struct),
    ("statistics", statistics),
)


_LOADED = ("triton", "triton.testing", "triton.runtime", "triton.runtime.driver", "triton.runtime.autotuner",
           "triton.runtime.interpreter", "triton.runtime.jit", "numpy", "numpy.testing")
"""Modules that are watched where they are loaded."""


def _spaces() -> list[tuple[str, Any]]:
    # looked up now: an emulated device has an event and a stream of its own
    spaces: list[tuple[str, Any]] = [*_MODULES, ("torch.cuda.Event", torch.cuda.Event),
                                     ("torch.cuda.Stream", torch.cuda.Stream)]
    spaces += [(name, sys.modules[name]) for name in _LOADED if name in sys.modules]
    # what watches is watched too
    for name, module in list(sys.modules.items()):
        if name.startswith("assay.run.") and module is not None:
            spaces.append((name, module))
            spaces += [(f"{name}.{kind.__qualname__}", kind) for kind in list(vars(module).values())
                       if isinstance(kind, type) and kind.__module__ == name]
    return spaces


def snapshot() -> dict[str, dict[str, Any]]:
    """The callables that are watched, by where they are and name. Holding them keeps their identities."""
    return {prefix: {name: value for name, value in list(vars(space).items())
                     if callable(value) or isinstance(value, staticmethod | classmethod | property)}
            for prefix, space in _spaces()}


def changed(before: dict[str, dict[str, Any]]) -> list[str]:
    """Dotted names that hold another object now; what was only added, and hides nothing, is not counted."""
    found = []
    for prefix, space in _spaces():
        # what was imported since has nothing to be compared with
        if (kept := before.get(prefix)) is None:
            continue
        live = vars(space)
        for name, value in kept.items():
            now = live.get(name)
            if now is not value and not _by_compiler(now, value):
                found.append(f"{prefix}.{name}")
        if isinstance(space, type):
            found += [f"{prefix}.{name}" for name, value in list(live.items())
                      if name not in kept and callable(value) and any(name in vars(b) for b in space.__mro__[1:])]
    return sorted(found)


def _by_compiler(now: Any, before: Any) -> bool:
    """Whether torch wrapped its own function, as it does when its compiler is imported."""
    home = getattr(now, "__globals__", {}).get("__name__", "")
    return getattr(now, "__wrapped__", None) is before and home in ("torch._compile", "torch._dynamo.eval_frame")
