"""Sparse tensors in the replay are dense ones that remember which entries are stored.

What a sparse operator computes is defined by its entries, and the entries that are not stored are zero. So a sparse
input is widened to a dense tensor with a mask of its entries, and the few operators that treat a stored zero unlike
a missing entry are written out with that mask. All others see the dense tensor.
"""

from __future__ import annotations

from typing import Any

import torch

from assay.oracle.replay import EXACT, RULES, Replay


def dense(t: torch.Tensor, replay: Replay, dtype: torch.dtype) -> torch.Tensor:
    """A sparse tensor of any layout as a dense one of `dtype`, its mask of entries known to `replay`."""
    t = t.detach()
    t = t.coalesce() if t.layout == torch.sparse_coo else t
    out = t.to_dense().to(dtype, copy=True)
    ones = t.clone()
    ones.values().fill_(1)
    replay.record(out).entries = ones.to_dense() != 0
    return out


def _entries(replay: Replay, t: torch.Tensor) -> torch.Tensor:
    found = replay.record(t).entries
    return torch.ones(t.shape, dtype=torch.bool, device=t.device) if found is None else found


def sampled_product(
    replay: Replay,
    sampled: torch.Tensor,
    a: torch.Tensor,
    b: torch.Tensor,
    *,
    beta: float = 1.0,
    alpha: float = 1.0,
) -> torch.Tensor:
    """`torch.sparse.sampled_addmm`: beta · sampled + alpha · a @ b at the entries of `sampled` (m, n), else zero."""
    entries = _entries(replay, sampled)
    product = torch.matmul(a, b)
    product = product if alpha == 1.0 else product * alpha
    total = product + (sampled if beta == 1.0 else sampled * beta)
    return torch.where(entries, total, 0.0)


def sparse_product(replay: Replay, a: torch.Tensor, b: torch.Tensor, reduce: str = "sum") -> torch.Tensor:
    """`torch.sparse.mm` of (m, k) with entries and (k, n): by sum, mean, amax or amin over a row's entries."""
    if reduce == "sum":
        return torch.matmul(a, b)
    entries = _entries(replay, a)
    if reduce == "mean":
        return torch.matmul(a, b) / entries.sum(-1, keepdim=True).clamp(min=1)
    terms = a.unsqueeze(-1) * b
    limit = float("-inf") if reduce == "amax" else float("inf")
    terms = torch.where(entries.unsqueeze(-1), terms, limit)
    best = terms.amax(1) if reduce == "amax" else terms.amin(1)
    return torch.where(entries.any(-1, keepdim=True), best, 0.0)


def _same(replay: Replay, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Another layout of the same entries."""
    replay.note(func)
    return replay.run(torch.ops.aten.clone.default, (args[0],), {})


for _name in ("to_sparse", "to_sparse_csr", "to_sparse_csc", "to_sparse_bsr", "to_sparse_bsc", "to_dense"):
    for _form in (f"aten::{_name}", f"aten::_{_name}"):
        RULES[_form] = _same
        EXACT.add(_form)
