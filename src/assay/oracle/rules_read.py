"""Operators that read values back: numbers that leave the replay, and shapes that depend on what is rounded."""

from __future__ import annotations

from typing import Any

import torch

from assay.oracle.replay import RULES, UNROUNDED, Replay
from assay.oracle.stacks import NeedsSerial, map_tensors, tensors_in


def _scalar(replay: Replay, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """`item()` and the like: the value leaves the replay, which is harmless only if all runs agree on it."""
    value = func(*args, **kwargs)
    for t in tensors_in(args):
        stack = replay.stack(t)
        if stack is not None and not bool(((stack == t) | (stack.isnan() & t.isnan())).all()):
            raise NeedsSerial(f"{func} reads a rounded value")
    return value


def _same_in_all(replay: Replay, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Operators whose output shape depends on values (nonzero): usable only if all runs agree."""
    replay.note(func)
    out = func(*args, **kwargs)
    for t in tensors_in(args):
        stack = replay.stack(t)
        if stack is None:
            continue
        for version in stack:

            def swap(v: torch.Tensor, t: torch.Tensor = t, version: torch.Tensor = version) -> torch.Tensor:
                return version if v is t else v

            other = func(*(map_tensors(a, swap) for a in args), **kwargs)
            if other.shape != out.shape or not torch.equal(other, out):
                raise NeedsSerial(f"{func} selects by rounded values")
    return out


for _name in ("_local_scalar_dense", "equal", "is_nonzero", "allclose"):
    RULES[f"aten::{_name}"] = _scalar
for _name in ("nonzero", "nonzero_static", "_unique2", "unique_dim", "unique_consecutive"):
    RULES[f"aten::{_name}"] = _same_in_all
UNROUNDED |= {handler.__name__ for handler in (_scalar, _same_in_all)}
