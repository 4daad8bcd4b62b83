"""What one forward of a reference has to read, write and multiply, counted from the operators that it calls.

Two counts of each: all of it, for a roofline, and a floor, of which only what no other algorithm could leave out is
part. A kernel below the floor's time did not do the task; one below the roofline's may have had a better idea.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import flop_registry

CHOOSING = frozenset({
    "index", "embedding", "embedding_renorm_", "_embedding_bag", "gather", "index_select", "take", "masked_select",
    "where", "masked_fill", "masked_fill_", "tril", "triu", "grid_sampler_2d", "grid_sampler_3d", "index_add",
    "index_copy", "index_put", "index_put_", "scatter", "scatter_add", "scatter_reduce", "searchsorted", "bucketize",
    "bincount", "nll_loss_forward", "nll_loss2d_forward", "any", "all", "mul", "mul_", "bitwise_and", "logical_and",
})
"""Operators that need not read all of an argument: they pick from it, or a zero elsewhere makes up for it."""
STRIDED = ("pool", "upsample", "im2col", "unfold")
"""Parts of names of operators whose windows may step over elements."""
ATTENTION = ("_scaled_dot_product", "_flash_attention", "_efficient_attention")
WINOGRAD = 0.25
"""Share of a small convolution's products that F(4 by 4, 3 by 3) does (Lavin and Gray, 2015)."""
STRASSEN = 0.875
"""Share of a product's that one level of Strassen's algorithm does."""
LARGEST_WINDOW = 25
"""Elements of a convolution's window beyond which transforms save more than can be told."""


@dataclass
class Product:
    """One matrix product or convolution: operations, those that no algorithm saves, elements of its result."""

    operations: int
    least: int
    elements: int
    dtype: str


