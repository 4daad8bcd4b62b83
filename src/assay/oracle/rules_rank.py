"""Operators that choose: argmax, sort, topk and their kin.

They round nothing, but near-ties may change the choice. The index tensors they return carry a `Ranking`, so
that an index output can be judged by its keys.
"""

from __future__ import annotations

from typing import Any

import torch

from assay.oracle.replay import BATCHED, EXACT, RULES, Replay
from assay.oracle.stacks import Ranking
from assay.oracle.summation import normal_dims

FIRST = {"argmax", "argmin", "max", "min"}
"""Operators documented to return the first of equal entries."""


def _choose(replay: Replay, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    args = replay.widen(args)
    name = replay.note(func)
    out = replay.run(func, args, kwargs)
    names = [a.name for a in func._schema.arguments]
    given: dict[str, Any] = {a.name: a.default_value for a in func._schema.arguments if a.has_default_value()}
    given.update(zip(names, args, strict=False))
    given.update(kwargs)
    keys: torch.Tensor = args[0]
    if name in ("argmax", "argmin"):
        index = out
    elif isinstance(out, tuple | list) and len(out) == 2:
        index = out[1]
    elif name == "argsort":
        index = out
    else:
        return out
    dim = given.get("dim")
    stack = replay.stack(keys)
    if dim is None:
        keys = keys.reshape(-1)
        stack = None if stack is None else stack.reshape(stack.shape[0], -1)
        dim = 0
    if keys.dim() == 0:
        keys = keys.reshape(1)
        stack = None if stack is None else stack.reshape(-1, 1)
        dim = 0
    dim = dim % keys.dim()
    kept = list(keys.shape)
    kept[dim] = index.numel() // max(1, keys.numel() // max(1, keys.shape[dim]))
    descending = name in ("argmax", "max") or bool(given.get("descending", False))
    if name == "topk":
        descending = bool(given.get("largest", True))
    replay.record(index).ranking = Ranking(
        keys=keys.clone(),
        stack=None if stack is None else stack.clone(),
        dim=dim,
        first=name in FIRST or bool(given.get("stable", False)),
        descending=descending,
        shape=torch.Size(kept),
        nominal=replay.nominal(args[0]),
    )
    return out


def carry(replay: Replay, source: torch.Tensor, copy: torch.Tensor) -> None:
    """Let a copy of a whole index tensor keep its ranking."""
    ranking = replay.record(source).ranking
    if ranking is None or copy.numel() != torch.Size(ranking.shape).numel():
        return
    if source.is_contiguous() and copy.is_contiguous() and source.storage_offset() == 0:
        replay.record(copy).ranking = ranking


def _batched_choice(
    replay: Replay, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], out: Any
) -> Any:
    x: torch.Tensor = args[0]
    stack = replay.stack(x)
    if stack is None or x.dim() == 0:
        return None
    name = str(func._schema.name).split("::")[1]
    names = [a.name for a in func._schema.arguments]
    if "dim" not in names:
        return None
    place = names.index("dim")
    dim = (
        args[place]
        if len(args) > place
        else kwargs.get("dim", -1 if name in ("topk", "sort", "argsort") else None)
    )
    if dim is None:
        return None
    shifted = normal_dims(dim, x.dim())[0] + 1
    if len(args) > place:
        return func(stack, *args[1:place], shifted, *args[place + 1 :], **kwargs)
    return func(stack, *args[1:], **{**kwargs, "dim": shifted})


for _name in (
    "argmax",
    "argmin",
    "argsort",
    "sort",
    "topk",
    "kthvalue",
    "median",
    "nanmedian",
    "mode",
    "max",
    "min",
):
    RULES[f"aten::{_name}"] = _choose
    BATCHED[f"aten::{_name}"] = _batched_choice
for _name in ("cummax", "cummin", "searchsorted", "bucketize", "isin", "msort"):
    EXACT.add(f"aten::{_name}")
