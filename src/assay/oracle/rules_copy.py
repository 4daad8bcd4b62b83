"""In-place and out= forms, copies and casts: what is written to storages that other tensors see."""

from __future__ import annotations

from typing import Any

import torch

from assay.oracle import rules_rank
from assay.oracle.arithmetic import FORMAT, UNIT, is_real_or_complex, wide_dtype
from assay.oracle.replay import RULES, UNROUNDED, Replay
from assay.oracle.stacks import map_tensors, tensors_in


def write(replay: Replay, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """In-place and out= operators: the functional form, then a copy into the target."""
    functional, arguments, targets = _functional(func, args, kwargs)
    if functional is None:
        return _written(replay, func, args, kwargs)
    with replay:
        out = functional(*arguments[0], **arguments[1])
    outs = [out] if isinstance(out, torch.Tensor) else list(out)
    for target, value in zip(targets, outs, strict=False):
        if target.shape != value.shape:
            target.resize_(value.shape)
            replay.forget(target)
        copy_into(replay, target, value)
        if is_real_or_complex(target.dtype) is False:
            found = replay.table.get(value.untyped_storage()._cdata)
            if found is not None and found.ranking is not None:
                replay.record(target).ranking = found.ranking
    return targets[0] if len(targets) == 1 else tuple(targets)


def copy_into(replay: Replay, target: torch.Tensor, value: torch.Tensor) -> None:
    """Write `value` into `target` in the exact run and in every perturbed run."""
    found = replay.table.get(target.untyped_storage()._cdata)
    if found is not None:
        found.ranking = None
        found.unrounded = None
        found.stored = None
    stack = replay.stack(value)
    wide = target.dtype in (torch.float64, torch.complex128) or target.dtype == value.dtype
    if stack is not None and not wide and is_real_or_complex(target.dtype):
        replay.unmodelled.add("write of rounded values into a constant of lower precision")
        stack = None
    if stack is None and not replay.has_stack(target):
        target.copy_(value)
        return
    versions = replay.materialise(target)
    target.copy_(value)
    if stack is not None and stack.dim() < versions.dim():
        stack = replay.stack(value, target.dim())
    versions.copy_(value if stack is None else stack)


def _functional(
    func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[Any, tuple[tuple[Any, ...], dict[str, Any]], list[torch.Tensor]]:
    schema = func._schema
    space, name = schema.name.split("::")
    out_names = [a.name for a in schema.arguments if a.is_out]
    if out_names:
        packet = getattr(getattr(torch.ops, space), name, None)
        wanted = [(a.name, str(a.type)) for a in schema.arguments if not a.is_out]
        targets = [kwargs[n] for n in out_names if n in kwargs]
        rest = {k: v for k, v in kwargs.items() if k not in out_names}
    elif name.endswith("_") and not name.endswith("__"):
        packet = getattr(getattr(torch.ops, space), name[:-1], None)
        wanted = [(a.name, str(a.type)) for a in schema.arguments]
        targets = [args[0]] if args and isinstance(args[0], torch.Tensor) else []
        rest = kwargs
    else:
        return None, ((), {}), []
    if packet is None or not targets:
        return None, ((), {}), []
    overloads = [getattr(packet, o) for o in packet.overloads()]
    candidates = [o for o in overloads if not o._schema.is_mutable]
    match = next(
        (
            o
            for o in candidates
            if [(a.name, str(a.type)) for a in o._schema.arguments][: len(wanted)] == wanted
        ),
        None,
    )
    return match, (args, rest), targets


def _written(replay: Replay, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """In-place operator without a functional form: executed on each version in turn, and named."""
    replay.note(func)
    written = [
        value
        for argument, value in zip(func._schema.arguments, args, strict=False)
        if argument.alias_info is not None
        and argument.alias_info.is_write
        and isinstance(value, torch.Tensor)
    ]
    if not any(is_real_or_complex(t.dtype) for t in written):
        return func(*args, **kwargs)
    replay.unmodelled.add(str(func._schema.name).split("::")[1])
    if replay.runs and any(replay.has_stack(t) for t in tensors_in(args)):
        for t in written:
            replay.materialise(t)
        for i in range(replay.runs):

            def pick(t: torch.Tensor, i: int = i) -> torch.Tensor:
                stack = replay.stack(t)
                return t if stack is None else stack[i]

            func(*(map_tensors(a, pick) for a in args), **kwargs)
    out = func(*args, **kwargs)
    for t in written:
        if is_real_or_complex(t.dtype):
            replay.relative(t, 8.0)
    return out


def _to_copy(replay: Replay, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Casts: floating targets become wide, and a narrower target leaves its own rounding error."""
    source: torch.Tensor = args[0]
    dtype = kwargs.get("dtype")
    if dtype is None and not (is_real_or_complex(source.dtype) and source.dtype != wide_dtype(source.dtype)):
        return _plain_copy(replay, func, args, kwargs)
    target = dtype if dtype is not None else source.dtype
    if not is_real_or_complex(target):
        if is_real_or_complex(source.dtype) and (replay.has_stack(source) or replay.serial):
            replay.jumped = True
        return _plain_copy(replay, func, args, kwargs)
    out = _plain_copy(replay, func, args, {**kwargs, "dtype": wide_dtype(target)})
    if replay.depth:
        # A decomposition's own type promotion, not a cast that the reference makes.
        return out
    return narrowed(replay, out, target)


def narrowed(replay: Replay, out: torch.Tensor, target: torch.dtype) -> torch.Tensor:
    """Fresh wide tensor `out` after a cast to `target`: nominal dtype and rounding error of the cast."""
    name = FORMAT.get(target)
    if name is None or UNIT[name] <= replay.unit:
        rounded = out
    else:
        rounded = replay.rounding(out, name)
        if rounded is not out:
            replay.record(rounded).unrounded = out
            replay.record(rounded).stored = name
            replay.ops["cast_" + name] += 1
    replay.set_nominal(rounded, target)
    return rounded


def _plain_copy(replay: Replay, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> torch.Tensor:
    out = replay.run(func, args, kwargs)
    assert isinstance(out, torch.Tensor)
    found = replay.table.get(args[0].untyped_storage()._cdata)
    if found is not None:
        if found.nominal is not None and is_real_or_complex(out.dtype):
            replay.set_nominal(out, found.nominal)
        if found.ranking is not None and not is_real_or_complex(out.dtype):
            rules_rank.carry(replay, args[0], out)
    return out


def _copy_(replay: Replay, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    target, value = args[0], args[1]
    copy_into(replay, target, value)
    return target


def _fill_(replay: Replay, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    target = args[0]
    value = args[1] if len(args) > 1 else 0
    if isinstance(value, torch.Tensor):
        copy_into(replay, target, value)
        return target
    func(*args, **kwargs)
    stack = replay.stack(target)
    if stack is not None:
        stack.fill_(value)
    return target


def _convert(replay: Replay, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    return _to_copy(
        replay,
        torch.ops.aten._to_copy.default,
        (args[0],),
        {"dtype": args[1] if len(args) > 1 else kwargs["dtype"]},
    )


RULES["aten::_to_copy"] = _to_copy
RULES["prims::convert_element_type"] = _convert
RULES["aten::copy_"] = _copy_
for _name in ("fill_", "zero_"):
    RULES[f"aten::{_name}"] = _fill_
UNROUNDED |= {handler.__name__ for handler in (write, _to_copy, _convert, _copy_, _fill_)}
