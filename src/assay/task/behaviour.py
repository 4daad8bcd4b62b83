"""How a reference behaves when it is called: randomness, state, aliasing, mutation, weakness."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from assay.task.facts import Weakness
from assay.task.instance import Instance
from assay.task.tree import Arguments, leaves, map_leaves
from assay.task.trial import forward, state_of

SCREEN_TOLERANCE = 1e-2
"""Absolute and relative tolerance of the usual check, at which a weak task is told."""


_PLAIN = (bool, int, float, complex, str)


@dataclass(frozen=True)
class Behaviour:
    """What a few calls of a reference showed."""

    random: bool
    stateful: tuple[str, ...]
    mutates: tuple[int, ...]
    shares: tuple[tuple[str, ...], ...]
    """For each output leaf, what it shares storage with."""
    requires_grad: tuple[bool, ...]
    """For each output leaf."""
    outputs: Any
    """Outputs of the first call, with gradients."""


def observe(instance: Instance, inputs: Arguments) -> Behaviour:
    """Call a fresh reference on the same inputs: twice with one seed of the generator, then with another.

    Raises:
        TaskError: the reference raised.
        MemoryError: memory ran out.
    """
    model = instance.build()
    before = [(name, tensor.detach().clone()) for name, tensor in state_of(model)]
    kept = [tensor.detach().clone() for tensor in inputs.tensors()]
    with torch.enable_grad():
        first = forward(instance, model, inputs, seed=1)
    shares = _shared(first, inputs, model)
    grads = tuple(isinstance(leaf, Tensor) and leaf.requires_grad for _, leaf in leaves(first))
    mutates = tuple(
        position
        for position, (old, new) in enumerate(zip(kept, inputs.tensors(), strict=True))
        if not same_bits(old, new)
    )
    changed = [
        name for (name, old), (_, new) in zip(before, state_of(model), strict=True) if not same_bits(old, new)
    ]
    snapshot = _cloned(first)
    fresh = bool(changed or mutates)

    def call(model: Any, seed: int) -> Any:
        again = inputs.map_tensors(lambda position, _: kept[position].clone()) if mutates else inputs
        with torch.enable_grad():
            return _cloned(forward(instance, model, again, seed))

    # the same grad mode throughout: kernels for training and for inference may round differently
    same = call(model, 1)
    if _differs(snapshot, same):
        changed.append("output")
    one, other = (call(instance.build(), 1), call(instance.build(), 2)) if fresh else (same, call(model, 2))
    random = _differs(one, other)
    return Behaviour(random, tuple(changed), mutates, shares, grads, snapshot)


def weaknesses(first: Any, second: Any, inputs: Arguments) -> tuple[Weakness, ...]:
    """Trivial functions that would pass a check at 1e-2.

    Args:
        first: outputs on ``inputs``.
        second: outputs on inputs of another seed.
        inputs: the inputs of ``first``.
    """
    one = [value for _, value in leaves(first) if isinstance(value, Tensor) and value.numel()]
    two = [value for _, value in leaves(second) if isinstance(value, Tensor) and value.numel()]
    if not one or len(one) != len(two):
        return ()
    found: list[Weakness] = []
    if all(_close(a, b) for a, b in zip(one, two, strict=True)):
        found.append("constant")
    if all(_close(torch.zeros_like(a), a) for a in one):
        found.append("zero")
    tensors = inputs.tensors()
    if tensors and all(_close(tensors[0], a) for a in one):
        found.append("identity")
    return tuple(found)


def _close(left: Tensor, right: Tensor) -> bool:
    if left.shape != right.shape:
        return False
    if not (right.is_floating_point() or right.is_complex()):
        return torch.equal(left, right)
    wide = torch.complex128 if left.is_complex() or right.is_complex() else torch.float64
    return torch.allclose(left.to(wide), right.to(wide), rtol=SCREEN_TOLERANCE, atol=SCREEN_TOLERANCE)


def _differs(left: Any, right: Any) -> bool:
    """Whether outputs differ by more than the rounding of another order of summation."""
    ones, twos = leaves(left), leaves(right)
    if [path for path, _ in ones] != [path for path, _ in twos]:
        return True
    for (_, one), (_, two) in zip(ones, twos, strict=True):
        if isinstance(one, Tensor) and isinstance(two, Tensor):
            if not same_bits(one, two) and not _nearly(one, two):
                return True
        elif type(one) is not type(two) or (isinstance(one, _PLAIN) and one != two and one == one):
            return True
    return False


def _nearly(left: Tensor, right: Tensor) -> bool:
    if left.shape != right.shape or left.dtype != right.dtype or not left.is_floating_point():
        return False
    slack = 32 * torch.finfo(left.dtype).eps
    scale = float(left.double().nan_to_num(0.0, 0.0, 0.0).abs().max()) if left.numel() else 0.0
    return torch.allclose(left.double(), right.double(), rtol=slack, atol=slack * scale, equal_nan=True)


def same_bits(left: Tensor, right: Tensor) -> bool:
    """Equal dtype, shape and values, NaN equal to NaN."""
    if left.dtype != right.dtype or left.shape != right.shape:
        return False
    if torch.equal(left, right):
        return True
    if not (left.is_floating_point() or left.is_complex()):
        return False
    return bool(((left == right) | (left.isnan() & right.isnan())).all())


def _cloned(tree: Any) -> Any:
    return map_leaves(lambda leaf: leaf.detach().clone() if isinstance(leaf, Tensor) else leaf, tree)


def _shared(outputs: Any, inputs: Arguments, model: Any) -> tuple[tuple[str, ...], ...]:
    """For each output leaf, the inputs, parameters and earlier outputs that share its storage."""
    owners: dict[int, list[str]] = {}
    for position, tensor in enumerate(inputs.tensors()):
        owners.setdefault(_storage(tensor), []).append(f"input {position}")
    for name, tensor in state_of(model):
        owners.setdefault(_storage(tensor), []).append(f"parameter {name}")
    shares: list[tuple[str, ...]] = []
    for index, (_, leaf) in enumerate(leaves(outputs)):
        if not isinstance(leaf, Tensor) or not leaf.numel():
            shares.append(())
            continue
        owner = owners.setdefault(_storage(leaf), [])
        shares.append(tuple(owner))
        owner.append(f"output {index}")
    return tuple(shares)


def _storage(tensor: Tensor) -> int:
    """Address of a tensor's storage; 0 where it has none."""
    return tensor.untyped_storage().data_ptr() if tensor.layout is torch.strided else 0
