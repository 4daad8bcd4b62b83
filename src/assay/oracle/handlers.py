"""Which handler serves which operator, and the handlers that are no rounding model themselves.

Order: views, registered rules, in-place and out= forms, exact operators, random ones, factories,
decompositions, other pointwise operators as library functions, and last the conservative rule, which names
the operator in `Replay.unmodelled`.
"""

from __future__ import annotations

from typing import Any

import torch
from torch._decomp import decomposition_table

from assay.oracle import (
    rules_activation,
    rules_attention,
    rules_bins,
    rules_copy,
    rules_distance,
    rules_factory,
    rules_linalg,
    rules_norm,
    rules_pointwise,
    rules_product,
    rules_random,
    rules_rank,
    rules_read,
    rules_reduce,
    rules_shape,
    rules_softmax,
    rules_sparse,
    rules_window,
)
from assay.oracle.arithmetic import is_real_or_complex, wide_dtypes
from assay.oracle.replay import EXACT, JUMPS, RULES, UNROUNDED, Replay, Rule
from assay.oracle.rules_copy import write
from assay.oracle.rules_factory import factory
from assay.oracle.rules_random import RANDOM, draw
from assay.oracle.stacks import map_tensors, tensors_in

REGISTERED = (
    rules_activation,
    rules_attention,
    rules_bins,
    rules_copy,
    rules_distance,
    rules_factory,
    rules_linalg,
    rules_norm,
    rules_pointwise,
    rules_product,
    rules_random,
    rules_rank,
    rules_read,
    rules_reduce,
    rules_shape,
    rules_softmax,
    rules_sparse,
    rules_window,
)
"""Modules whose import fills the registries."""
PRIMS = frozenset(
    """
    abs acos acosh add asin asinh atan atan2 atanh bitwise_and bitwise_not bitwise_or bitwise_xor ceil
    cos cosh digamma div eq erf erfc exp exp2 expm1 floor fmax fmin fmod ge gt hypot isfinite le lgamma
    log log10 log1p log2 lt maximum minimum mul ne neg nextafter pow reciprocal remainder round rsqrt
    sign signbit sin sinh sqrt sub tan tanh trunc where conj_physical
    """.split()  # noqa: SIM905
)
"""Primitives that are executed, and modelled, as the aten operator of the same name."""


def resolve(func: Any) -> Rule:
    """Handler for one operator overload."""
    schema = func._schema
    name = schema.name
    if name in RULES and (name.endswith("_") or not schema.is_mutable):
        return RULES[name]
    if name.startswith("prims::") and hasattr(torch.ops.aten, name[7:]) and name[7:] in PRIMS:
        return _prim
    if name in RANDOM:
        return draw
    if func.is_view or torch.Tag.inplace_view in func.tags:
        return _view
    if schema.is_mutable and not (func in decomposition_table and not _writes_first(schema)):
        return write
    if name in EXACT:
        return _exact
    if not any("Tensor" in str(a.type) for a in schema.arguments):
        return factory
    if func in decomposition_table:
        return _decomposed
    if func._can_decompose() if hasattr(func, "_can_decompose") else False:
        return _composite
    if torch.Tag.pointwise in func.tags:
        return _library
    return _conservative


def _writes_first(schema: Any) -> bool:
    """Whether an operator is an in-place or out= form, rather than one that also updates some state."""
    first = schema.arguments[0].alias_info
    return (first is not None and first.is_write) or any(a.is_out for a in schema.arguments)


