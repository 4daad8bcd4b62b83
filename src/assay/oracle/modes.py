"""What each arithmetic coarser than the declared one would do to a task's outputs.

Runs in the reference worker and needs no candidate: for each mode the spread that its rounding causes and, where
the mode is a deterministic rounding of operands, the error that it predicts element by element.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch.utils import _pytree as pytree

from assay.oracle.arithmetic import UNIT, Arithmetic, arithmetic_for, is_real_or_complex, round_to
from assay.oracle.evaluate import PRODUCTS, evaluate, replaying
from assay.oracle.reference import (
    Reference,
    copied_inputs,
    copied_module,
    quiet_state,
    task_dtype,
)
from assay.oracle.replay import Replay
from assay.oracle.stacks import NeedsSerial
from assay.oracle.truth import difference

MODE_RUNS = 6
"""Perturbed runs per mode."""
TILES = (0, 16, 32, 64, 128)
"""Keys that a fused attention may take at a time, 0 for all of them."""
MOST_WAYS = 3 + 4 * len(TILES)
"""Ways in which one mode may round."""
FEW_ELEMENTS = 1 << 20
"""Outputs up to which the ways of a fused attention are told apart."""


@dataclasses.dataclass(frozen=True)
class LeafMode:
    """One output leaf under one mode, as real pairs for complex leaves."""

    spread: torch.Tensor
    """Root mean square deviation under the mode's rounding, float64, shape of the truth's spread."""
    pooled: torch.Tensor
    """Its pooled rms, broadcastable."""
    shifts: tuple[torch.Tensor, ...]
    """Predicted errors: the exact run with operands really rounded (each way the mode may round), minus y.
    All operands; or only those that the reference computes itself, as attention its probabilities, which a
    fused kernel rounds before it divides them by their sum; or, of TF32, all of them toward zero. Empty if
    nothing can be predicted."""


@dataclasses.dataclass(frozen=True)
class ModeTruth:
    """What one mode would do to every leaf."""

    mode: str
    """tf32, fp16, bf16 (operands rounded to it), fp16_accumulate, bf16_accumulate, or fast_math."""
    arithmetic: Arithmetic
    """The arithmetic of the mode."""
    leaves: list[LeafMode | None]
    """By leaf of the evaluation; None for leaves that are no floating tensors."""

    def to_parts(self) -> tuple[dict[str, Any], dict[str, torch.Tensor]]:
        """JSON-able fields and tensors; `from_parts` is the inverse."""
        tensors: dict[str, torch.Tensor] = {}
        for i, leaf in enumerate(self.leaves):
            if leaf is not None:
                tensors[f"{i}.spread"] = leaf.spread.contiguous().cpu()
                tensors[f"{i}.pooled"] = leaf.pooled.contiguous().cpu()
                tensors.update({f"{i}.shift.{j}": t.contiguous().cpu() for j, t in enumerate(leaf.shifts)})
        meta = {"mode": self.mode, "arithmetic": self.arithmetic.to_json(), "leaves": len(self.leaves)}
        return meta, tensors

    @classmethod
    def from_parts(cls, meta: dict[str, Any], tensors: dict[str, torch.Tensor]) -> ModeTruth:
        """Rebuild from `to_parts`."""
        leaves: list[LeafMode | None] = []
        for i in range(meta["leaves"]):
            if f"{i}.spread" in tensors:
                shifts = tuple(tensors[f"{i}.shift.{j}"] for j in range(MOST_WAYS) if f"{i}.shift.{j}" in tensors)
                leaves.append(LeafMode(tensors[f"{i}.spread"], tensors[f"{i}.pooled"], shifts))
            else:
                leaves.append(None)
        return cls(meta["mode"], Arithmetic.from_json(meta["arithmetic"]), leaves)


def modes_below(declared: Arithmetic, approximate: bool = False) -> dict[str, Arithmetic]:
    """Modes coarser than `declared`, finest first; with `approximate` that of approximate intrinsics too."""
    found: dict[str, Arithmetic] = {}
    if approximate and not declared.fast_math and declared.accumulate == "fp32":
        found["fast_math"] = dataclasses.replace(declared, fast_math=True)
    current = declared.product_operands
    level = UNIT[current] if current is not None else declared.unit
    if level < UNIT["tf32"]:
        found["tf32"] = dataclasses.replace(declared, matmul="tf32")
    for name in ("fp16", "bf16"):
        if level < UNIT[name]:
            found[name] = dataclasses.replace(declared, operands=name, matmul="ieee")
    for name in ("fp16", "bf16"):
        if declared.unit < UNIT[name]:
            found[f"{name}_accumulate"] = dataclasses.replace(declared, accumulate=name)
    return found


def _ways(name: str, several: bool, attention: bool, thorough: bool) -> list[tuple[str, bool, int | None]]:
    """Format, whether only computed operands take it, and keys at a time in attention, of each way to round."""
    if name.endswith("_accumulate") or name == "fast_math":
        return []
    found: list[tuple[str, bool, int | None]] = [(name, False, None)]
    if several:
        found.append((name, True, None))
    formats = [name, "tf32 truncated"] if name == "tf32" else [name]
    found += [(truncated, False, None) for truncated in formats[1:]]
    if attention:
        tried = formats if thorough else formats[:1]
        found += [(way, computed, tile) for way in tried for tile in TILES for computed in (False, True)]
    return found


def products_in(ops: Mapping[str, int]) -> int:
    """How many products a replay with these operators made."""
    return sum(count for name, count in ops.items() if name in PRODUCTS)


def alternatives(
    module: Reference,
    inputs: Sequence[Any],
    kwargs: Mapping[str, Any] | None = None,
    *,
    arithmetic: Arithmetic | None = None,
    runs: int = MODE_RUNS,
    seed: int = 7,
    approximate: bool = False,
    thorough: bool = True,
    only: str | None = None,
) -> list[ModeTruth]:
    """What each mode coarser than `arithmetic` would do, for `attribute`. Same arguments as `evaluate`.

    `approximate` is for candidates that name approximate intrinsics, which predict no error: that a fault is as
    small as theirs says nothing of a kernel without them. Without `thorough`, few of the ways in which a fused
    attention may round are tried. `only` one mode: how much it grants, and no prediction. A mode that rounds
    operands of products acts on the inputs instead where the reference has no product.
    A mode whose evaluation fails is left out.
    """
    values = (list(inputs), dict(kwargs or {}))
    dtype = task_dtype(module, values)
    declared = arithmetic if arithmetic is not None else arithmetic_for(dtype)

    def plain(
        mode: Arithmetic,
        operands: str | None,
        given: str | None,
        computed: bool = False,
        tile: int | None = None,
    ) -> tuple[Replay, list[Any]]:
        replay = Replay(mode, runs=0, seed=seed, task_dtype=dtype, rounded=operands)
        replay.attention_tile = tile
        own = copied_module(module, replay)
        positional, keywords = copied_inputs(values, replay)
        if computed:
            owner = own if isinstance(own, torch.nn.Module) else getattr(own, "__self__", None)
            held = [*owner.parameters(), *owner.buffers()] if isinstance(owner, torch.nn.Module) else []
            replay.keep_exact([*pytree.tree_leaves((positional, keywords)), *held])
        if given is not None:
            positional, keywords = pytree.tree_map(lambda t: _rounded(t, given), (positional, keywords))
        with quiet_state(), torch.no_grad(), replaying(replay):
            out = own(*positional, **keywords)
        return replay, pytree.tree_leaves(out, is_leaf=lambda v: v is None)

    found: list[ModeTruth] = []
    try:
        exact, y = plain(declared, None, None)
    except (Exception, NeedsSerial):
        return []
    has_products = bool(PRODUCTS & set(exact.ops))
    several = products_in(exact.ops) > 1
    fused = "scaled_dot_product_attention" in exact.ops
    written_out = several and "_softmax" in exact.ops
    attention = (fused or (thorough and written_out)) and sum(
        t.numel() for t in y if isinstance(t, torch.Tensor)) <= FEW_ELEMENTS
    for name, mode in modes_below(declared, approximate).items():
        if (name == "tf32" and not has_products) or only not in (None, name):
            continue
        evaluation = evaluate(module, inputs, kwargs, arithmetic=mode, runs=runs, seed=seed)
        if evaluation.raised is not None or evaluation.replay_error is not None:
            continue
        shifts: list[list[torch.Tensor]] = [[] for _ in y]
        ways = _ways(name, several, attention, thorough)
        # where the reference has no product, the spread of a mode is its prediction
        for way, computed, tile in ways if only is None else ways[: not has_products]:
            try:
                _, moved = plain(mode, way if has_products else None, None if has_products else way, computed, tile)
            except (Exception, NeedsSerial):
                continue
            for own, a, b in zip(shifts, moved, y, strict=True):
                shift = difference(a, b)
                if shift is not None:
                    own.append(shift)
        leaves: list[LeafMode | None] = []
        for truth, predicted in zip(evaluation.leaves, shifts, strict=True):
            if truth.kind not in ("float", "complex"):
                leaves.append(None)
                continue
            spread, pooled = truth.spread, truth.pooled
            if not has_products and predicted:
                # Rounded inputs are no operation of the replay: their effect is the prediction itself.
                level = predicted[0].abs()
                spread = torch.hypot(spread, level)
                pooled = torch.hypot(pooled.expand(spread.shape), level.square().mean().sqrt())
            leaves.append(LeafMode(spread, pooled, tuple(predicted)))
        found.append(ModeTruth(name, mode, leaves))
    return found


def _rounded(value: Any, name: str) -> Any:
    if isinstance(value, torch.Tensor) and is_real_or_complex(value.dtype):
        return round_to(value, name)
    return value
