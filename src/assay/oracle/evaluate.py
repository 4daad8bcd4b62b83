"""Evaluate a reference: natively, in float64, and perturbed; and turn the deviations into truths."""

from __future__ import annotations

import contextlib
import dataclasses
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch.utils import _pytree as pytree

from assay.oracle.arithmetic import Arithmetic, arithmetic_for, is_real_or_complex
from assay.oracle.deviations import Deviation, add_expected, add_runs, as_tensor, no_deviation
from assay.oracle.leaves import ExactLeaf, leaf_truth, undecided_truth
from assay.oracle.reference import (
    Reference,
    copied_inputs,
    copied_module,
    quiet_state,
    same_random_stream,
    task_dtype,
)
from assay.oracle.replay import Replay
from assay.oracle.stacks import NeedsSerial
from assay.oracle.summation import grid_step
from assay.oracle.surface import Surface
from assay.oracle.truth import LAMBDA, POOLED, ErrorText, Evaluation, difference

RUNS = 12
"""Perturbed runs per evaluation."""
WIDE_RUNS = 10
"""Runs at the full width of the tolerance, made only where the reference compares or rounds to integers."""
WIDE = 1.0 + POOLED
"""That width in units of λ times the spread."""
PRODUCTS = {"mm", "bmm", "mv", "dot", "vdot", "convolution", "_convolution", "convolution_backward"}
"""Operators whose operands a mode may round."""
MEMORY = 2 << 30
"""Bytes that the stacks of one pass may take, estimated from inputs, parameters and outputs."""
FP64_GAIN = 2.0**13
"""Perturbations of one fp64 rounding would drown in the replay's own; they are enlarged by this factor."""
Call = Callable[[Replay | None], list[Any]]
"""Runs the reference once, under a replay or natively, and returns the leaves of its output."""


def evaluate(
    module: Reference,
    inputs: Sequence[Any],
    kwargs: Mapping[str, Any] | None = None,
    *,
    arithmetic: Arithmetic | None = None,
    runs: int = RUNS,
    seed: int = 0,
    lam: float = LAMBDA,
) -> Evaluation:
    """Truths for `module(*inputs, **kwargs)`, with a tolerance per element derived from `arithmetic`.

    `inputs` and `kwargs` are nested structures of tensors and other values at the task's native dtype.
    `arithmetic` defaults to `arithmetic_for` of the most common floating input dtype. `seed` selects the
    perturbations; the reference itself draws from the current generators, whose state is restored, as are
    global flags. The module and the inputs are not changed. A reference that raises gives `raised`.
    """
    named = dict(kwargs or {})
    values = (list(inputs), named)
    dtype = task_dtype(module, values)
    chosen = arithmetic if arithmetic is not None else arithmetic_for(dtype)

    def call(replay: Replay | None) -> list[Any]:
        own = copied_module(module, replay)
        positional, keywords = copied_inputs(values, replay)
        with torch.no_grad(), replaying(replay):
            out = own(*positional, **keywords)
        return pytree.tree_leaves(out, is_leaf=lambda v: v is None)

    size = sum(t.numel() for t in pytree.tree_leaves(values) if isinstance(t, torch.Tensor))
    if isinstance(module, torch.nn.Module):
        size += sum(t.numel() for t in [*module.parameters(), *module.buffers()])
    grid = on_grid(module, values)
    return truths(call, dtype, chosen, runs=runs, seed=seed, lam=lam, size=size, grid=grid)


@contextlib.contextmanager
def replaying(replay: Replay | None) -> Iterator[None]:
    """The modes of a replay; nothing for a native run."""
    if replay is None:
        yield
        return
    fast = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        with Surface(replay), replay:
            yield
    finally:
        torch.backends.mha.set_fastpath_enabled(fast)


def on_grid(module: Reference, values: Any) -> bool:
    """Whether all floating inputs and parameters are multiples of one power of two, and small.

    Only then can partial results be exactly representable in any order of summation.
    """
    tensors = [t for t in pytree.tree_leaves(values) if isinstance(t, torch.Tensor)]
    if isinstance(module, torch.nn.Module):
        tensors += [*module.parameters(), *module.buffers()]
    strided = [t for t in tensors if t.layout == torch.strided]
    floating = [t.detach() for t in strided if t.dtype.is_floating_point and t.numel()]
    for t in floating:
        sample = t.reshape(-1)[:64].double()
        if not bool((sample * 2.0**24 == (sample * 2.0**24).round()).all()):
            return False
    return bool(floating) and all(grid_step(t.double()) > 0.0 for t in floating)


