"""The float64 replay: one pass over a reference that carries an exact run and k perturbed runs together.

`Replay` is a `TorchDispatchMode`. The tensors that the reference sees are the exact float64 run. Beside every
storage whose value depends on a rounded operation the mode keeps a *stack*: k perturbed versions of that
storage. A view needs no work, an in-place write goes to all versions, and a composite operation is
decomposed once for all of them, so k runs cost little more than their arithmetic.

Rounding models live in the `rules_*` modules, which register themselves in `RULES`, `EXACT` and `BATCHED`.
"""

from __future__ import annotations

import contextlib
import math
import sys
import types
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import torch
from torch._compile import _disable_dynamo
from torch.utils._python_dispatch import TorchDispatchMode

from assay.oracle.arithmetic import FORMAT, UNIT, Arithmetic, is_real_or_complex, wide_dtype
from assay.oracle.narrowing import Narrowed
from assay.oracle.stacks import NeedsSerial, is_narrow, map_tensors, storage_key, tensors_in

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


class Replay(Narrowed, TorchDispatchMode):  # type: ignore[no-untyped-call]
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
        TorchDispatchMode.__init__(self)  # type: ignore[no-untyped-call]
        Narrowed.__init__(
            self,
            arithmetic,
            task_dtype=task_dtype,
            runs=runs,
            seed=seed,
            gain=gain,
            serial=serial,
            rounded=rounded,
            grid=grid,
            only=only,
        )
        self.ops: Counter[str] = Counter()
        self.unmodelled: set[str] = set()
        self.random = False
        self.jumped = False
        self.depth = 0
        self.attention_tile: int | None = None
        if "torch._dynamo" in sys.modules:
            # whoever compiles may want to compile what is called from it as well
            self.__torch_dispatch__ = types.MethodType(_not_compiled, self)  # type: ignore[method-assign]

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        # wrapping the mode imports the compiler, which takes seconds in each process anew
        return False

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
                    self.propagate(args, out)
                if self.coarse is not None:
                    out = map_tensors(out, self.coarsened)
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

    # Executing an operator on the exact run and on the stacks.

    def widen(self, args: tuple[Any, ...]) -> tuple[Any, ...]:
        """Arguments with narrow floating tensors (constants a reference closes over) in float64."""
        for t in tensors_in(args):
            if is_narrow(t):
                return tuple(
                    map_tensors(a, lambda v: v.to(wide_dtype(v.dtype)) if is_narrow(v) else v) for a in args
                )
        return args

    def run(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Execute `func` on the exact run and on every perturbed run, without any perturbation of its own."""
        out = func(*args, **kwargs)
        if isinstance(out, torch.Tensor) and is_narrow(out):
            # Integers that become floating: do it in float64.
            if "dtype" in kwargs:
                kwargs = {**kwargs, "dtype": torch.float64}
            else:
                args = tuple(map_tensors(a, _int_to_float) for a in args)
            out = func(*args, **kwargs)
            if is_narrow(out):
                # Booleans, or Python numbers alone: exact in the narrow dtype already.
                out = out.to(wide_dtype(out.dtype))
        if self.runs and out is not None:
            keys = None
            for t in tensors_in(args):
                if self.has_stack(t):
                    keys = {storage_key(i) for i in tensors_in(args)}
                    break
            if keys is None:
                for t in tensors_in(kwargs.values()):
                    if self.has_stack(t):
                        keys = {storage_key(i) for i in tensors_in((*args, *kwargs.values()))}
                        break
            if keys is not None:
                self._run_stacks(func, args, kwargs, out, keys)
        return out

    def _run_stacks(
        self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], out: Any, keys: set[int]
    ) -> None:
        outs = [out] if isinstance(out, torch.Tensor) else list(out)
        if not any(isinstance(o, torch.Tensor) and storage_key(o) not in keys for o in outs):
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
            if isinstance(o, torch.Tensor) and s is not None and storage_key(o) not in keys:
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

    # Bookkeeping for rules.

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


_not_compiled: Any = _disable_dynamo(Replay.__torch_dispatch__, recursive=True)

_handlers: dict[Any, Rule] = {}


def _resolve(func: Any) -> Rule:
    # The dispatcher's handlers need every rule registered, and rules need this module.
    from assay.oracle.handlers import resolve

    return resolve(func)


def nominal_unit(dtype: torch.dtype) -> float:
    """Unit roundoff of a dtype; 0 for integers and booleans."""
    name = FORMAT.get(dtype)
    return 0.0 if name is None else UNIT[name]
