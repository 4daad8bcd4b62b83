"""torch's numerical routines on numpy arrays, for the inside of interpreted kernels.

What runs here is the kernel's own work, not an operation of the candidate: dispatch modes
that watch the candidate do not see it, and the candidate's autocast does not apply to it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from .formats import Array

_autocasting, _set_autocasting = torch.is_autocast_enabled, torch.set_autocast_enabled
_hidden: Any = torch._C._DisableTorchDispatch


def _tensor(array: Array) -> torch.Tensor:
    whole = np.ascontiguousarray(array)
    return torch.from_numpy(whole if whole.flags.writeable else whole.copy())


def on_torch(function: Callable[..., Any], *arrays: Array) -> Array:
    """`function` of tensors, applied to arrays; one array comes back."""
    autocasting = _autocasting("cpu")
    if autocasting:
        _set_autocasting("cpu", False)
    try:
        with _hidden(), torch.no_grad():
            result: Array = function(*map(_tensor, arrays)).numpy()
    finally:
        if autocasting:
            _set_autocasting("cpu", True)
    return result


def matmul(a: Array, b: Array) -> Array:
    """``a @ b`` for float arrays of two or three dimensions, accumulated in their dtype."""
    return on_torch(torch.matmul, a, b)