def truths(
    call: Call,
    dtype: torch.dtype,
    arithmetic: Arithmetic,
    *,
    runs: int,
    seed: int,
    lam: float,
    size: int,
    grid: bool = False,
) -> Evaluation:
    """Native run, exact run and perturbed runs of `call`, as an `Evaluation`."""
    start = time.perf_counter()
    with quiet_state():
        try:
            with same_random_stream():
                native = call(None)
        except Exception as error:
            return Evaluation([], _text(error), (), {}, False, time.perf_counter() - start, arithmetic)
        size += sum(t.numel() for t in native if isinstance(t, torch.Tensor))
        group = max(1, min(runs, _memory(native) // max(1, 8 * 4 * size)))
        base = FP64_GAIN if arithmetic.accumulate == "fp64" else 1.0
        try:
            first, exact, deviations = _passes(call, dtype, arithmetic, runs, group, seed, base, grid)
            wide = None
            if first.jumped and runs:
                # Honest error reaches the tolerance's width, and a comparison may turn anywhere on the way.
                _, _, wide = _passes(
                    call, dtype, arithmetic, WIDE_RUNS, group, seed + 1, base * lam * WIDE, grid
                )
            _check_structure(native, exact)
        except Exception as error:
            leaves = [undecided_truth(value, arithmetic, lam) for value in native]
            seconds = time.perf_counter() - start
            return Evaluation(leaves, None, ("replay",), {}, False, seconds, arithmetic, _text(error))
        shifts = _truncated(call, dtype, arithmetic, seed, first, exact) if runs else {}
    leaves = []
    for i, (value, leaf) in enumerate(zip(native, exact, strict=True)):
        amplified = None if wide is None else wide[i]
        exactly = grid and not first.inexact and runs > 0
        truth = leaf_truth(value, leaf, deviations[i], amplified, arithmetic, lam, exactly)
        if i in shifts:
            truth = dataclasses.replace(truth, spread=truth.spread + shifts[i].abs() / lam)
        leaves.append(truth)
    return Evaluation(
        leaves=leaves,
        raised=None,
        unmodelled=tuple(sorted(first.unmodelled)),
        ops=dict(first.ops),
        random=first.random,
        seconds=time.perf_counter() - start,
        arithmetic=arithmetic,
    )


def _truncated(
    call: Call, dtype: torch.dtype, arithmetic: Arithmetic, seed: int, first: Replay, exact: list[ExactLeaf]
) -> dict[int, torch.Tensor]:
    """By leaf, what TF32 moves where operands are cut off rather than rounded, as tensor cores do.

    Every operand then errs towards zero, so that where an exponential follows, as in attention, errors do not average
    out as independent ones would.
    """
    if arithmetic.product_operands != "tf32" or not PRODUCTS & set(first.ops):
        return {}
    replay = Replay(arithmetic, runs=0, seed=seed, task_dtype=dtype, rounded="tf32 truncated")
    values = unperturbed(call, replay, len(exact))
    found = {i: difference(value, leaf.value) for i, (value, leaf) in enumerate(zip(values, exact, strict=False))}
    return {i: shift for i, shift in found.items() if shift is not None}


def unperturbed(call: Call, replay: Replay, count: int) -> list[Any]:
    """The `count` values of one run of `call` without perturbations, as a variation of the exact one; none if it fails.

    What takes another way through the reference there, as by a branch on a product, predicts nothing.
    """
    try:
        with same_random_stream():
            values = call(replay)
    except (Exception, NeedsSerial):
        return []
    return values if len(values) == count else []


def _memory(native: list[Any]) -> int:
    """Bytes that the stacks of one pass may take on the device where the reference runs."""
    for value in native:
        if isinstance(value, torch.Tensor) and value.is_cuda:
            free, _ = torch.cuda.mem_get_info(value.device)
            return max(MEMORY, int(free) // 3)
    return MEMORY


def warm_up() -> None:
    """Do what the first evaluation of a process would do once: import the decompositions, draw the noise.

    Takes seconds; meant for a parent process from which workers are forked. Touches no accelerator.
    """
    evaluate(torch.nn.functional.softmax, [torch.ones(2, 2)], {"dim": -1})


def _text(error: BaseException) -> ErrorText:
    kind = type(error)
    return ErrorText(f"{kind.__module__}.{kind.__qualname__}".removeprefix("builtins."), str(error))


def _check_structure(native: list[Any], exact: list[ExactLeaf]) -> None:
    shapes = [tuple(v.shape) if isinstance(v, torch.Tensor) else type(v).__name__ for v in native]
    other = [
        tuple(v.value.shape) if isinstance(v.value, torch.Tensor) else type(v.value).__name__ for v in exact
    ]
    if shapes != other:
        raise RuntimeError(f"the float64 replay returns {other} where the reference returns {shapes}")


def _passes(
    call: Call,
    dtype: torch.dtype,
    arithmetic: Arithmetic,
    runs: int,
    group: int,
    seed: int,
    gain: float,
    grid: bool,
) -> tuple[Replay, list[ExactLeaf], list[Deviation | None]]:
    """Exact leaves and the deviations of `runs` perturbed runs, `group` of them at a time."""
    first: Replay | None = None
    exact: list[ExactLeaf] = []
    deviations: list[Deviation | None] = []
    done = 0
    try:
        while first is None or done < runs:
            count = min(group, runs - done)
            replay = Replay(
                arithmetic, runs=count, seed=seed + 1000 * done, task_dtype=dtype, gain=gain, grid=grid
            )
            with same_random_stream():
                values = call(replay)
            if first is None:
                first, exact = replay, [_collect(replay, v) for v in values]
                deviations = [no_deviation(leaf.value) for leaf in exact]
            for leaf, value, total in zip(exact, values, deviations, strict=True):
                if total is not None and isinstance(value, torch.Tensor):
                    source = _before_cast(replay, value)
                    expected = None if first.jumped else replay.expected(source)
                    if expected is not None:
                        add_expected(total, expected, count, gain)
                    else:
                        add_runs(total, leaf.value, replay.stack(source), count, gain, first.jumped)
            done += max(1, count)
    except NeedsSerial:
        return _serial_passes(call, dtype, arithmetic, runs, seed, gain)
    return first, exact, deviations


def _serial_passes(
    call: Call, dtype: torch.dtype, arithmetic: Arithmetic, runs: int, seed: int, gain: float
) -> tuple[Replay, list[ExactLeaf], list[Deviation | None]]:
    first = Replay(arithmetic, runs=0, seed=seed, task_dtype=dtype)
    with same_random_stream():
        values = call(first)
    exact = [_collect(first, v) for v in values]
    deviations = [no_deviation(leaf.value) for leaf in exact]
    for i in range(runs):
        replay = Replay(arithmetic, runs=1, serial=True, seed=seed + i, task_dtype=dtype, gain=gain)
        with same_random_stream():
            values = call(replay)
        first.jumped = first.jumped or replay.jumped
        first.unmodelled |= replay.unmodelled
        if len(values) != len(exact):
            raise RuntimeError("the number of outputs depends on rounded values")
        for leaf, value, total in zip(exact, values, deviations, strict=True):
            if total is None:
                continue
            other = as_tensor(value)
            if other is None or other.shape != as_tensor(leaf.value).shape:  # type: ignore[union-attr]
                total.changed.fill_(True)
            else:
                add_runs(total, leaf.value, other.unsqueeze(0), 1, gain, replay.jumped)
    return first, exact, deviations


def _before_cast(replay: Replay, value: torch.Tensor) -> torch.Tensor:
    """An output before its last cast, if it ends with one: the output dtype accounts for that."""
    found = replay.table.get(value.untyped_storage()._cdata)
    if found is not None and found.unrounded is not None:
        before = found.unrounded
        if value.shape == before.shape and value.stride() == before.stride():
            return before
    return value


def _collect(replay: Replay, value: Any) -> ExactLeaf:
    if not isinstance(value, torch.Tensor):
        return ExactLeaf(value)
    ranking = None
    found = replay.table.get(value.untyped_storage()._cdata)
    if found is not None and found.ranking is not None and not is_real_or_complex(value.dtype):
        count = value.untyped_storage().nbytes() // value.element_size()
        if found.ranking.shape.numel() == count:
            # Which element of the operator's own result each element of this view is.
            places = torch.arange(count, device=value.device)
            ranking = (
                found.ranking,
                places.as_strided(value.shape, value.stride(), value.storage_offset()).clone(),
            )
    return ExactLeaf(value.detach().clone(), ranking)
