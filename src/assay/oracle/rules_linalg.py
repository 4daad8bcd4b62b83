"""Linear algebra and transforms: errors by the backward error of stable algorithms.

A backward stable algorithm returns the exact result for an input perturbed by about u·sqrt(n) relative to its
norm (Higham, Accuracy and Stability of Numerical Algorithms, chapters 9, 10 and 19). So the perturbed runs
factor or solve a perturbed matrix, and conditioning shows by itself. A fast Fourier transform of N points
has the error u·log2(N) relative to the root mean square of its output (ibid., chapter 24).
"""

from __future__ import annotations

import math
from typing import Any

import torch

from assay.oracle.arithmetic import is_real_or_complex
from assay.oracle.replay import EXACT, RULES, Replay, product_of
from assay.oracle.stacks import map_tensors
from assay.oracle.summation import normal_dims

SYMMETRIC = {"linalg_cholesky_ex", "cholesky", "_linalg_eigh", "linalg_ldl_factor_ex"}
"""Factorisations whose input is symmetric (Hermitian), so that its perturbation must be."""

_STABLE = """
linalg_inv_ex _linalg_solve_ex _linalg_det _linalg_slogdet linalg_lu_factor_ex linalg_lu linalg_cholesky_ex
cholesky linalg_solve_triangular triangular_solve cholesky_solve cholesky_inverse linalg_qr _linalg_svd
_linalg_eigh linalg_eig _linalg_eigvals linalg_eigvals linalg_lstsq linalg_matrix_exp linalg_lu_solve
linalg_ldl_factor_ex linalg_ldl_solve linalg_householder_product geqrf ormqr linalg_pinv
"""


def _perturbed(replay: Replay, matrix: torch.Tensor, symmetric: bool) -> torch.Tensor:
    """Copy of `matrix` (..., m, n) perturbed by u·sqrt(n)·rms of the matrix, zeros of its structure kept."""
    copy = matrix.clone()
    stack = replay.stack(matrix)
    if stack is not None:
        replay.attach(copy, stack.clone())
    if matrix.numel() == 0 or matrix.dim() < 2:
        return replay.relative(copy, 1.0)
    n = max(matrix.shape[-1], matrix.shape[-2])
    size = torch.nan_to_num(matrix.abs(), nan=0.0, posinf=0.0)
    rms = size.square().mean((-1, -2), keepdim=True).sqrt()
    # A triangular or diagonal input stays one: stable algorithms do not fill it in.
    scale = math.sqrt(n) * rms * (size != 0)
    replay.absolute(copy, scale.expand(matrix.shape) * (math.sqrt(2.0) if symmetric else 1.0))
    if symmetric:
        versions = replay.stack(copy)
        if versions is not None:
            versions.copy_(0.5 * (versions + versions.mH))
        elif replay.serial:
            copy.copy_(0.5 * (copy + copy.mH))
    return copy


def _stable(replay: Replay, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    args = replay.widen(args)
    name = replay.note(func)
    if not replay.runs + replay.serial:
        return replay.run(func, args, kwargs)

    def perturb(t: torch.Tensor) -> torch.Tensor:
        return _perturbed(replay, t, name in SYMMETRIC) if is_real_or_complex(t.dtype) else t

    out = replay.run(func, tuple(map_tensors(a, perturb) for a in args), kwargs)
    for t in [out] if isinstance(out, torch.Tensor) else out:
        if isinstance(t, torch.Tensor) and is_real_or_complex(t.dtype) and t.numel():
            # Entries of a factor err relative to its norm, not each relative to itself.
            size = torch.nan_to_num(t.abs(), nan=0.0, posinf=0.0)
            axes = (-1, -2) if t.dim() > 1 else tuple(range(t.dim()))
            level = size.square().mean(axes, keepdim=True).sqrt() if axes else size
            replay.absolute(t, size + level)
    return out


def _fourier(replay: Replay, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    args = replay.widen(args)
    name = replay.note(func)
    out = replay.run(func, args, kwargs)
    if not replay.runs + replay.serial or out.numel() == 0:
        return out
    dims = normal_dims(args[1], out.dim())
    n = product_of((args[0] if name == "_fft_r2c" else out).shape[d] for d in dims)
    power = torch.nan_to_num(out.abs(), nan=0.0, posinf=0.0).square()
    level = power.mean(dims, keepdim=True).sqrt()
    # A transform by matrix product, legal for few points, errs by a multiple of sqrt(N).
    return replay.absolute(out, (level * (math.log2(max(2, n)) + 0.25 * math.sqrt(n))).expand(out.shape))


for _name in _STABLE.split():
    RULES[f"aten::{_name}"] = _stable
for _name in ("_fft_r2c", "_fft_c2c", "_fft_c2r"):
    RULES[f"aten::{_name}"] = _fourier
EXACT.add("aten::lu_unpack")
