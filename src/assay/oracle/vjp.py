"""Truths for gradients: the same replay through autograd's vector-Jacobian product in float64."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch.utils import _pytree as pytree

from assay.oracle.arithmetic import Arithmetic, arithmetic_for, is_real_or_complex
from assay.oracle.evaluate import RUNS, replaying, truths, unperturbed
from assay.oracle.reference import Reference, copied_inputs, copied_module, quiet_state, task_dtype
from assay.oracle.replay import Replay
from assay.oracle.truth import LAMBDA, Evaluation, LeafTruth

APART = 2.0**-40
"""Relative distance by which equal inputs are drawn apart: far below any tolerance, far above float64's unit."""
APART_RUNS = 2


def cotangents(outputs: Any, seed: int, kind: str = "normal") -> list[torch.Tensor | None]:
    """Gradients for the leaves of `outputs`, of each leaf's shape, dtype and device.

    Kinds: `normal` (standard normal), `ones`, `zeros`, `one_hot` (1 in one element, chosen by the seed).
    Raises ValueError for another kind.

    None for leaves that are no floating or complex tensors. The numbers depend on `seed`, the position and
    the shape only, so reference and candidate get the same ones.
    """
    found: list[torch.Tensor | None] = []
    for i, leaf in enumerate(pytree.tree_leaves(outputs, is_leaf=lambda v: v is None)):
        if not isinstance(leaf, torch.Tensor) or not is_real_or_complex(leaf.dtype):
            found.append(None)
            continue
        generator = torch.Generator().manual_seed(seed * 1_000_003 + i)
        base = torch.complex64 if leaf.is_complex() else torch.float32
        drawn = _drawn(tuple(leaf.shape), base, generator, kind)
        found.append(drawn.to(dtype=leaf.dtype, device=leaf.device))
    return found


def _drawn(shape: tuple[int, ...], dtype: torch.dtype, generator: torch.Generator, kind: str) -> torch.Tensor:
    if kind == "normal":
        return torch.randn(shape, dtype=dtype, generator=generator)
    if kind == "ones":
        return torch.ones(shape, dtype=dtype)
    made = torch.zeros(shape, dtype=dtype)
    if kind == "one_hot" and made.numel():
        made.view(-1)[int(torch.randint(made.numel(), (), generator=generator))] = 1
    elif kind not in ("zeros", "one_hot"):
        raise ValueError(f"unknown kind of cotangent {kind!r}")
    return made


def gradient_names(
    module: Reference, inputs: Sequence[Any], kwargs: Mapping[str, Any] | None = None
) -> list[str]:
    """What the leaves of `evaluate_vjp` are gradients of: `input N` by leaf, then parameter names."""
    leaves = pytree.tree_leaves((list(inputs), dict(kwargs or {})))
    names = [f"input {i}" for i, t in enumerate(leaves) if _differentiable(t)]
    if isinstance(module, torch.nn.Module):
        names += [name for name, p in module.named_parameters() if p.requires_grad]
    return names


def _differentiable(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and is_real_or_complex(value.dtype)


def evaluate_vjp(
    module: Reference,
    inputs: Sequence[Any],
    kwargs: Mapping[str, Any] | None = None,
    *,
    grad_seed: int = 0,
    grad_kind: str = "normal",
    arithmetic: Arithmetic | None = None,
    runs: int = RUNS,
    seed: int = 0,
    lam: float = LAMBDA,
) -> Evaluation:
    """Truths for the gradients of every floating input and every parameter that requires one.

    The output's gradients are `cotangents(outputs, grad_seed, grad_kind)`. Leaves come in the order of
    `gradient_names`; kind `none` where the reference gives no gradient. A reference without any
    differentiable output yields only such leaves. Where equal inputs leave it open which of them a gradient goes to,
    nothing is decided.
    """
    values = (list(inputs), dict(kwargs or {}))
    dtype = task_dtype(module, values)
    chosen = arithmetic if arithmetic is not None else arithmetic_for(dtype)

    def call(replay: Replay | None, apart: torch.Generator | None = None) -> list[Any]:
        own = copied_module(module, replay)
        positional, keywords = copied_inputs(values, replay)
        targets = [t for t in pytree.tree_leaves((positional, keywords)) if _differentiable(t)]
        if apart is not None:
            for t in {id(t): t for t in targets}.values():
                t.mul_(1.0 + APART * torch.randn(t.shape, generator=apart, dtype=torch.float64).to(t.device))
        for t in targets:
            t.requires_grad_(True)
        if isinstance(own, torch.nn.Module):
            targets += [p for p in own.parameters() if p.requires_grad]
        with torch.enable_grad(), replaying(replay):
            out = pytree.tree_leaves(own(*positional, **keywords), is_leaf=lambda v: v is None)
            native = [t if replay is None else _nominal(t, replay) for t in out]
            pairs = [
                (
                    t,
                    g
                    if replay is None
                    else g.to(t.device, torch.complex128 if t.is_complex() else torch.float64),
                )
                for t, g in zip(out, cotangents(native, grad_seed, grad_kind), strict=True)
                if g is not None and t.requires_grad
            ]
            if not pairs or not targets:
                return [None] * len(targets)
            if replay is not None:
                replay.go_back()
            grads = torch.autograd.grad(
                [t for t, _ in pairs], targets, [g for _, g in pairs], allow_unused=True
            )
        return [None if g is None else g.detach() for g in grads]

    size = sum(t.numel() for t in pytree.tree_leaves(values) if isinstance(t, torch.Tensor))
    if isinstance(module, torch.nn.Module):
        size += sum(t.numel() for t in module.parameters())
    found = truths(call, dtype, chosen, runs=runs, seed=seed, lam=lam, size=3 * size)
    if found.raised is None and any(_may_tie(t) for t in pytree.tree_leaves(values)):
        generator = torch.Generator().manual_seed(seed)
        for _ in range(APART_RUNS):
            replay = Replay(chosen, runs=0, seed=seed, task_dtype=dtype)
            with quiet_state():
                moved = unperturbed(lambda r: call(r, generator), replay, len(found.leaves))
            if moved:
                leaves = [_open(truth, other) for truth, other in zip(found.leaves, moved, strict=True)]
                found = dataclasses.replace(found, leaves=leaves)
    return found


def _may_tie(t: Any) -> bool:
    """Whether elements of a tensor may be equal, or lie where a function has two slopes."""
    if not _differentiable(t) or t.layout != torch.strided or t.numel() == 0:
        return False
    narrow = t.dtype in (torch.float16, torch.bfloat16)
    return narrow or (t.dtype == torch.float32 and int(torch.unique(t.detach()).numel()) < t.numel())


def _open(truth: LeafTruth, other: Any) -> LeafTruth:
    """A gradient's truth without the elements that are another where equal inputs are drawn apart."""
    if not isinstance(other, torch.Tensor) or other.shape != truth.y.shape or not truth.decided.numel():
        return truth
    apart = (other.to(truth.y.device) - truth.y).abs() > truth.tolerance
    return dataclasses.replace(truth, decided=truth.decided & ~apart)


def _nominal(t: Any, replay: Replay) -> Any:
    """A stand-in for an output of the replay, with the dtype it has natively."""
    if not _differentiable(t):
        return t
    return torch.empty((), dtype=replay.nominal(t), device=t.device).expand(t.shape)