class Counting(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts reads of some storages, and products, while it is entered.

    Args:
        storages: addresses of the storages of inputs and weights, and their sizes in bytes.

    Attributes:
        read: by address, bytes that operators read at most at a time.
        sure: the same of operators that cannot leave anything out.
        products: in order.
    """

    def __init__(self, storages: dict[int, int]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._storages = storages
        self.read = dict.fromkeys(storages, 0)
        self.sure = dict.fromkeys(storages, 0)
        self.products: list[Product] = []

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        out = func(*args, **kwargs)
        name = func._schema.name.removeprefix("aten::")
        returns = func._schema.returns
        if returns and all(r.alias_info is not None and not r.alias_info.is_write for r in returns):
            return out
        made = [t for t in tree_leaves(out) if isinstance(t, torch.Tensor)]
        given = [t for t in tree_leaves((args, kwargs)) if isinstance(t, torch.Tensor)]
        # a product with a number, or with one value, reads everything
        choosing = name in CHOOSING and not (name.startswith("mul") and sum(t.numel() > 1 for t in given) < 2)
        for tensor in given:
            self._reads(name, tensor, made, args, choosing)
        formula = flop_registry.get(func.overloadpacket)
        if formula is not None:
            try:
                operations = int(formula(*args, **kwargs, out_val=out))
            except Exception:
                return out
            dtype = str(made[0].dtype).removeprefix("torch.") if made else ""
            self.products.append(Product(operations, int(operations * _least(name, args)),
                                         sum(t.numel() for t in made[:1]), dtype))
        return out

    def _reads(self, name: str, tensor: torch.Tensor, made: Sequence[torch.Tensor], args: Any,
               choosing: bool) -> None:
        address = tensor.untyped_storage().data_ptr()
        if address not in self._storages:
            return
        # an expanded dimension is one value
        seen = math.prod(n for n, s in zip(tensor.shape, tensor.stride(), strict=True) if s) * tensor.itemsize
        seen = min(seen, self._storages[address])
        if choosing:
            produced = sum(t.numel() * t.itemsize for t in made)
            self.read[address] = max(self.read[address], min(seen, produced) if "index" in name else seen)
            return
        self.read[address] = max(self.read[address], seen)
        if not any(part in name for part in STRIDED) and not _steps_over(name, args):
            self.sure[address] = max(self.sure[address], seen)


def _steps_over(name: str, args: Any) -> bool:
    """Whether a convolution's stride is larger than its window, so that inputs lie between windows."""
    if "convolution" not in name or len(args) < 4:
        return False
    return any(step > size for step, size in zip(args[3], args[1].shape[2:], strict=False))


def _least(name: str, args: Any) -> float:
    """Share of a product's operations that no known algorithm saves."""
    if name.startswith(ATTENTION):
        # a causal mask leaves half of it out
        return 0.5 * STRASSEN
    if "convolution" in name:
        window = math.prod(args[1].shape[2:])
        return STRASSEN if window == 1 else WINOGRAD if window <= LARGEST_WINDOW else 0.0
    return STRASSEN


@dataclass
class Cost:
    """What a forward takes.

    Attributes:
        inputs: bytes read of each tensor input.
        sure_inputs: those of them that nothing can leave out.
        weights: bytes read of parameters and buffers.
        sure_weights: those of them that nothing can leave out.
        written: bytes of outputs with storage of their own.
        operations: of all products.
        sure_operations: of the one product, where there is one alone and its result is not summed up.
        dtype: dtype of the largest product, empty for none.
    """

    inputs: list[int] = field(default_factory=list)
    sure_inputs: list[int] = field(default_factory=list)
    weights: int = 0
    sure_weights: int = 0
    written: int = 0
    operations: int = 0
    sure_operations: int = 0
    dtype: str = ""


def cost_of(model: Any, args: Sequence[Any], kwargs: dict[str, Any], seed: int) -> Cost:
    """Count one forward without gradients; `model` may change its buffers."""
    inputs = [t for t in tree_leaves((list(args), kwargs)) if isinstance(t, torch.Tensor)]
    tensors = list(model.state_dict(keep_vars=True).values()) if isinstance(model, torch.nn.Module) else []
    weights = [t for t in tensors if isinstance(t, torch.Tensor)]
    storages = {s.data_ptr(): s.nbytes() for s in (t.untyped_storage() for t in [*inputs, *weights]) if s.nbytes()}
    torch.manual_seed(seed)
    with torch.no_grad(), Counting(storages) as counting:
        outputs = model(*args, **kwargs)
    leaves = [t for t in tree_leaves(outputs) if isinstance(t, torch.Tensor)]
    own = {s.data_ptr(): s.nbytes() for s in (t.untyped_storage() for t in leaves)}
    sizes: dict[int, int] = {}
    for leaf in leaves:
        address = leaf.untyped_storage().data_ptr()
        span = math.prod(n for n, s in zip(leaf.shape, leaf.stride(), strict=True) if s) * leaf.itemsize
        sizes[address] = min(own[address], sizes.get(address, 0) + span)
    written = sum(size for address, size in sizes.items() if address not in storages)
    products, elements = counting.products, sum(t.numel() for t in leaves)
    alone = len(products) == 1 and products[0].elements <= elements
    largest = max(products, key=lambda p: p.operations, default=None)
    of_weights = {t.untyped_storage().data_ptr() for t in weights}

    def bytes_of(counted: dict[int, int]) -> tuple[list[int], int]:
        found, seen = [], set(of_weights)
        for tensor in inputs:
            address = tensor.untyped_storage().data_ptr()
            found.append(0 if address in seen else counted.get(address, 0))
            seen.add(address)
        return found, sum(counted.get(address, 0) for address in of_weights)

    read, sure = bytes_of(counting.read), bytes_of(counting.sure)
    return Cost(inputs=read[0], sure_inputs=sure[0], weights=read[1], sure_weights=sure[1], written=written,
                operations=sum(p.operations for p in products), sure_operations=products[0].least if alone else 0,
                dtype=largest.dtype if largest is not None else "")
