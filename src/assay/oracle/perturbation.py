"""How much a result may be off: noise of a size relative to the result, of an absolute one, or of a narrower format."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

import torch

from assay.oracle.arithmetic import UNIT, Arithmetic, is_real_or_complex, round_to
from assay.oracle.noise import WINDOW, Noise
from assay.oracle.stacks import Pending, Stacks, storage_key
from assay.oracle.truth import finite_or_zero

ONE_WAY = 1.2
"""Common part of the error of TF32 operands, in units of the independent part's standard deviation."""


class Perturbed(Stacks):
    """Stacks whose versions are moved apart, at the declared arithmetic."""

    def __init__(
        self,
        arithmetic: Arithmetic,
        *,
        runs: int,
        seed: int,
        gain: float,
        serial: bool,
        rounded: str | None,
        grid: bool,
        only: Sequence[str] | None,
    ) -> None:
        """Arguments as `Replay` takes them."""
        super().__init__(0 if serial else runs)
        self.arithmetic = arithmetic
        self.unit = arithmetic.unit
        self.serial = serial and runs > 0
        self.gain = gain
        self.rounded = rounded
        self.grid = grid
        self.noise = Noise(seed)
        self.perturbed: set[str] = set()
        self.inexact = False
        self.only = list(only) if only is not None else None
        self.current = ""
        self.autocast: str | None = None
        self.coarse: str | None = None
        self._operands = 0
        self._given: set[int] = set()

    def has_stack(self, t: torch.Tensor) -> bool:
        """Whether the perturbed runs hold other values of `t` than the exact run, drawn already or not."""
        found = self.table.get(storage_key(t))
        return found is not None and (found.stack is not None or found.pending is not None)

    def stack(self, t: torch.Tensor, rank: int | None = None) -> torch.Tensor | None:
        """As `Stacks.stack`; noise that was put off is drawn now."""
        found = self.table.get(storage_key(t))
        if found is not None and found.pending is not None:
            pending, found.pending = found.pending, None
            if pending.deviation is None:
                self._multiply(pending.out, pending.amount)
            else:
                self._displace(pending.out, pending.deviation)
        return super().stack(t, rank)

    def expected(self, t: torch.Tensor) -> torch.Tensor | None:
        """Standard deviation of each element of `t` over the runs, where it is known and no run has been drawn."""
        found = self.table.get(storage_key(t))
        if found is None or found.pending is None:
            return None
        out, deviation = found.pending.out, found.pending.deviation
        if (t.shape, t.stride(), t.storage_offset()) != (out.shape, out.stride(), out.storage_offset()):
            return None
        if deviation is None:
            return finite_or_zero(out.abs()) * found.pending.amount
        return deviation.expand(out.shape)

    def relative(self, out: torch.Tensor, size: float) -> torch.Tensor:
        """Perturb `out` by size · u · |out|; returns `out`."""
        if (not self.runs and not self.serial) or not is_real_or_complex(out.dtype) or out.numel() == 0:
            return out
        self.perturbed.add(self.current)
        if self.grid:
            self.inexact = True
        if out.is_complex() or self.only is not None:
            return self.absolute(out, out.abs() * size)
        amount = size * self.unit * self.gain
        if self.serial:
            out.mul_(self.noise.factor(tuple(out.shape), amount, out.device))
            return out
        if not self.has_stack(out):
            self.record(out).pending = Pending(out.detach(), amount, None)
            return out
        self._multiply(out, amount)
        return out

    def _multiply(self, out: torch.Tensor, amount: float) -> None:
        """Perturb every version of `out` by amount · |out|."""
        stack = self.stack(out)
        if self.runs * out.numel() > WINDOW:
            # Run by run, so that no window has to be put together from pieces.
            if stack is None:
                stack = torch.empty((self.runs, *out.shape), dtype=out.dtype, device=out.device)
                for version in stack:
                    torch.mul(out, self.noise.factor(tuple(out.shape), amount, out.device), out=version)
                self.attach(out, stack)
                return
            for version in stack:
                version.mul_(self.noise.factor(tuple(out.shape), amount, out.device))
            return
        factor = self.noise.factor((self.runs, *out.shape), amount, out.device)
        if stack is None:
            self.attach(out, torch.mul(out, factor))
        else:
            stack.mul_(factor)

    def absolute(self, out: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
        """Perturb `out` by u · scale (float64, broadcastable to out), an absolute size; returns `out`."""
        if (not self.runs and not self.serial) or out.numel() == 0:
            return out
        return self.shift(out, finite_or_zero(scale) * (self.unit * self.gain))

    def shift(self, out: torch.Tensor, deviation: torch.Tensor) -> torch.Tensor:
        """Perturb `out` by noise of standard deviation `deviation`, gain included."""
        if (not self.runs and not self.serial) or out.numel() == 0:
            return out
        deviation = deviation.to(torch.float64)
        self.perturbed.add(self.current)
        if self.grid:
            self.inexact = True
        real = torch.view_as_real(out) if out.is_complex() else out
        if out.is_complex() and deviation.dim():
            deviation = deviation.unsqueeze(-1)
        if self.serial:
            real.add_(deviation * self.noise.unit(tuple(real.shape), real.device))
            return out
        if self.only is None and not out.is_complex() and not self.has_stack(out):
            self.record(out).pending = Pending(out.detach(), 0.0, deviation)
            return out
        self._displace(out, deviation)
        return out

    def _displace(self, out: torch.Tensor, deviation: torch.Tensor) -> None:
        """Perturb every version of `out` by noise of size `deviation`, which has a last dimension more if complex."""
        real = torch.view_as_real(out) if out.is_complex() else out
        if self.runs * real.numel() > WINDOW and self.only is None:
            if self.has_stack(out) or out.is_complex():
                for version in self.materialise(out):
                    target = torch.view_as_real(version) if out.is_complex() else version
                    target.addcmul_(deviation, self.noise.unit(tuple(real.shape), real.device))
                return
            fresh = torch.empty((self.runs, *out.shape), dtype=out.dtype, device=out.device)
            for version in fresh:
                torch.addcmul(out, deviation, self.noise.unit(tuple(out.shape), out.device), out=version)
            self.attach(out, fresh)
            return
        xi = self.noise.unit((self.runs, *real.shape), real.device)
        if self.only is not None:
            mine = [1.0 if self.only[i % len(self.only)] == self.current else 0.0 for i in range(self.runs)]
            mask = torch.tensor(mine, dtype=torch.float64, device=real.device)
            xi = xi * mask.view(-1, *(1,) * real.dim())
        stack = self.stack(out)
        if stack is None:
            value = torch.addcmul(real, deviation.to(real.dtype), xi)
            if out.is_complex():
                value = torch.view_as_complex(value.contiguous())
            self.attach(out, value)
        else:
            target = torch.view_as_real(stack) if out.is_complex() else stack
            target.addcmul_(deviation.to(real.dtype), xi)

    def rounding(self, t: torch.Tensor, name: str) -> torch.Tensor:
        """Copy of wide `t` as if rounded to format `name`: noise of that format where `t` is not in it.

        Returns `t` itself where the format adds nothing: all values are representable, or its unit roundoff
        is not above that of accumulation.
        """
        unit = UNIT[name]
        if t.numel() == 0 or not is_real_or_complex(t.dtype):
            return t
        if unit <= self.unit and name != "tf32":
            return t
        nearest = round_to(t, name)
        if not self.runs and not self.serial:
            return t
        moved = (nearest != t) & torch.isfinite(nearest) & torch.isfinite(t)
        if not self.has_stack(t) and not bool(moved.any()):
            return t
        copy = t.clone()
        stack = self.stack(t)
        if stack is not None and self.runs:
            self.attach(copy, stack.clone())
            # An exact run that happens to be representable says nothing of the perturbed ones.
            moved = torch.isfinite(t) & (t != 0)
        # A uniform error of at most u|t|, on average 0.7 of that over a binade, has deviation 0.4 u|t|.
        operator, self.current = self.current, f"rounding to {name}"
        deviation = t.abs() * moved * (0.5 * unit * self.gain)
        self.shift(copy, deviation)
        if name == "tf32" and self.rounded is None and self.arithmetic.matmul == "tf32":
            self._one_way(copy, deviation)
        self.current = operator
        return copy

    def _one_way(self, t: torch.Tensor, deviation: torch.Tensor) -> None:
        """Move all elements of `t` together, away from zero in half of the runs and towards it in the others.

        Hardware may truncate operands to TF32 instead of rounding them: errors of up to 2u, all of one sign, which
        a long sum of terms of one sign does not average out. Two operands that move independently come to 0.85 u
        of the sum, which grants the 4u that truncating both costs at most.
        """
        if t.is_complex():
            return
        step = deviation * torch.sign(t) * ONE_WAY
        self._operands += 1
        if self.serial:
            t.add_(step, alpha=math.copysign(1.0, float(self.noise.unit((1,), t.device))))
            return
        stack = self.materialise(t)
        for i in range(self.runs):
            if self.only is None or self.only[i % len(self.only)] == self.current:
                # patterns of neighbouring operands have no correlation over the runs
                stack[i].add_(step, alpha=1.0 if (i >> self._operands % 2) % 2 else -1.0)

    def operand(self, t: torch.Tensor) -> torch.Tensor:
        """`t` as a product sees it under the declared arithmetic."""
        if self.rounded is not None:
            plain = not is_real_or_complex(t.dtype) or storage_key(t) in self._given
            return t if plain else self._really_rounded(t, self.rounded)
        name = self.arithmetic.product_operands
        narrow = self.autocast or self.coarse
        if narrow is not None and (name is None or UNIT[name] < UNIT[narrow]):
            name = narrow
        if name is None:
            return t
        found = self.table.get(storage_key(t))
        if found is not None and found.stored == name:
            return t
        return self.rounding(t, name)

    def _really_rounded(self, t: torch.Tensor, name: str) -> torch.Tensor:
        """`t` rounded to a format; where a fused kernel divides by something only later, before that."""
        found = self.table.get(storage_key(t))
        if found is None or found.tiled is None:
            return round_to(t, name)
        factor = found.tiled.as_strided(t.size(), t.stride(), t.storage_offset())
        return round_to(t / factor, name) * factor

    def keep_exact(self, given: Iterable[Any]) -> None:
        """Round no operand that is one of these tensors, or a view of one, where `rounded` names a format."""
        self._given |= {storage_key(t) for t in given if isinstance(t, torch.Tensor)}
