"""Evaluate a reference: natively, in float64, and perturbed; and turn the deviations into truths."""

from __future__ import annotations

import contextlib
import dataclasses
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch.utils import _pytree as pytree

from assay.oracle.arithmetic import (
    FORMAT,
    SMALLEST,
    UNIT,
    Arithmetic,
    arithmetic_for,
    is_real_or_complex,
    wide_dtype,
)
from assay.oracle.compare import excess
from assay.oracle.reference import (
    Reference,
    copied_inputs,
    copied_module,
    quiet_state,
    same_random_stream,
    task_dtype,
)
from assay.oracle.replay import NeedsSerial, Ranking, Replay, nominal_unit
from assay.oracle.rules_reduce import grid_step, rows_of
from assay.oracle.surface import Surface
from assay.oracle.truth import (
    LAMBDA,
    POOLED,
    ErrorText,
    Evaluation,
    IndexTruth,
    Kind,
    LeafTruth,
    all_finite,
    classes,
    pool,
)

RUNS = 12
"""Perturbed runs per evaluation."""
WIDE_RUNS = 10
"""Runs at the full width of the tolerance, made only where the reference compares or rounds to integers."""
WIDE = 1.0 + POOLED
"""That width in units of λ times the spread."""
MEMORY = 2 << 30
"""Bytes that the stacks of one pass may take, estimated from inputs, parameters and outputs."""
PIECE = 1 << 14
"""Numbers of a result whose deviations are added up while they stay in a processor's cache."""
FP64_GAIN = 2.0**13
"""Perturbations of one fp64 rounding would drown in the replay's own; they are enlarged by this factor."""

Call = Callable[[Replay | None], list[Any]]
"""Runs the reference once, under a replay or natively, and returns the leaves of its output."""


@dataclasses.dataclass
class _Deviation:
    """Squared deviations of one leaf over the perturbed runs."""

    square: torch.Tensor
    changed: torch.Tensor
    runs: int = 0
    sizes: list[torch.Tensor] = dataclasses.field(default_factory=list)
    """Absolute deviations run by run, kept only where results may jump."""

    @property
    def spread(self) -> torch.Tensor:
        return (self.square / max(1, self.runs)).sqrt()


@dataclasses.dataclass
class _Leaf:
    """One leaf of the exact run, and what its storage knew."""

    value: Any
    ranking: tuple[Ranking, torch.Tensor] | None = None


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
            leaves = [_undecided(value, arithmetic, lam) for value in native]
            seconds = time.perf_counter() - start
            return Evaluation(leaves, None, ("replay",), {}, False, seconds, arithmetic, _text(error))
    leaves = []
    for i, (value, leaf) in enumerate(zip(native, exact, strict=True)):
        amplified = None if wide is None else wide[i]
        exactly = grid and not first.inexact and runs > 0
        leaves.append(_leaf_truth(value, leaf, deviations[i], amplified, arithmetic, lam, exactly))
    return Evaluation(
        leaves=leaves,
        raised=None,
        unmodelled=tuple(sorted(first.unmodelled)),
        ops=dict(first.ops),
        random=first.random,
        seconds=time.perf_counter() - start,
        arithmetic=arithmetic,
    )


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


def _check_structure(native: list[Any], exact: list[_Leaf]) -> None:
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
) -> tuple[Replay, list[_Leaf], list[_Deviation | None]]:
    """Exact leaves and the deviations of `runs` perturbed runs, `group` of them at a time."""
    first: Replay | None = None
    exact: list[_Leaf] = []
    deviations: list[_Deviation | None] = []
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
                deviations = [_nothing(leaf.value) for leaf in exact]
            for leaf, value, total in zip(exact, values, deviations, strict=True):
                if total is not None and isinstance(value, torch.Tensor):
                    _add(total, leaf.value, _versions(replay, value), count, gain, first.jumped)
            done += max(1, count)
    except NeedsSerial:
        return _serial_passes(call, dtype, arithmetic, runs, seed, gain)
    return first, exact, deviations


def _serial_passes(
    call: Call, dtype: torch.dtype, arithmetic: Arithmetic, runs: int, seed: int, gain: float
) -> tuple[Replay, list[_Leaf], list[_Deviation | None]]:
    first = Replay(arithmetic, runs=0, seed=seed, task_dtype=dtype)
    with same_random_stream():
        values = call(first)
    exact = [_collect(first, v) for v in values]
    deviations = [_nothing(leaf.value) for leaf in exact]
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
            other = _as_tensor(value)
            if other is None or other.shape != _as_tensor(leaf.value).shape:  # type: ignore[union-attr]
                total.changed.fill_(True)
            else:
                _add(total, leaf.value, other.unsqueeze(0), 1, gain, replay.jumped)
    return first, exact, deviations


