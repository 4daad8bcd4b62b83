"""Operators that draw from a generator: run once, at the dtype they have natively, and shared by all runs."""

from __future__ import annotations

from typing import Any

import torch

from assay.oracle.arithmetic import is_real_or_complex, wide_dtype
from assay.oracle.replay import UNROUNDED, Replay
from assay.oracle.stacks import map_tensors, tensors_in

RANDOM = {
    "aten::bernoulli",
    "aten::bernoulli_",
    "aten::binomial",
    "aten::cauchy_",
    "aten::exponential_",
    "aten::geometric_",
    "aten::log_normal_",
    "aten::multinomial",
    "aten::native_dropout",
    "aten::normal",
    "aten::normal_",
    "aten::poisson",
    "aten::rand",
    "aten::rand_like",
    "aten::randint",
    "aten::randint_like",
    "aten::randn",
    "aten::randn_like",
    "aten::random_",
    "aten::randperm",
    "aten::rrelu_with_noise",
    "aten::uniform_",
    "aten::_standard_gamma",
    "aten::_sample_dirichlet",
}
"""Operators that draw from a generator: run once, at the dtype they have natively, and shared by all runs."""


def draw(replay: Replay, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Handler of operators that draw."""
    replay.note(func)
    replay.random = True
    name = func._schema.name
    if name == "aten::rrelu_with_noise":
        return _random_slope(replay, func, args, kwargs)
    if name.endswith("_") and isinstance(args[0], torch.Tensor):
        target = args[0]
        native = torch.empty(target.shape, dtype=replay.nominal(target), device=target.device)
        func(native, *args[1:], **kwargs)
        replay.forget(target) if target.is_contiguous() else None
        target.copy_(native)
        stack = replay.stack(target)
        if stack is not None:
            stack.copy_(native)
        return target
    if any(replay.has_stack(t) for t in tensors_in(args)) and not func._schema.name.endswith("_like"):
        replay.unmodelled.add(f"{func._schema.name} of rounded values")

    def narrow(t: torch.Tensor) -> torch.Tensor:
        return t.to(replay.nominal(t)) if is_real_or_complex(t.dtype) else t

    out = func(*(map_tensors(a, narrow) for a in args), **kwargs)

    def wide(t: torch.Tensor) -> torch.Tensor:
        return t.to(wide_dtype(t.dtype))

    result = map_tensors(out, wide)
    if func._schema.name == "aten::native_dropout" and replay.has_stack(args[0]):
        # The mask is drawn once; the values must keep what the replay knows of them.
        keep = result[1].double() / (1.0 - float(args[1]))
        with replay.inside():
            return args[0] * keep, result[1]
    return result


def _random_slope(replay: Replay, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> torch.Tensor:
    """rrelu: slopes are drawn at the native dtype, the product is a modelled operation."""
    x, noise = args[0], args[1]
    native = replay.nominal(x)
    slopes = torch.empty(x.shape, dtype=native, device=x.device)
    func(x.to(native), slopes, *args[2:], **kwargs)
    noise.copy_(slopes)
    wide = noise.clone()
    training = args[4] if len(args) > 4 else kwargs.get("training", False)
    lower = args[2] if len(args) > 2 else kwargs.get("lower", 0.125)
    upper = args[3] if len(args) > 3 else kwargs.get("upper", 1.0 / 3.0)
    with replay.inside():
        return torch.where(x <= 0, x * (wide if training else (lower + upper) / 2.0), x)


UNROUNDED |= {handler.__name__ for handler in (draw, _random_slope)}
