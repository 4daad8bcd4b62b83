"""Operators that move values: exact, and where it pays executed for all perturbed runs at once."""

from __future__ import annotations

from typing import Any

import torch

from assay.oracle.replay import BATCHED, EXACT, Replay, batched_pointwise
from assay.oracle.stacks import tensors_in

_MOVES = """
clone cat stack index index_select gather take embedding constant_pad_nd reflection_pad1d reflection_pad2d
reflection_pad3d replication_pad1d replication_pad2d replication_pad3d _unsafe_view repeat flip roll tril
triu diag_embed index_put _unsafe_index _unsafe_index_put index_copy index_fill masked_scatter scatter
select_scatter slice_scatter diagonal_scatter as_strided_scatter masked_select unfold_copy pixel_shuffle
pixel_unshuffle channel_shuffle contiguous copy lift_fresh lift_fresh_copy max_pool2d_with_indices
max_pool3d_with_indices adaptive_max_pool2d adaptive_max_pool3d fractional_max_pool2d fractional_max_pool3d
max_unpool2d max_unpool3d im2col unsafe_split unsafe_chunk split_with_sizes_copy narrow_copy expand_copy
permute_copy view_copy _reshape_copy block_diag rot90 repeat_interleave one_hot complex polar_exact
unsafe_split_with_sizes _pin_memory _pad_enum resize set_ detach_copy alias_copy diagonal_copy
"""

for _name in _MOVES.split():
    EXACT.add(f"aten::{_name}")
for _name in (
    "broadcast_in_dim",
    "cat",
    "rev",
    "clone",
    "copy_to",
    "view_of",
    "collapse",
    "transpose",
    "device_put",
):
    EXACT.add(f"prims::{_name}")


# Source positions of nearest-neighbour resampling depend on shapes alone: no rounding of data moves them.
for _name in ("upsample_nearest1d", "upsample_nearest2d", "upsample_nearest3d"):
    EXACT.add(f"aten::{_name}")
    EXACT.add(f"aten::_{_name.replace('nearest', 'nearest_exact')}")


def _batched_cat(replay: Replay, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], out: Any) -> Any:
    tensors = args[0]
    dim = args[1] if len(args) > 1 else kwargs.get("dim", 0)
    name = str(func._schema.name).split("::")[1]
    if any(t.dim() != tensors[0].dim() for t in tensors):
        return None
    rank = tensors[0].dim() + (1 if name == "stack" else 0)
    pieces = []
    for t in tensors:
        stack = replay.stack(t)
        pieces.append(t.unsqueeze(0).expand(replay.runs, *t.shape) if stack is None else stack)
    return func(pieces, dim % rank + 1)


def _batched_rows(replay: Replay, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], out: Any) -> Any:
    """index_select and gather with exact indices."""
    x, dim, index = args[0], args[1], args[2]
    stack = replay.stack(x)
    if stack is None or replay.has_stack(index) or x.dim() == 0:
        return None
    if str(func._schema.name).endswith("gather"):
        return torch.gather(stack, dim % x.dim() + 1, index.expand(replay.runs, *index.shape))
    return torch.index_select(stack, dim % x.dim() + 1, index)


def _batched_trailing(
    replay: Replay, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], out: Any
) -> Any:
    """Operators that act on trailing dimensions and accept any number of leading ones."""
    stack = replay.stack(args[0])
    if stack is None or any(replay.has_stack(t) for t in tensors_in(args[1:])):
        return None
    return func(stack, *args[1:], **kwargs)


def _batched_dims_list(
    replay: Replay, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], out: Any
) -> Any:
    x = args[0]
    stack = replay.stack(x)
    if stack is None:
        return None
    return func(stack, [d % x.dim() + 1 for d in args[1]])


def _batched_clone(replay: Replay, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], out: Any) -> Any:
    """A copy in the layout of `out`, whatever that of the original."""
    stack = replay.stack(args[0])
    if stack is None or not out.is_contiguous():
        return batched_pointwise(replay, func, args, kwargs, out)
    versions = torch.empty((replay.runs, *out.shape), dtype=out.dtype, device=out.device)
    for version, source in zip(versions, stack, strict=True):
        version.copy_(source)
    return versions


BATCHED["aten::cat"] = _batched_cat
BATCHED["aten::stack"] = _batched_cat
BATCHED["aten::gather"] = _batched_rows
BATCHED["aten::index_select"] = _batched_rows
for _name in ("tril", "triu", "constant_pad_nd"):
    BATCHED[f"aten::{_name}"] = _batched_trailing
BATCHED["aten::flip"] = _batched_dims_list
BATCHED["aten::clone"] = _batched_clone
for _name in ("_to_copy", "masked_fill", "where"):
    BATCHED[f"aten::{_name}"] = batched_pointwise