def _as_tensor(value: Any) -> torch.Tensor | None:
    if isinstance(value, torch.Tensor):
        return value if value.layout == torch.strided else value.to_dense()
    if isinstance(value, bool | int | float | complex):
        return torch.tensor(value, dtype=torch.float64 if isinstance(value, float) else None)
    return None


def _versions(replay: Replay, value: torch.Tensor) -> torch.Tensor | None:
    """Perturbed versions of an output, without a last cast, which the output dtype accounts for."""
    found = replay.table.get(value.untyped_storage()._cdata)
    if found is not None and found.unrounded is not None and value.numel() == found.unrounded.numel():
        before = found.unrounded
        if value.shape == before.shape and value.stride() == before.stride():
            return replay.stack(before)
    return replay.stack(value)


def _collect(replay: Replay, value: Any) -> _Leaf:
    if not isinstance(value, torch.Tensor):
        return _Leaf(value)
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
    return _Leaf(value.detach().clone(), ranking)


def _nothing(value: Any) -> _Deviation | None:
    tensor = _as_tensor(value)
    if tensor is None:
        return None
    shape = (*tensor.shape, 2) if tensor.is_complex() else tuple(tensor.shape)
    zeros = torch.zeros(shape, dtype=torch.float64, device=tensor.device)
    return _Deviation(zeros, torch.zeros(shape, dtype=torch.bool, device=tensor.device))


def _add(
    total: _Deviation, value: Any, versions: torch.Tensor | None, count: int, gain: float, keep: bool
) -> None:
    total.runs += count
    if versions is None:
        return
    exact = _as_tensor(value)
    assert exact is not None
    if not is_real_or_complex(exact.dtype):
        total.changed |= (versions != exact).any(0)
        return
    if exact.is_complex():
        versions, exact = (
            torch.view_as_real(versions.resolve_conj()),
            torch.view_as_real(exact.resolve_conj()),
        )
    square = _squares(versions, exact)
    if not all_finite(square):
        total.changed |= (classes(versions) != classes(exact)).any(0)
        finite = torch.nan_to_num(versions - exact, nan=0.0, posinf=0.0, neginf=0.0)
        square = finite.square().sum(0)
    total.square += square / gain**2
    if keep:
        sizes = torch.nan_to_num(versions - exact, nan=0.0, posinf=0.0, neginf=0.0)
        total.sizes.append(sizes.abs() / gain)


def _squares(versions: torch.Tensor, exact: torch.Tensor) -> torch.Tensor:
    """Sum over the runs of the squared deviations, shape of `exact`.

    Run by run, and large results piece by piece: a temporary as large as the stack, or as one run, would cost
    more than the arithmetic.
    """
    square = torch.zeros_like(exact, memory_format=torch.contiguous_format)
    n = exact.numel()
    if n <= PIECE or not (exact.is_contiguous() and versions.is_contiguous()):
        for version in versions:
            deviation = version - exact
            square.addcmul_(deviation, deviation)
        return square
    flat, rows, sums = exact.view(-1), versions.view(versions.shape[0], n), square.view(-1)
    scratch = torch.empty(PIECE, dtype=exact.dtype, device=exact.device)
    for lo in range(0, n, PIECE):
        hi = min(n, lo + PIECE)
        deviation, piece, part = scratch[: hi - lo], flat[lo:hi], sums[lo:hi]
        for row in rows:
            torch.sub(row[lo:hi], piece, out=deviation)
            part.addcmul_(deviation, deviation)
    return square


def _kind(value: Any) -> Kind:
    if isinstance(value, torch.Tensor):
        if value.is_complex():
            return "complex"
        if value.is_floating_point():
            return "float"
        return "bool" if value.dtype == torch.bool else "int"
    return "scalar" if isinstance(value, bool | int | float | complex) else "none"


def _output_format(value: Any, arithmetic: Arithmetic) -> str:
    """Format to which the output is rounded; a Python number counts as one of the accumulation format."""
    if isinstance(value, torch.Tensor):
        return FORMAT.get(value.dtype, "fp64")
    return arithmetic.accumulate


