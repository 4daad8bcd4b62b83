"""Calling a module under `torch.autocast`, as a training loop in mixed precision does."""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable
from typing import Any

import torch

DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16}
"""Dtypes by the names that contracts have for them."""


def context(name: str, device: str) -> Any:
    """The autocast context of a dtype, by its name in contracts, for tensors on a device."""
    return torch.autocast(torch.device(device).type, dtype=DTYPES[name])


def under(model: Any, name: str, device: str) -> Any:
    """A reference whose forward runs under autocast: a copy with the same parameter names, or a function."""
    if not isinstance(model, torch.nn.Module):
        return _called(model, name, device)
    own = copy.deepcopy(model)
    kind = type(own)

    def forward(self: Any, *args: Any, **kwargs: Any) -> Any:
        with context(name, device):
            return kind.forward(self, *args, **kwargs)

    # a class of its own rather than a wrapped method: a deep copy then calls its own parameters
    own.__class__ = type(kind.__name__, (kind,), {"forward": forward, "__module__": kind.__module__})
    return own


def _called(function: Callable[..., Any], name: str, device: str) -> Callable[..., Any]:
    @functools.wraps(function)
    def called(*args: Any, **kwargs: Any) -> Any:
        with context(name, device):
            return function(*args, **kwargs)

    return called
