"""Reductions and scans: numpy where Triton's own combiners allow it, otherwise the
candidate's combiner applied to whole slices in a balanced tree."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import triton.language as tl

from .formats import Array
from .values import block_of, make, tensor

_standard = tl.standard


def _base(function: Any) -> Any:
    """The Python function under a jitted one."""
    return getattr(function, "fn", function)


def _known() -> dict[Any, str]:
    names = {
        "_sum_combine": "sum",
        "_prod_combine": "prod",
        "_elementwise_max": "max",
        "_elementwise_min": "min",
        "_xor_combine": "xor",
        "_or_combine": "or",
        "_argmax_combine_tie_break_left": "argmax",
        "_argmin_combine_tie_break_left": "argmin",
    }
    return {_base(getattr(_standard, name)): kind for name, kind in names.items() if hasattr(_standard, name)}


_UFUNCS: dict[str, Any] = {
    "sum": np.add,
    "prod": np.multiply,
    "max": np.fmax,
    "min": np.fmin,
    "xor": np.bitwise_xor,
    "or": np.bitwise_or,
}


class Reductions:
    """`tl.reduce` and `tl.associative_scan`."""

    def __init__(self) -> None:
        self._kinds = _known()

    def reduce(self, input: Any, axis: Any, combine_fn: Any, keep_dims: Any = False, **_: Any) -> Any:
        """Reduce one tensor, or several together, along `axis` (all axes for None).

        The result of a full reduction is a scalar.
        """
        single = isinstance(input, tensor)
        inputs = (input,) if single else tuple(input)
        axis = tl.core._unwrap_if_constexpr(axis)
        keep = bool(tl.core._unwrap_if_constexpr(keep_dims))
        rank = len(inputs[0].shape)
        arrays = [t.handle.data for t in inputs]
        if axis is None:
            arrays = [a.reshape(-1) for a in arrays]
            position = 0
        else:
            position = tl.core._wrap_axis(axis, rank)
        kind = self._kinds.get(_base(combine_fn))
        results = self._reduce(arrays, [t.dtype for t in inputs], position, kind, combine_fn)
        wrapped = []
        for data, like in zip(results, inputs, strict=True):
            if keep:
                data = data.reshape((1,) * rank) if axis is None else np.expand_dims(data, position)
            ty = block_of(like.dtype, data.shape)
            wrapped.append(make(data if data.ndim else data.reshape(1), ty))
        return wrapped[0] if single else tuple(wrapped)

    def _reduce(
        self, arrays: list[Array], dtypes: list[Any], axis: int, kind: str | None, combine_fn: Any
    ) -> list[Array]:
        if kind in ("argmax", "argmin"):
            values = arrays[0]
            packed = dtypes[0].is_bf16() or dtypes[0].is_fp8()
            if not packed and not (values.dtype.kind == "f" and np.isnan(values).any()):
                place = (np.argmax if kind == "argmax" else np.argmin)(values, axis=axis)
                where = np.expand_dims(place, axis)
                return [np.take_along_axis(a, where, axis).squeeze(axis) for a in arrays]
        elif kind is not None:
            data = arrays[0]
            half = dtypes[0].primitive_bitwidth < 32 and dtypes[0].is_floating()
            if not half or (kind in ("max", "min") and dtypes[0].is_fp16()):
                if dtypes[0].is_int1() and kind in ("sum", "xor"):
                    return [np.logical_xor.reduce(data, axis=axis)]
                return [np.asarray(_UFUNCS[kind].reduce(data, axis=axis, dtype=data.dtype))]
        return _fold([np.moveaxis(a, axis, 0) for a in arrays], dtypes, _call(combine_fn))

    def scan(self, input: Any, axis: Any, combine_fn: Any, reverse: Any = False, **_: Any) -> Any:
        """Inclusive scan of one tensor, or several together, along `axis`."""
        single = isinstance(input, tensor)
        inputs = (input,) if single else tuple(input)
        position = tl.core._wrap_axis(tl.core._unwrap_if_constexpr(axis), len(inputs[0].shape))
        backward = bool(tl.core._unwrap_if_constexpr(reverse))
        arrays = [np.moveaxis(t.handle.data, position, 0) for t in inputs]
        if backward:
            arrays = [a[::-1] for a in arrays]
        kind = self._kinds.get(_base(combine_fn))
        dtypes = [t.dtype for t in inputs]
        half = dtypes[0].primitive_bitwidth < 32 and dtypes[0].is_floating()
        if kind in ("sum", "prod", "max", "min") and not half and not dtypes[0].is_int1():
            results = [_UFUNCS[kind].accumulate(arrays[0], axis=0, dtype=arrays[0].dtype)]
        else:
            results = _prefix(arrays, dtypes, _call(combine_fn))
        if backward:
            results = [r[::-1] for r in results]
        wrapped = [
            make(np.ascontiguousarray(np.moveaxis(r, 0, position)), t.type)
            for r, t in zip(results, inputs, strict=True)
        ]
        return wrapped[0] if single else tuple(wrapped)


Combine = Callable[[list[Array], list[Array], list[Any]], list[Array]]


def _call(combine_fn: Any) -> Combine:
    """The combiner on arrays: all lanes at once, or one by one if it branches on its values."""

    def together(left: list[Array], right: list[Array], dtypes: list[Any]) -> list[Array]:
        shape = left[0].shape
        args = [
            make(a if a.ndim else a.reshape(1), block_of(d, shape))
            for side in (left, right)
            for a, d in zip(side, dtypes, strict=True)
        ]
        results = combine_fn(*args)
        results = tuple(results) if isinstance(results, (tuple, list, tl.core.tuple)) else (results,)
        arrays = []
        for result, like in zip(results, left, strict=True):
            data = result.handle.data if isinstance(result, tensor) else np.array([result])
            data = np.broadcast_to(data, like.shape or (1,)).astype(like.dtype)
            arrays.append(data.reshape(like.shape))
        return arrays

    def combine(left: list[Array], right: list[Array], dtypes: list[Any]) -> list[Array]:
        try:
            return together(left, right, dtypes)
        except AmbiguousTruth:
            results = [np.empty_like(a) for a in left]
            for lane in np.ndindex(left[0].shape):
                values = together(
                    [np.asarray(a[lane]) for a in left], [np.asarray(a[lane]) for a in right], dtypes
                )
                for result, value in zip(results, values, strict=True):
                    result[lane] = value
            return results

    return combine


class AmbiguousTruth(ValueError):
    """A block was used where one truth value is needed."""

    def __init__(self) -> None:
        super().__init__("Boolean value of Tensor with more than one value is ambiguous")


def _fold(arrays: list[Array], dtypes: list[Any], combine: Combine) -> list[Array]:
    """Combine neighbours until one is left; order is kept, so the combiner need not commute."""
    while arrays[0].shape[0] > 1:
        even = arrays[0].shape[0] // 2 * 2
        paired = combine([a[0:even:2] for a in arrays], [a[1:even:2] for a in arrays], dtypes)
        rest = [a[even:] for a in arrays]
        arrays = [np.concatenate([p, r]) if r.shape[0] else p for p, r in zip(paired, rest, strict=True)]
    return [np.asarray(a[0]) for a in arrays]


def _prefix(arrays: list[Array], dtypes: list[Any], combine: Combine) -> list[Array]:
    """Inclusive scan in about log2(n) steps (Hillis and Steele, 1986)."""
    arrays = [np.array(a) for a in arrays]
    step = 1
    while step < arrays[0].shape[0]:
        # The first `step` results are not wanted; computing them keeps the block's size a power of two.
        earlier = [np.concatenate([a[:step], a[:-step]]) for a in arrays]
        combined = [c[step:] for c in combine(earlier, arrays, dtypes)]
        arrays = [np.concatenate([a[:step], c]) for a, c in zip(arrays, combined, strict=True)]
        step *= 2
    return arrays