def _leaf_truth(
    native: Any,
    leaf: _Leaf,
    deviation: _Deviation | None,
    wide: _Deviation | None,
    arithmetic: Arithmetic,
    lam: float,
    exactly: bool,
) -> LeafTruth:
    kind = _kind(native)
    if deviation is None:
        return _empty(native)
    value, y = _as_tensor(native), _as_tensor(leaf.value)
    assert value is not None
    assert y is not None
    value = value.detach().resolve_conj().resolve_neg()
    y = y.detach().resolve_conj().resolve_neg()
    if is_real_or_complex(y.dtype):
        y = y.to(wide_dtype(y.dtype))
    form = _output_format(native, arithmetic)
    integral = kind in ("int", "bool") or (kind == "scalar" and not is_real_or_complex(y.dtype))
    unstable = deviation.changed
    if wide is not None:
        unstable = unstable | wide.changed
        if not integral:
            unstable = unstable | _jumps(deviation, wide, lam)
    spread = deviation.spread
    pooled = pool(spread, ~unstable)
    if kind == "complex":
        unstable = unstable.any(-1)
    exactly = exactly and (integral or bool((y == y.to(value.dtype).to(y.dtype)).all()))
    truth = LeafTruth(
        kind=kind,
        dtype=str(value.dtype) if isinstance(native, torch.Tensor) else type(native).__name__,
        native=value,
        y=y,
        spread=spread,
        pooled=pooled,
        decided=torch.ones(y.shape, dtype=torch.bool, device=y.device),
        unit=0.0 if integral else UNIT[form],
        floor=0.0 if integral else SMALLEST[form],
        lam=lam,
        index=_index_truth(leaf, lam) if kind == "int" else None,
        exact=exactly and not integral,
    )
    if truth.index is not None:
        # Ties are settled by the keys, not by which of them the runs chose.
        unstable = torch.zeros_like(unstable)
    wrong = excess(truth, value)
    return dataclasses.replace(truth, decided=~(unstable | wrong))


def _jumps(narrow: _Deviation, wide: _Deviation, lam: float) -> torch.Tensor:
    """Where a result does not follow its perturbation in proportion, as at a branch or a floor.

    Deviations are already divided by their gain, so a smooth result has equal spreads in both passes. A jump
    shows only in the wide pass; or in few of the runs; or in half of them in both passes, and then relatively
    less in the wide one, while most of the other elements spread far less.
    """
    near, far = narrow.spread, wide.spread
    # A smooth result that responds with the square of the perturbation reaches a few times its spread.
    jump = far > lam**2 * (near + POOLED * pool(near))
    if near.numel():
        jump = jump | ((far < 0.3 * near) & (near > 30.0 * near.median()))
    if narrow.sizes:
        jump = jump | (near > 30.0 * torch.cat(narrow.sizes).median(0).values)
    return jump


def _empty(native: Any) -> LeafTruth:
    nothing = torch.zeros(0, dtype=torch.float64)
    return LeafTruth(
        kind="none",
        dtype=type(native).__name__,
        native=nothing,
        y=nothing,
        spread=nothing,
        pooled=torch.zeros((), dtype=torch.float64),
        decided=torch.zeros(0, dtype=torch.bool),
        unit=0.0,
        floor=0.0,
    )


def _undecided(native: Any, arithmetic: Arithmetic, lam: float) -> LeafTruth:
    """Truth of a leaf whose replay failed: the native value, and nothing decided."""
    value = _as_tensor(native)
    if value is None:
        return _empty(native)
    deviation = _nothing(value)
    assert deviation is not None
    truth = _leaf_truth(native, _Leaf(value), deviation, None, arithmetic, lam, False)
    return dataclasses.replace(truth, decided=torch.zeros_like(truth.decided))


def _index_truth(leaf: _Leaf, lam: float) -> IndexTruth | None:
    if leaf.ranking is None:
        return None
    ranking, places = leaf.ranking
    dim = ranking.dim
    n = ranking.keys.shape[dim]
    keys = rows_of(ranking.keys, [dim]).reshape(-1, n)
    tolerance = torch.zeros((keys.shape[0], 1), dtype=torch.float64, device=keys.device)
    if ranking.stack is not None:
        stack = rows_of(ranking.stack, [dim + 1]).reshape(ranking.stack.shape[0], -1, n)
        deviation = torch.nan_to_num(stack - keys, nan=0.0, posinf=0.0, neginf=0.0)
        spread = deviation.square().mean(0).sqrt()
        magnitude = torch.nan_to_num(keys.abs(), nan=0.0, posinf=0.0)
        tolerance = lam * (spread + POOLED * pool(spread)) + nominal_unit(ranking.nominal) * magnitude
    # Split the place in the index tensor into the row of keys and the slot along the ranked dimension.
    kept = ranking.shape
    inner = math.prod(kept[dim + 1 :])
    slots = kept[dim]
    row = places.div(inner * slots, rounding_mode="floor") * inner + places % inner
    slot = places.div(inner, rounding_mode="floor") % slots
    return IndexTruth(
        keys=keys,
        tolerance=tolerance,
        row=row,
        slot=slot,
        rule="first" if ranking.first else "any",
        distinct=slots > 1,
        descending=ranking.descending,
    )
