"""Private copies of a reference and its inputs, and the global state around a run of it."""

from __future__ import annotations

import contextlib
import copy
import sys
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch.utils import _pytree as pytree

from assay.oracle.arithmetic import is_real_or_complex, wide_dtype
from assay.oracle.replay import Replay
from assay.oracle.rules_sparse import dense

Reference = Callable[..., Any]
"""A module or a function."""


def task_dtype(module: Reference, inputs: Any) -> torch.dtype:
    """Most common floating dtype of the tensor inputs, else of the parameters, else the default dtype."""
    leaves = [t for t in pytree.tree_leaves(inputs) if isinstance(t, torch.Tensor)]
    counts = Counter(t.dtype for t in leaves if t.dtype.is_floating_point)
    if not counts and isinstance(module, torch.nn.Module):
        counts = Counter(p.dtype for p in module.parameters() if p.dtype.is_floating_point)
    if not counts:
        counts = Counter(t.real.dtype for t in leaves if t.dtype.is_complex)
    return counts.most_common(1)[0][0] if counts else torch.get_default_dtype()


def copied_inputs(values: Any, replay: Replay | None) -> Any:
    """Copies of nested inputs, wide and known to `replay` if one is given; equal tensors stay one tensor."""
    memo: dict[int, torch.Tensor] = {}

    def one(value: Any) -> Any:
        if not isinstance(value, torch.Tensor):
            return value
        if id(value) not in memo:
            source = value.detach()
            memo[id(value)] = source.clone() if replay is None else _wide(source, replay)
        return memo[id(value)]

    return pytree.tree_map(one, values)


def _wide(t: torch.Tensor, replay: Replay) -> torch.Tensor:
    wide = dense(t, replay, wide_dtype(t.dtype)) if t.layout != torch.strided else t.to(wide_dtype(t.dtype), copy=True)
    if is_real_or_complex(t.dtype):
        replay.set_nominal(wide, t.dtype)
    return wide


def copied_module(module: Reference, replay: Replay | None) -> Reference:
    """Deep copy of a module or of the module a bound method belongs to; wide if `replay` is given.

    Plain functions are returned as they are: narrow tensors they close over are widened when used.
    """
    own = copy.deepcopy(module)
    owner = own if isinstance(own, torch.nn.Module) else getattr(own, "__self__", None)
    if replay is not None and isinstance(owner, torch.nn.Module):
        for tensor in [*owner.parameters(), *owner.buffers()]:
            if is_real_or_complex(tensor.dtype):
                wide = _wide(tensor.detach(), replay)
                tensor.data = wide
                if tensor.grad is not None:
                    tensor.grad = None
    return own


def _cuda_in_use() -> bool:
    return bool(torch.cuda.is_available() and torch.cuda.is_initialized())  # type: ignore[no-untyped-call]


def _deterministic(mode: bool, warn_only: bool) -> None:
    """As `torch.use_deterministic_algorithms`, which imports the compiler to tell it: seconds of each first truth."""
    direct = getattr(torch._C, "_set_deterministic_algorithms", None)
    if direct is None or "torch._inductor.config" in sys.modules:
        torch.use_deterministic_algorithms(mode, warn_only=warn_only)
    else:
        direct(mode, warn_only=warn_only)


@contextlib.contextmanager
def quiet_state() -> Iterator[None]:
    """IEEE products and deterministic algorithms inside; every global flag and generator restored after."""
    cpu = torch.random.get_rng_state()
    gpu = torch.cuda.get_rng_state_all() if _cuda_in_use() else []
    matmul = torch.backends.cuda.matmul
    saved: list[tuple[Any, str, Any]] = []
    wanted: Sequence[tuple[Any, str, Any]] = (
        (matmul, "allow_tf32", False),
        (matmul, "allow_bf16_reduced_precision_reduction", False),
        (matmul, "allow_fp16_reduced_precision_reduction", False),
    )
    deterministic = torch.are_deterministic_algorithms_enabled()
    warn_only = torch.is_deterministic_algorithms_warn_only_enabled()
    fill = torch.utils.deterministic.fill_uninitialized_memory  # type: ignore[attr-defined]
    cudnn = torch.backends.cudnn.flags(
        enabled=torch.backends.cudnn.enabled, benchmark=False, deterministic=True, allow_tf32=False
    )
    with warnings.catch_warnings(), cudnn:
        warnings.simplefilter("ignore")
        try:
            for owner, name, value in wanted:
                saved.append((owner, name, getattr(owner, name)))
                setattr(owner, name, value)
            torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]
            _deterministic(True, warn_only=True)
            yield
        finally:
            for owner, name, value in reversed(saved):
                setattr(owner, name, value)
            _deterministic(deterministic, warn_only)
            torch.utils.deterministic.fill_uninitialized_memory = fill  # type: ignore[attr-defined]
            torch.random.set_rng_state(cpu)
            if gpu:
                torch.cuda.set_rng_state_all(gpu)


@contextlib.contextmanager
def same_random_stream() -> Iterator[None]:
    """Generators are put back after the block, so that the next run draws the same numbers."""
    cpu = torch.random.get_rng_state()
    gpu = torch.cuda.get_rng_state_all() if _cuda_in_use() else []
    try:
        yield
    finally:
        torch.random.set_rng_state(cpu)
        if gpu:
            torch.cuda.set_rng_state_all(gpu)
