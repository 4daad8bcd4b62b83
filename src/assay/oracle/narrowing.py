"""Dtypes that results have natively, while all of them are wide here, and what a store in a narrow one costs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from assay.oracle.arithmetic import DTYPE, FORMAT, Arithmetic, is_real_or_complex
from assay.oracle.perturbation import Perturbed
from assay.oracle.stacks import storage_key, tensors_in


class Narrowed(Perturbed):
    """Perturbed versions of tensors that natively are of a dtype of their own."""

    def __init__(
        self,
        arithmetic: Arithmetic,
        *,
        task_dtype: torch.dtype,
        runs: int,
        seed: int,
        gain: float,
        serial: bool,
        rounded: str | None,
        grid: bool,
        only: Sequence[str] | None,
    ) -> None:
        """Arguments as `Replay` takes them."""
        super().__init__(
            arithmetic, runs=runs, seed=seed, gain=gain, serial=serial, rounded=rounded, grid=grid, only=only
        )
        self.task_dtype = task_dtype
        self.mixed = False
        self.narrowed: str | None = None

    def nominal(self, t: torch.Tensor) -> torch.dtype:
        """Dtype that `t` would have natively."""
        if t.dtype not in (torch.float64, torch.complex128):
            return t.dtype
        found = self.table.get(storage_key(t))
        if found is not None and found.nominal is not None:
            return found.nominal
        if t.is_complex():
            return torch.complex128 if self.task_dtype == torch.float64 else torch.complex64
        return self.task_dtype

    def go_back(self) -> None:
        """What follows is a backward pass: of a forward under autocast it runs in the same narrow dtype.

        Which of its operators do is not known here, so all are taken to: the tolerance is then that of the
        narrow dtype throughout, also where a gradient is wide.
        """
        self.coarse = self.narrowed

    def coarsened(self, t: torch.Tensor) -> torch.Tensor:
        """Result of an operator of a backward pass that runs in a narrow dtype."""
        assert self.coarse is not None
        return self.rounding(t, self.coarse)

    def cast_down(self, t: torch.Tensor) -> torch.Tensor:
        """Result of a product under autocast: of the autocast dtype natively, and rounded to it."""
        assert self.autocast is not None
        rounded = self.rounding(t, self.autocast)
        found = self.record(rounded)
        if rounded is not t:
            found.unrounded = t
            found.stored = self.autocast
        self.set_nominal(rounded, DTYPE[self.autocast])
        return rounded

    def stored(self, t: torch.Tensor) -> torch.Tensor:
        """Result `t` of one operator of the reference, after a store in the task's narrow dtype if any."""
        name = self.arithmetic.storage
        if name is None or not is_real_or_complex(t.dtype) or FORMAT.get(self.nominal(t)) != name:
            return t
        rounded = self.rounding(t, name)
        if rounded is t:
            return t
        found = self.record(rounded)
        # If this tensor is an output, its rounding is the output's and must not count twice.
        found.unrounded = t
        found.stored = name
        before = self.table.get(storage_key(t))
        if before is not None:
            found.nominal = before.nominal
        return rounded

    def propagate(self, args: tuple[Any, ...], out: Any) -> None:
        """Give results the dtype that promotion would have given them natively."""
        inputs = [t for t in tensors_in(args) if is_real_or_complex(t.dtype)]
        if not inputs:
            return
        deep = [t for t in inputs if t.dim() > 0] or inputs
        nominal = self.nominal(deep[0])
        for t in deep[1:]:
            nominal = torch.promote_types(nominal, self.nominal(t))
        if nominal == self.task_dtype:
            return
        known = {storage_key(t) for t in inputs}
        for t in tensors_in([out] if isinstance(out, torch.Tensor) else out if isinstance(out, tuple | list) else []):
            if is_real_or_complex(t.dtype) and t.is_complex() == nominal.is_complex and storage_key(t) not in known:
                found = self.record(t)
                if found.nominal is None:
                    found.nominal = nominal

    def set_nominal(self, t: torch.Tensor, dtype: torch.dtype) -> None:
        """Note that natively `t` is of `dtype`; it is wide here."""
        if dtype != self.task_dtype or self.mixed:
            self.record(t).nominal = dtype
            self.mixed = self.mixed or dtype != self.task_dtype
