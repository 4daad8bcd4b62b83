"""The float64 replay: one pass over a reference that carries an exact run and k perturbed runs together.

`Replay` is a `TorchDispatchMode`. The tensors that the reference sees are the exact float64 run. Beside every
storage whose value depends on a rounded operation the mode keeps a *stack*: k perturbed versions of that
storage. A view needs no work, an in-place write goes to all versions, and a composite operation is
decomposed once for all of them, so k runs cost little more than their arithmetic.

Rounding models live in the `rules_*` modules, which register themselves in `RULES`, `EXACT` and `BATCHED`.
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import torch
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode

from assay.oracle.arithmetic import DTYPE, FORMAT, UNIT, Arithmetic, is_real_or_complex, round_to, wide_dtype
from assay.oracle.noise import WINDOW, Noise
from assay.oracle.truth import finite_or_zero

Rule = Callable[["Replay", Any, tuple[Any, ...], dict[str, Any]], Any]
"""Executes one operator: (replay, overload, args, kwargs) -> what the operator returns."""
Batched = Callable[["Replay", Any, tuple[Any, ...], dict[str, Any], Any], Any]
"""Executes one operator on stacks: (replay, overload, args, kwargs, exact output) -> stacks, or None."""

RULES: dict[str, Rule] = {}
"""Rounding model by operator name, e.g. `aten::sum`."""
EXACT: set[str] = set()
"""Operators that round nothing: selection, comparison, movement, sign."""
JUMPS: set[str] = set()
"""Operators whose result jumps where a rounded input crosses a threshold."""
BATCHED: dict[str, Batched] = {}
"""Executors that treat all perturbed runs in one call; all others loop over the runs."""

UNROUNDED: set[str] = set()
"""Names of handlers whose results are copies of numbers that were stored already."""

PRODUCT_HANDLERS = {"_matmul", "_add_product", "_convolution", "_attention"}
"""Names of handlers of the operators that autocast runs in its narrow dtype."""

ONE_WAY = 1.2
"""Common part of the error of TF32 operands, in units of the independent part's standard deviation."""

_PURGE_BYTES = 1 << 27


class NeedsSerial(BaseException):
    """The reference reads a rounded value back into Python, so perturbed runs must go one at a time.

    Derives from BaseException so that a reference which catches Exception does not swallow it.
    """


@dataclasses.dataclass
class Ranking:
    """How an index tensor was chosen: which keys an operator ranked, along which dimension."""

    keys: torch.Tensor
    """Exact float64 or integer keys, the operator's input."""
    stack: torch.Tensor | None
    """Perturbed keys, shape (k, *keys.shape), or None when they are exact."""
    dim: int
    """Ranked dimension; -1 with flat keys where the operator ranks the flattened tensor."""
    first: bool
    """Whether the operator documents that the first of equal entries is returned."""
    descending: bool
    """Whether larger keys come first."""
    shape: torch.Size
    """Shape of the index tensor as the operator returned it, with the ranked dimension kept."""
    nominal: torch.dtype
    """Dtype in which a native kernel holds the keys."""


class Record:
    """What the replay knows of one storage."""

    __slots__ = ("nominal", "ranking", "ref", "stack", "stored", "unrounded")

    def __init__(self, storage: torch.UntypedStorage) -> None:
        self.ref: Any = StorageWeakRef(storage)  # type: ignore[no-untyped-call]
        self.stack: torch.Tensor | None = None
        self.nominal: torch.dtype | None = None
        self.ranking: Ranking | None = None
        self.unrounded: torch.Tensor | None = None
        self.stored: str | None = None


def tensors_in(values: Iterable[Any]) -> Iterable[torch.Tensor]:
    """Tensors among arguments, lists of arguments included."""
    for value in values:
        if isinstance(value, torch.Tensor):
            yield value
        elif isinstance(value, list | tuple):
            for item in value:
                if isinstance(item, torch.Tensor):
                    yield item


