"""Operators that make tensors: constants are exact, and keep the dtype that they have natively."""

from __future__ import annotations

from typing import Any

import torch

from assay.oracle.arithmetic import is_real_or_complex, wide_dtype
from assay.oracle.replay import RULES, UNROUNDED, Replay


def factory(replay: Replay, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Operators that take no tensor: made wide, equal in all runs."""
    dtype = kwargs.get("dtype")
    if dtype is not None and is_real_or_complex(dtype):
        out = func(*args, **{**kwargs, "dtype": wide_dtype(dtype)})
        _remember(replay, out, dtype)
        return out
    out = func(*args, **kwargs)
    if isinstance(out, torch.Tensor) and is_real_or_complex(out.dtype):
        narrow = out.dtype
        if narrow != wide_dtype(narrow):
            if any(a.name == "dtype" for a in func._schema.arguments):
                out = func(*args, **{**kwargs, "dtype": wide_dtype(narrow)})
            else:
                out = out.to(wide_dtype(narrow))
        _remember(replay, out, narrow)
    return out


def _spaced(replay: Replay, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """linspace and logspace: points computed from both ends, rounded relative to the larger of them."""
    out = factory(replay, func, args, kwargs)
    if not isinstance(out, torch.Tensor) or not is_real_or_complex(out.dtype) or out.numel() == 0:
        return out
    replay.note(func)
    logarithmic = str(func._schema.name).endswith("logspace")
    return replay.absolute(out, 4.0 * out.abs() if logarithmic else out.abs().amax().expand(out.shape))


def _remember(replay: Replay, out: Any, dtype: torch.dtype) -> None:
    if not replay.depth and isinstance(out, torch.Tensor) and is_real_or_complex(out.dtype):
        replay.set_nominal(out, dtype)


def _wide_like(replay: Replay, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """`zeros_like` and its kin: shape of a tensor, values of their own."""
    dtype = kwargs.get("dtype")
    if dtype is not None and is_real_or_complex(dtype):
        kwargs = {**kwargs, "dtype": wide_dtype(dtype)}
    out = func(*args, **kwargs)
    if isinstance(out, torch.Tensor) and is_real_or_complex(out.dtype):
        nominal = dtype if dtype is not None else replay.nominal(args[0])
        if out.dtype != wide_dtype(out.dtype):
            out = out.to(wide_dtype(out.dtype))
        _remember(replay, out, nominal)
    return out


for _name in ("linspace", "logspace"):
    RULES[f"aten::{_name}"] = _spaced
for _name in (
    "zeros_like",
    "ones_like",
    "full_like",
    "empty_like",
    "new_zeros",
    "new_ones",
    "new_full",
    "new_empty",
    "new_empty_strided",
):
    RULES[f"aten::{_name}"] = _wide_like
RULES["aten::scalar_tensor"] = factory
UNROUNDED |= {handler.__name__ for handler in (factory, _wide_like)}
