"""Who did the work: operations of a candidate's own kernels, and operations that it left to torch.

The unit is the elementary operation: two per multiply-add of a matrix product or convolution, otherwise one
per element read or written. Allocation, views, copies, casts and fills count for nobody: they are what a
kernel needs around it.
"""

from __future__ import annotations

import hashlib
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any

import numpy as np
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import flop_registry

from assay.run.kernel_times import EventTimes

KEPT_RESULTS = 48
KEPT_ELEMENTS = 1 << 22

_HELPERS = frozenset(
    {
        "empty",
        "empty_strided",
        "empty_like",
        "empty_permuted",
        "new_empty",
        "new_empty_strided",
        "zeros",
        "zeros_like",
        "new_zeros",
        "ones",
        "ones_like",
        "new_ones",
        "full",
        "full_like",
        "new_full",
        "arange",
        "scalar_tensor",
        "eye",
        "linspace",
        "fill_",
        "fill",
        "zero_",
        "copy_",
        "copy",
        "clone",
        "_to_copy",
        "contiguous",
        "cat",
        "stack",
        "constant_pad_nd",
        "repeat",
        "lift_fresh",
        "lift_fresh_copy",
        "detach",
        "_local_scalar_dense",
        "item",
        "resize_",
        "resize_as_",
        "set_",
        "tril",
        "triu",
        "flip",
        "roll",
        "is_same_size",
        "_has_compatible_shallow_copy_type",
        "_nested_tensor_from_mask",
        "is_pinned",
        "record_stream",
        "rand",
        "randn",
        "randint",
        "rand_like",
        "randn_like",
        "bernoulli",
        "uniform_",
        "normal_",
    }
)


_HIGH = {1: 0x21, 4: 0x200001, 8: 0x20000000200001}