def map_tensors(value: Any, fn: Callable[[torch.Tensor], Any]) -> Any:
    """Apply `fn` to tensors in an argument, lists and tuples included."""
    if isinstance(value, torch.Tensor):
        return fn(value)
    if isinstance(value, list | tuple):
        items = [fn(v) if isinstance(v, torch.Tensor) else v for v in value]
        return type(value)(*items) if hasattr(value, "_fields") else type(value)(items)
    return value


def _key(t: torch.Tensor) -> int:
    return int(t.untyped_storage()._cdata)


def _is_narrow(t: torch.Tensor) -> bool:
    return is_real_or_complex(t.dtype) and t.dtype not in (torch.float64, torch.complex128)


class Replay(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Runs whatever is called under it in float64, with `runs` perturbed versions alongside."""

    def __init__(
        self,
        arithmetic: Arithmetic,
        *,
        runs: int,
        seed: int,
        task_dtype: torch.dtype = torch.float32,
        gain: float = 1.0,
        serial: bool = False,
        rounded: str | None = None,
        grid: bool = False,
        only: Sequence[str] | None = None,
    ) -> None:
        """Set up one pass.

        `gain` enlarges every perturbation; deviations are to be divided by it. `serial` perturbs the run
        itself instead of keeping stacks. `rounded` names a format (see `round_to`) to which operands of
        products are really rounded, for predictions. `grid` looks for linear operations whose result is
        exactly representable in any order and leaves those unperturbed. `only` names operators: run i then
        perturbs only operator `only[i % len(only)]`.
        """
        super().__init__()  # type: ignore[no-untyped-call]
        self.arithmetic = arithmetic
        self.unit = arithmetic.unit
        self.runs = 0 if serial else runs
        self.serial = serial and runs > 0
        self.gain = gain
        self.rounded = rounded
        self.grid = grid
        self.task_dtype = task_dtype
        self.noise = Noise(seed)
        self.table: dict[int, Record] = {}
        self.ops: Counter[str] = Counter()
        self.unmodelled: set[str] = set()
        self.perturbed: set[str] = set()
        self.random = False
        self.jumped = False
        self.inexact = False
        self.depth = 0
        self.mixed = False
        self.only = list(only) if only is not None else None
        self.current = ""
        self.autocast: str | None = None
        self.narrowed: str | None = None
        self.coarse: str | None = None
        self._bytes = 0
        self._operands = 0
        self._given: set[int] = set()
        self.attention_tile: int | None = None

    # The dispatch protocol.

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        handler = _handlers.get(func)
        if handler is None:
            handler = _handlers[func] = _resolve(func)
        with torch._C.DisableTorchFunction():
            out = handler(self, func, args, kwargs or {})
            if self.depth == 0 and not func.is_view:
                if self.mixed:
                    self._propagate(args, out)
                if self.coarse is not None:
                    out = map_tensors(out, self._coarsened)
                elif self.autocast is not None and handler.__name__ in PRODUCT_HANDLERS:
                    self.narrowed = self.autocast
                    out = map_tensors(out, self.cast_down)
                elif self.arithmetic.storage is not None and handler.__name__ not in UNROUNDED:
                    out = map_tensors(out, self.stored)
        return out

    @contextlib.contextmanager
    def deeper(self) -> Iterator[None]:
        """Inside one operator of the reference: nothing is stored between its pieces."""
        self.depth += 1
        try:
            yield
        finally:
            self.depth -= 1

    @contextlib.contextmanager
    def inside(self) -> Iterator[None]:
        """`deeper`, from within a handler, where the mode is off and must be entered again."""
        with self.deeper(), self:
            yield

    def go_back(self) -> None:
        """What follows is a backward pass: of a forward under autocast it runs in the same narrow dtype.

        Which of its operators do is not known here, so all are taken to: the tolerance is then that of the
        narrow dtype throughout, also where a gradient is wide.
        """
        self.coarse = self.narrowed

    def _coarsened(self, t: torch.Tensor) -> torch.Tensor:
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
        before = self.table.get(_key(t))
        if before is not None:
            found.nominal = before.nominal
        return rounded

    def _propagate(self, args: tuple[Any, ...], out: Any) -> None:
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
        known = {_key(t) for t in inputs}
        for t in tensors_in(
            [out] if isinstance(out, torch.Tensor) else out if isinstance(out, tuple | list) else []
        ):
            if is_real_or_complex(t.dtype) and t.is_complex() == nominal.is_complex and _key(t) not in known:
                found = self.record(t)
                if found.nominal is None:
                    found.nominal = nominal

    def set_nominal(self, t: torch.Tensor, dtype: torch.dtype) -> None:
        """Note that natively `t` is of `dtype`; it is wide here."""
        if dtype != self.task_dtype or self.mixed:
            self.record(t).nominal = dtype
            self.mixed = self.mixed or dtype != self.task_dtype

    # Storages and their stacks.

    def record(self, t: torch.Tensor) -> Record:
        """The record of the storage of `t`, made if missing."""
        key = _key(t)
        found = self.table.get(key)
        if found is None:
            found = self.table[key] = Record(t.untyped_storage())
        return found

    def has_stack(self, t: torch.Tensor) -> bool:
        """Whether the perturbed runs hold other values of `t` than the exact run."""
        found = self.table.get(_key(t))
        return found is not None and found.stack is not None

    def stack(self, t: torch.Tensor, rank: int | None = None) -> torch.Tensor | None:
        """Perturbed versions of `t`, shape (k, *t.shape), or None where they are all equal to `t`.

        With `rank`, leading dimensions of size 1 are inserted after k so that stacks of different ranks
        broadcast as the tensors themselves do. The result is a live view: writing to it writes the runs.
        """
        found = self.table.get(_key(t))
        if found is None or found.stack is None:
            return None
        buffer = found.stack
        if buffer.dtype != t.dtype:
            buffer = buffer.view(t.dtype)
        pad = (rank - t.dim()) if rank is not None else 0
        size = (buffer.shape[0], *(1,) * pad, *t.shape)
        stride = (buffer.shape[1], *(0,) * pad, *t.stride())
        view = buffer.as_strided(size, stride, t.storage_offset())
        if t.is_conj():
            view = view.conj()
        return torch._neg_view(view) if t.is_neg() else view

    def attach(self, t: torch.Tensor, stacked: torch.Tensor) -> None:
        """Make `stacked`, shape (k, *t.shape), the perturbed versions of the fresh tensor `t`."""
        found = self.record(t)
        elements = t.untyped_storage().nbytes() // max(1, t.element_size())
        fresh = t.is_contiguous() and elements == t.numel() and t.storage_offset() == 0
        if fresh and stacked.is_contiguous() and stacked.dtype == t.dtype:
            found.stack = stacked.view(stacked.shape[0], elements)
        else:
            buffer = torch.zeros((stacked.shape[0], elements), dtype=t.dtype, device=t.device)
            shape, stride = (stacked.shape[0], *t.shape), (elements, *t.stride())
            buffer.as_strided(shape, stride, t.storage_offset()).copy_(stacked)
            found.stack = buffer
        self._bytes += found.stack.numel() * found.stack.element_size()
        if self._bytes > _PURGE_BYTES:
            self._purge()

    def materialise(self, t: torch.Tensor) -> torch.Tensor:
        """Stack of `t`, made of equal copies if it had none, so that the runs can be written separately."""
        if not self.has_stack(t):
            found = self.record(t)
            elements = t.untyped_storage().nbytes() // max(1, t.element_size())
            flat = t.as_strided((elements,), (1,), 0)
            found.stack = flat.expand(self.runs, elements).clone()
        view = self.stack(t)
        assert view is not None
        return view

    def forget(self, t: torch.Tensor) -> None:
        """Drop what was known of the values in the storage of `t`, which has been overwritten."""
        found = self.table.get(_key(t))
        if found is not None:
            found.stack = None
            found.ranking = None
            found.unrounded = None
            found.stored = None

    def _purge(self) -> None:
        dead = [key for key, found in self.table.items() if found.ref.expired()]
        for key in dead:
            del self.table[key]
        self._bytes = sum(
            found.stack.numel() * found.stack.element_size()
            for found in self.table.values()
            if found.stack is not None
        )

    # Executing an operator on the exact run and on the stacks.

    def widen(self, args: tuple[Any, ...]) -> tuple[Any, ...]:
        """Arguments with narrow floating tensors (constants a reference closes over) in float64."""
        for t in tensors_in(args):
            if _is_narrow(t):
                return tuple(
                    map_tensors(a, lambda v: v.to(wide_dtype(v.dtype)) if _is_narrow(v) else v) for a in args
                )
        return args

    def run(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Execute `func` on the exact run and on every perturbed run, without any perturbation of its own."""
        out = func(*args, **kwargs)
        if isinstance(out, torch.Tensor) and _is_narrow(out):
            # Integers that become floating: do it in float64.
            if "dtype" in kwargs:
                kwargs = {**kwargs, "dtype": torch.float64}
            else:
                args = tuple(map_tensors(a, _int_to_float) for a in args)
            out = func(*args, **kwargs)
            if _is_narrow(out):
                # Booleans, or Python numbers alone: exact in the narrow dtype already.
                out = out.to(wide_dtype(out.dtype))
        if self.runs and out is not None:
            keys = None
            for t in tensors_in(args):
                found = self.table.get(_key(t))
                if found is not None and found.stack is not None:
                    keys = {_key(i) for i in tensors_in(args)}
                    break
            if keys is None:
                for t in tensors_in(kwargs.values()):
                    if self.has_stack(t):
                        keys = {_key(i) for i in tensors_in((*args, *kwargs.values()))}
                        break
            if keys is not None:
                self._run_stacks(func, args, kwargs, out, keys)
        return out

    def _run_stacks(
        self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], out: Any, keys: set[int]
    ) -> None:
        outs = [out] if isinstance(out, torch.Tensor) else list(out)
        if not any(isinstance(o, torch.Tensor) and _key(o) not in keys for o in outs):
            return
        batched = BATCHED.get(func._schema.name)
        if batched is None and torch.Tag.pointwise in func.tags:
            batched = batched_pointwise
        stacked = batched(self, func, args, kwargs, out) if batched is not None else None
        if stacked is None:
            stacked = self._loop(func, args, kwargs, outs)
        if isinstance(stacked, torch.Tensor):
            stacked = [stacked]
        for o, s in zip(outs, stacked, strict=True):
            if isinstance(o, torch.Tensor) and s is not None and _key(o) not in keys:
                if not is_real_or_complex(o.dtype) and bool((s == o).all()):
                    # All runs agree on this choice: nothing that follows from it is uncertain.
                    continue
                self.attach(o, s if s.dtype == o.dtype else s.to(o.dtype))

    def _loop(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], outs: list[Any]) -> list[Any]:
        columns: list[list[Any]] = [[] for _ in outs]
        for i in range(self.runs):

            def pick(t: torch.Tensor, i: int = i) -> torch.Tensor:
                stack = self.stack(t)
                return t if stack is None else stack[i]

            result = func(
                *(map_tensors(a, pick) for a in args),
                **{name: map_tensors(a, pick) for name, a in kwargs.items()},
            )
            parts = [result] if isinstance(result, torch.Tensor) else list(result)
            for column, part, o in zip(columns, parts, outs, strict=True):
                if isinstance(o, torch.Tensor) and part.shape != o.shape:
                    raise NeedsSerial(f"{func}: the shape of the result depends on rounded values")
                column.append(part)
        return [
            torch.stack(column) if isinstance(o, torch.Tensor) else None
            for column, o in zip(columns, outs, strict=True)
        ]

    # Perturbations.

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
        stack = self.stack(out)
        if self.runs * out.numel() > WINDOW:
            # Run by run, so that no window has to be put together from pieces.
            if stack is None:
                stack = torch.empty((self.runs, *out.shape), dtype=out.dtype, device=out.device)
                for version in stack:
                    torch.mul(out, self.noise.factor(tuple(out.shape), amount, out.device), out=version)
                self.attach(out, stack)
                return out
            for version in stack:
                version.mul_(self.noise.factor(tuple(out.shape), amount, out.device))
            return out
        factor = self.noise.factor((self.runs, *out.shape), amount, out.device)
        if stack is None:
            self.attach(out, torch.mul(out, factor))
        else:
            stack.mul_(factor)
        return out

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
        if self.runs * real.numel() > WINDOW and self.only is None:
            if self.has_stack(out) or out.is_complex():
                for version in self.materialise(out):
                    target = torch.view_as_real(version) if out.is_complex() else version
                    target.addcmul_(deviation, self.noise.unit(tuple(real.shape), real.device))
                return out
            fresh = torch.empty((self.runs, *out.shape), dtype=out.dtype, device=out.device)
            for version in fresh:
                torch.addcmul(out, deviation, self.noise.unit(tuple(out.shape), out.device), out=version)
            self.attach(out, fresh)
            return out
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
        return out

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
            plain = not is_real_or_complex(t.dtype) or _key(t) in self._given
            return t if plain else round_to(t, self.rounded)
        name = self.arithmetic.product_operands
        narrow = self.autocast or self.coarse
        if narrow is not None and (name is None or UNIT[name] < UNIT[narrow]):
            name = narrow
        if name is None:
            return t
        found = self.table.get(_key(t))
        if found is not None and found.stored == name:
            return t
        return self.rounding(t, name)

    def keep_exact(self, given: Iterable[Any]) -> None:
        """Round no operand that is one of these tensors, or a view of one, where `rounded` names a format."""
        self._given |= {_key(t) for t in given if isinstance(t, torch.Tensor)}

    # Bookkeeping for rules.

    def nominal(self, t: torch.Tensor) -> torch.dtype:
        """Dtype that `t` would have natively."""
        if t.dtype not in (torch.float64, torch.complex128):
            return t.dtype
        found = self.table.get(_key(t))
        if found is not None and found.nominal is not None:
            return found.nominal
        if t.is_complex():
            return torch.complex128 if self.task_dtype == torch.float64 else torch.complex64
        return self.task_dtype

    def note(self, func: Any) -> str:
        """Count one modelled operator and make it the current one; returns its short name."""
        name = str(func._schema.name).split("::")[1]
        self.current = name
        self.ops[name] += 1
        return name


