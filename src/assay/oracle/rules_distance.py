"""Distances and bilinear forms, written out as the operations they stand for."""

from __future__ import annotations

import math
from typing import Any

import torch

from assay.oracle.replay import RULES, Replay


def _entered(replay: Replay, func: Any) -> None:
    replay.ops[str(func._schema.name).split("::")[1]] += 1


def _distances(difference: torch.Tensor, p: float) -> torch.Tensor:
    """p-norm over the last dimension."""
    size = difference.abs()
    if p == 0:
        return (size != 0).to(size.dtype).sum(-1)
    if p == 1:
        return size.sum(-1)
    if p == math.inf:
        return size.amax(-1) if size.shape[-1] else size.sum(-1)
    if p == 2:
        return (difference * difference).sum(-1).sqrt()
    return size.pow(p).sum(-1).pow(1.0 / p)


def _cdist(replay: Replay, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    args = replay.widen(args)
    _entered(replay, func)
    x1, x2, p = args[0], args[1], float(args[2])
    with replay.inside():
        return _distances(x1.unsqueeze(-2) - x2.unsqueeze(-3), p)


def _pdist(replay: Replay, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    args = replay.widen(args)
    _entered(replay, func)
    x, p = args[0], float(args[1] if len(args) > 1 else 2.0)
    first, second = torch.triu_indices(x.shape[0], x.shape[0], 1, device=x.device)
    with replay.inside():
        return _distances(x[first] - x[second], p)


def _euclidean(replay: Replay, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The form |a|² + |b|² - 2ab, whose cancellation the reference itself chose."""
    args = replay.widen(args)
    _entered(replay, func)
    x1, x2 = args[0], args[1]
    with replay.inside():
        left = (x1 * x1).sum(-1, keepdim=True)
        right = (x2 * x2).sum(-1, keepdim=True)
        return (left + right.mT - 2 * torch.matmul(x1, x2.mT)).clamp(min=0.0).sqrt()


def _trilinear(replay: Replay, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    args = replay.widen(args)
    _entered(replay, func)
    i1, i2, i3, expand1, expand2, expand3, sumdim = args[:7]
    for dims, which in ((expand1, 1), (expand2, 2), (expand3, 3)):
        for d in sorted(dims):
            if which == 1:
                i1 = i1.unsqueeze(d)
            elif which == 2:
                i2 = i2.unsqueeze(d)
            else:
                i3 = i3.unsqueeze(d)
    with replay.inside():
        return torch.sum(i1 * i2 * i3, list(sumdim)) if sumdim else i1 * i2 * i3


RULES["aten::_cdist_forward"] = _cdist
RULES["aten::_pdist_forward"] = _pdist
RULES["aten::_euclidean_dist"] = _euclidean
RULES["aten::_trilinear"] = _trilinear