def _prim(replay: Replay, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """A primitive that is the pointwise aten operator of the same name."""
    packet = getattr(torch.ops.aten, str(func._schema.name)[7:])
    tensors = all(isinstance(a, torch.Tensor) for a in args)
    wanted = (
        ("Tensor", "default", "self", "Tensor_Tensor")
        if tensors
        else ("Scalar", "Tensor", "Tensor_Scalar", "default")
    )
    overload = next(getattr(packet, o) for o in wanted if o in packet.overloads())
    return resolve(overload)(replay, overload, args, kwargs)


def _view(replay: Replay, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    out = func(*args, **kwargs)
    if isinstance(out, torch.Tensor) and isinstance(args[0], torch.Tensor):
        source = args[0]
        same = out.untyped_storage()._cdata == source.untyped_storage()._cdata
        if not same:
            # A "view" that had to copy (a device change, a wrapped constant).
            out = replay.run(func, args, kwargs)
    return out


def _exact(replay: Replay, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    args, kwargs = wide_dtypes(replay.widen(args), kwargs)
    replay.note(func)
    if func._schema.name in JUMPS and any(
        is_real_or_complex(t.dtype) and (replay.has_stack(t) or replay.serial) for t in tensors_in(args)
    ):
        replay.jumped = True
    out = replay.run(func, args, kwargs)
    if replay.arithmetic.storage is not None:
        _keep_stored(replay, args, out)
    return out


def _keep_stored(replay: Replay, args: tuple[Any, ...], out: Any) -> None:
    """Selections of stored numbers are stored numbers."""
    marks = set()
    for t in tensors_in(args):
        if is_real_or_complex(t.dtype) and replay.has_stack(t):
            marks.add(replay.record(t).stored)
    if len(marks) == 1:
        mark = marks.pop()
        for t in tensors_in([out] if isinstance(out, torch.Tensor) else out or []):
            if replay.has_stack(t):
                replay.record(t).stored = mark


def _floating(args: tuple[Any, ...]) -> bool:
    return any(is_real_or_complex(t.dtype) for t in tensors_in(args))


def _decomposed(replay: Replay, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    args, kwargs = wide_dtypes(replay.widen(args), kwargs)
    if not _floating(args) and not _floating(tuple(kwargs.values())):
        return _exact(replay, func, args, kwargs)
    return _enter(replay, decomposition_table[func], func, args, kwargs)


def _composite(replay: Replay, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    args, kwargs = wide_dtypes(replay.widen(args), kwargs)
    return _enter(replay, func.decompose, func, args, kwargs)


def _enter(replay: Replay, body: Any, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    replay.ops[str(func._schema.name).split("::")[1]] += 1
    try:
        with replay.inside():
            out = body(*args, **kwargs)
    except NotImplementedError:
        out = NotImplemented
    if out is NotImplemented:
        return _conservative(replay, func, args, kwargs)
    return out


def _library(replay: Replay, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    args, kwargs = wide_dtypes(replay.widen(args), kwargs)
    replay.note(func)
    out = replay.run(func, args, kwargs)
    return map_tensors(out, lambda t: replay.relative(t, rules_pointwise.LIBRARY))


def _conservative(replay: Replay, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Rule for operators nobody modelled.

    The inputs are perturbed by 2u as a backward stable algorithm would, the result by 8u of its own size and
    u of its tensor's root mean square. Operators that return no rounded values (comparisons, integer
    results of exact inputs) are exact.
    """
    args, kwargs = wide_dtypes(replay.widen(args), kwargs)
    name = str(func._schema.name)
    probe = func(*args, **kwargs) if not _floating(args) else None
    if probe is not None:
        return _exact(replay, func, args, kwargs)
    replay.note(func)
    stable = [map_tensors(a, lambda t: _stirred(replay, t)) for a in args]
    out = replay.run(func, tuple(stable), kwargs)
    floating = [t for t in tensors_in([out]) if is_real_or_complex(t.dtype)]
    if not floating:
        return out
    replay.unmodelled.add(name.split("::")[1])

    def finish(t: torch.Tensor) -> torch.Tensor:
        if not is_real_or_complex(t.dtype):
            return t
        size = t.abs()
        finite = torch.nan_to_num(size, nan=0.0, posinf=0.0)
        pooled = finite.square().mean().sqrt() if t.numel() else finite.sum()
        return replay.absolute(t, 8.0 * finite + pooled)

    return map_tensors(out, finish)


def _stirred(replay: Replay, t: torch.Tensor) -> torch.Tensor:
    if not is_real_or_complex(t.dtype) or t.numel() == 0 or not replay.runs + replay.serial:
        return t
    copy = t.clone()
    stack = replay.stack(t)
    if stack is not None:
        replay.attach(copy, stack.clone())
    return replay.relative(copy, 2.0)


# its entry in the table of decompositions takes other arguments
RULES["aten::nll_loss"] = _composite
UNROUNDED |= {handler.__name__ for handler in (_view, _exact)}
UNROUNDED.add("_choose")