def _int_to_float(t: torch.Tensor) -> torch.Tensor:
    return t if is_real_or_complex(t.dtype) or t.dtype == torch.bool else t.double()


def aligned(replay: Replay, value: Any, rank: int) -> Any:
    """Argument for a batched pointwise call: stacks padded to `rank`, exact tensors as they are."""

    def pick(t: torch.Tensor) -> torch.Tensor:
        stack = replay.stack(t, rank)
        return t if stack is None else stack

    return map_tensors(value, pick)


def batched_pointwise(
    replay: Replay, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], out: Any
) -> torch.Tensor | None:
    """Pointwise operators broadcast over the runs as over any other leading dimension."""
    if not isinstance(out, torch.Tensor):
        return None
    rank = out.dim()
    options = {k: v for k, v in kwargs.items() if k not in ("memory_format", "layout")}
    result = func(*(aligned(replay, a, rank) for a in args), **options)
    assert isinstance(result, torch.Tensor)
    if result.dim() != rank + 1 or result.shape[1:] != out.shape or result.shape[0] != replay.runs:
        return None
    return result


def product_of(sizes: Iterable[int]) -> int:
    """Product of sizes; 1 for none."""
    return math.prod(sizes)


_handlers: dict[Any, Rule] = {}


def _resolve(func: Any) -> Rule:
    # The dispatcher's handlers need every rule registered, and rules need this module.
    from assay.oracle.handlers import resolve

    return resolve(func)


def nominal_unit(dtype: torch.dtype) -> float:
    """Unit roundoff of a dtype; 0 for integers and booleans."""
    name = FORMAT.get(dtype)
    return 0.0 if name is None else UNIT[name]