class LibraryWork(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts the operations that torch does, by name, and keeps the latest results.

    Args:
        times: what times the operations that compute, on a GPU.

    Attributes:
        operations: elementary operations by the name of the operator.
        results: the latest results of operations that compute, with the operator's name.
    """

    def __init__(self, times: EventTimes | None = None) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._times = times
        self.operations: Counter[str] = Counter()
        self.results: deque[tuple[str, torch.Tensor]] = deque(maxlen=KEPT_RESULTS)

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        # nothing is compiled here, and wrapping the mode would import the compiler, which replaces functions
        return False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        name = func._schema.name.removeprefix("aten::")
        if name in _HELPERS or _is_view(func):
            return func(*args, **kwargs)
        with self._times.around(name) if self._times is not None else nullcontext():
            out = func(*args, **kwargs)
        made = [t for t in tree_leaves(out) if isinstance(t, torch.Tensor)]
        cost = _cost(func, args, kwargs, out, made)
        if cost:
            self.operations[name] += cost
        for tensor in made:
            if type(tensor) in (torch.Tensor, torch.nn.Parameter) and 0 < tensor.numel() <= KEPT_ELEMENTS:
                # copied: the candidate may change it afterwards
                self.results.append((name, tensor.detach().clone()))
        return out

    def reset(self) -> None:
        """Forget what was counted."""
        self.operations.clear()
        self.results.clear()


def _is_view(func: Any) -> bool:
    returns = func._schema.returns
    return bool(returns) and all(r.alias_info is not None and not r.alias_info.is_write for r in returns)


def _cost(func: Any, args: Any, kwargs: Any, out: Any, made: Sequence[torch.Tensor]) -> int:
    formula = flop_registry.get(func.overloadpacket)
    if formula is not None:
        try:
            return int(formula(*args, **kwargs, out_val=out))
        except Exception:
            pass
    read = sum(t.numel() for t in tree_leaves((args, kwargs)) if isinstance(t, torch.Tensor))
    return int(read + sum(t.numel() for t in made))


class KernelWork:
    """Counts what interpreted kernels load, store and multiply, while it is attached.

    Attributes:
        operations: elementary operations so far.
    """

    def __init__(self) -> None:
        self.operations = 0

    @contextmanager
    def attached(self, memory: Any, builder: Any) -> Iterator[None]:
        """Count in the emulation's memory and builder."""
        load, store, dot = memory.load, memory.store, builder.create_dot
        atomic = builder.create_atomic_rmw

        def counted_load(pointers: Any, mask: Any, other: Any, dtype: Any) -> Any:
            self.operations += _lanes(pointers, mask)
            return load(pointers, mask, other, dtype)

        def counted_store(pointers: Any, values: Any, mask: Any) -> None:
            self.operations += _lanes(pointers, mask)
            store(pointers, values, mask)

        def counted_dot(a: Any, b: Any, *rest: Any) -> Any:
            shape, inner = a.data.shape, b.data.shape[-1]
            self.operations += 2 * int(np.prod(shape)) * int(inner)
            return dot(a, b, *rest)

        def counted_atomic(op: Any, pointers: Any, value: Any, mask: Any, *rest: Any) -> Any:
            self.operations += 2 * _lanes(pointers.data, getattr(mask, "data", None))
            return atomic(op, pointers, value, mask, *rest)

        with (
            _replaced(memory, load=counted_load, store=counted_store),
            _replaced(builder, create_dot=counted_dot, create_atomic_rmw=counted_atomic),
        ):
            yield


class Corruption:
    """Replaces what interpreted kernels store by other values, while it is attached.

    What a candidate returns all the same does not come from its kernels. Floats get far other values, which
    no later comparison or scale undoes; stored integers change in their low bits, so that indices stay near
    where they were. The release of a lock is left alone: other programs wait for it.

    Args:
        seed: two seeds change everything in two ways.
    """

    def __init__(self, seed: int) -> None:
        self._noise = np.random.default_rng(seed)
        self._bits = 1 if seed % 2 else 2
        self.stores = 0

    @contextmanager
    def attached(self, memory: Any, builder: Any) -> Iterator[None]:
        """Corrupt in the emulation's memory and builder."""
        store, atomic = memory.store, builder.create_atomic_rmw

        def corrupt_store(pointers: Any, values: Any, mask: Any) -> None:
            store(pointers, self._other(values), mask)

        def corrupt_atomic(op: Any, pointers: Any, value: Any, mask: Any, *rest: Any) -> Any:
            data = value.data
            if data.dtype.kind == "f" or data.dtype.itemsize == 2:
                value = type(value)(self._other(data), value.dtype)
            elif not (str(op).endswith("XCHG") and data.size == 1):
                # integers here may be the bits of floats: change high bits too
                value = type(value)(data ^ data.dtype.type(_HIGH[data.dtype.itemsize]), value.dtype)
            return atomic(op, pointers, value, mask, *rest)

        with _replaced(memory, store=corrupt_store), _replaced(builder, create_atomic_rmw=corrupt_atomic):
            yield

    def _other(self, values: Any) -> Any:
        self.stores += 1
        kind, dtype = values.dtype.kind, values.dtype
        if kind == "f":
            noise = self._noise.uniform(0.5, 1.5, values.shape) * self._noise.choice(
                (-1.0, 1.0), values.shape
            )
            with np.errstate(all="ignore"):
                finite = np.where(np.isfinite(values), values, 0)
                return (-1.25 * finite + noise).astype(dtype)
        if kind == "b":
            return ~values
        if kind == "u" and dtype.itemsize <= 2:
            # bfloat16 and 8-bit floats travel as their bits: change sign and exponent too
            return values ^ dtype.type(0x8141 if dtype.itemsize == 2 else 0xA9)
        return values ^ dtype.type(self._bits)


def _lanes(pointers: Any, mask: Any) -> int:
    return int(pointers.size) if mask is None else int(np.count_nonzero(mask))


@contextmanager
def _replaced(owner: Any, **functions: Callable[..., Any]) -> Iterator[None]:
    """Put functions in place of an object's methods; whatever stood there before comes back."""
    before = {name: vars(owner)[name] for name in functions if name in vars(owner)}
    for name, function in functions.items():
        object.__setattr__(owner, name, function)
    try:
        yield
    finally:
        for name in functions:
            if name in before:
                object.__setattr__(owner, name, before[name])
            else:
                object.__delattr__(owner, name)


def digest(tensor: torch.Tensor) -> str:
    """Digest of a tensor's values in row-major order, whatever its shape; empty for few distinct values.

    Signed zeros and NaN payloads count as equal.
    """
    flat = tensor.detach().to("cpu").reshape(-1)
    if flat.is_complex():
        flat = torch.view_as_real(flat.resolve_conj()).reshape(-1)
    if flat.numel() < 16 or torch.unique(flat[:4096].double()).numel() < 9:
        return ""
    if flat.is_floating_point():
        flat = torch.nan_to_num(flat.double(), nan=1.2345e300, posinf=1.5e308, neginf=-1.5e308) + 0.0
    return hashlib.sha256(flat.contiguous().numpy().tobytes()).hexdigest()[:16]


ROUNDINGS = 32.0
"""Unit steps of the largest element by which two results may differ and still be one up to scale and offset."""


def affine_of(
    results: Sequence[tuple[str, torch.Tensor]], outputs: Sequence[torch.Tensor]
) -> list[list[Any]]:
    """(operator, digest, output) of each result that an output is a multiple of, plus a constant, up to rounding.

    Digests are those of `digests_of`. Only float32 and float64 outputs: in a half precision a few roundings
    may hide a real contribution.
    """
    found: list[list[Any]] = []
    for number, output in enumerate(outputs):
        if output.dtype not in (torch.float32, torch.float64) or output.numel() < 16:
            continue
        wanted = output.detach().to("cpu", torch.float64).reshape(-1)
        for name, tensor in results:
            if tensor.numel() == output.numel() and not tensor.is_complex() and _affine(tensor, wanted, output.dtype):
                found.append([name, digest(tensor.to(output.dtype)), number])
    return [row for row in found if row[1]]


def _affine(tensor: torch.Tensor, wanted: torch.Tensor, dtype: torch.dtype) -> bool:
    """Whether `wanted`, float64 of shape [n], is a · tensor + b to a few roundings of `dtype`, with a not 0."""
    x = tensor.detach().to("cpu", torch.float64).reshape(-1)
    finite = torch.isfinite(x) & torch.isfinite(wanted)
    if not bool(finite.any()) or not torch.equal(torch.isfinite(x), torch.isfinite(wanted)):
        return False
    x, y = x[finite], wanted[finite]
    dx, dy = x - x.mean(), y - y.mean()
    spread = float(dx @ dx)
    if spread == 0.0 or float(dy.abs().max()) == 0.0:
        return False
    slope = float(dx @ dy) / spread
    room = ROUNDINGS * torch.finfo(dtype).eps * max(float(y.abs().max()), abs(slope) * float(x.abs().max()))
    return slope != 0.0 and float((dy - slope * dx).abs().max()) <= room < float(dy.abs().max())


def digests_of(
    results: Sequence[tuple[str, torch.Tensor]], outputs: Sequence[torch.Tensor]
) -> list[list[str]]:
    """(operator, digest) of each result with as many elements as an output, cast to that output's dtype."""
    found = []
    wanted = {(t.numel(), t.dtype) for t in outputs}
    for name, tensor in results:
        for numel, dtype in wanted:
            if tensor.numel() == numel and (mark := digest(tensor.to(dtype))):
                found.append([name, mark])
    return found
