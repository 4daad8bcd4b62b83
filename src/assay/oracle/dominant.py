"""Which operator contributes most to a tolerance: one more pass, each run perturbing one kind of operator."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch.utils import _pytree as pytree

from assay.oracle.arithmetic import Arithmetic, arithmetic_for
from assay.oracle.evaluate import FP64_GAIN, replaying
from assay.oracle.reference import Reference, copied_inputs, copied_module, quiet_state, task_dtype
from assay.oracle.replay import Replay
from assay.oracle.stacks import NeedsSerial
from assay.oracle.truth import Evaluation

REPEATS = 2
"""Runs per kind of operator."""


def contributions(
    module: Reference,
    inputs: Sequence[Any],
    kwargs: Mapping[str, Any] | None = None,
    *,
    arithmetic: Arithmetic | None = None,
    seed: int = 0,
) -> list[dict[str, float]]:
    """Share of each operator in the squared spread of each output leaf, largest first.

    Shares of one leaf sum to 1. A leaf without spread, and any leaf of a reference that reads rounded values
    back into Python, has an empty dictionary. Same arguments as `evaluate`.
    """
    values = (list(inputs), dict(kwargs or {}))
    dtype = task_dtype(module, values)
    chosen = arithmetic if arithmetic is not None else arithmetic_for(dtype)
    gain = FP64_GAIN if chosen.accumulate == "fp64" else 1.0

    def call(replay: Replay) -> list[Any]:
        own = copied_module(module, replay)
        positional, keywords = copied_inputs(values, replay)
        with quiet_state(), torch.no_grad(), replaying(replay):
            out = own(*positional, **keywords)
        return pytree.tree_leaves(out, is_leaf=lambda v: v is None)

    try:
        first = Replay(chosen, runs=1, seed=seed, task_dtype=dtype, gain=gain)
        leaves = call(first)
        kinds = sorted(first.perturbed)
        if not kinds:
            return [{} for _ in leaves]
        runs = REPEATS * len(kinds)
        replay = Replay(chosen, runs=runs, seed=seed, task_dtype=dtype, gain=gain, only=kinds)
        leaves = call(replay)
    except NeedsSerial:
        return []
    found: list[dict[str, float]] = []
    for leaf in leaves:
        stack = replay.stack(leaf) if isinstance(leaf, torch.Tensor) else None
        if stack is None or not (leaf.is_floating_point() or leaf.is_complex()):
            found.append({})
            continue
        deviation = torch.nan_to_num((stack - leaf).abs(), nan=0.0, posinf=0.0)
        power = deviation.square().reshape(runs, -1).sum(-1)
        by_kind = {kind: float(power[i :: len(kinds)].sum()) for i, kind in enumerate(kinds)}
        total = sum(by_kind.values())
        ranked = sorted(by_kind.items(), key=lambda item: -item[1])
        found.append({kind: value / total for kind, value in ranked} if total > 0.0 else {})
    return found


def with_dominant(evaluation: Evaluation, shares: Sequence[Mapping[str, float]]) -> Evaluation:
    """`evaluation` with `dominant` of each leaf filled in from `contributions`."""
    if len(shares) != len(evaluation.leaves):
        return evaluation
    leaves = [
        dataclasses.replace(leaf, dominant=next(iter(share), None))
        for leaf, share in zip(evaluation.leaves, shares, strict=True)
    ]
    return dataclasses.replace(evaluation, leaves=leaves)
