"""Calls of the reference as it is: its results, what they depend on, and what it takes and changes."""

from __future__ import annotations

import copy
import dataclasses
import functools
import time
from typing import Any

import torch

from assay.probe.model import Draw
from assay.run import codec, ways
from assay.run.reference_inputs import Studied, arranged, draw_inputs, otherwise, own_copy
from assay.run.work import LibraryWork, affine_of, digest, digests_of


def native(model: Any, arguments: Any, seed: int) -> tuple[Any, float, list[int], list[int]]:
    """One native forward: outputs, seconds, inputs it changed, and inputs whose storage an output shares."""
    if isinstance(model, torch.nn.Module) and any(b.requires_grad is False for b in model.buffers()):
        model = copy.deepcopy(model)
    tensors = arguments.tensors()
    before = [t.detach().clone() for t in tensors]
    torch.manual_seed(seed)
    began = time.perf_counter()
    with torch.no_grad():
        outputs = model(*arguments.args, **arguments.kwargs)
    seconds = time.perf_counter() - began
    mutated = [i for i, (a, b) in enumerate(zip(before, tensors, strict=True))
               if bytes(codec.tensor_bytes(a)) != bytes(codec.tensor_bytes(b))]
    _, leaves = codec.flatten(outputs)
    storages = {t.untyped_storage().data_ptr() for t in leaves}
    aliases = [i for i, t in enumerate(tensors) if t.numel() and t.untyped_storage().data_ptr() in storages]
    return outputs, seconds, mutated, aliases


def dependent(state: Studied, instance: Any, model: Any, draw: Draw, dtype: str | None, leaves: list[Any],
              seed: int, device: str) -> list[Any]:
    """Leave undecided what is not finite although it does not depend on the poisoned elements.

    An output reached only through a factor that is zero for every input of the domain (a triangle's other
    half, a masked key) is 0 · NaN in the reference, and a kernel may skip it. Dependence is what some finite
    value in the poisoned place changes.
    """
    plain, _ = draw_inputs(state, instance, draw.model_copy(update={"injections": ()}), dtype)
    base = leaves_of(native(model, arranged(plain, draw.layouts, device), seed)[0])
    depends = [torch.zeros(t.shape, dtype=torch.bool) for t in base]
    for other in otherwise(plain, draw):
        try:
            seen = leaves_of(native(model, arranged(other, draw.layouts, device), seed)[0])
        except Exception:
            # a value outside the domain tells nothing; the other turns do
            continue
        for mask, a, b in zip(depends, base, seen, strict=True):
            if a.shape == b.shape:
                mask |= ((a != b) & ~((a != a) & (b != b))).to(mask.device)
    return [
        leaf if leaf.kind not in ("float", "complex") or leaf.native.shape != mask.shape else
        dataclasses.replace(leaf, decided=leaf.decided & (mask.to(leaf.decided.device) | torch.isfinite(leaf.native)))
        for leaf, mask in zip(leaves, depends, strict=True)
    ]


def laid_out(leaf: Any, native: torch.Tensor) -> Any:
    """A truth whose native value is what the reference makes of the layout itself.

    The evaluation works on dense copies. Where an operator is less accurate on a strided input than its own
    arithmetic allows, the reference disagrees with its replay, and such elements decide nothing.
    """
    from assay.oracle.compare import excess

    native = native.detach().resolve_conj().resolve_neg()
    if leaf.native is None or native.shape != leaf.native.shape or native.dtype != leaf.native.dtype:
        return leaf
    wrong = excess(leaf, native.to(leaf.y.device))
    return dataclasses.replace(leaf, native=native.to(leaf.native.device), decided=leaf.decided & ~wrong)


def requires_grad(model: Any, arguments: Any, seed: int) -> list[bool]:
    """Per output tensor, whether it carries a gradient when every floating input asks for one."""
    own = own_copy(model)
    for tensor in arguments.tensors():
        if tensor.is_floating_point() or tensor.is_complex():
            tensor.requires_grad_(True)
    torch.manual_seed(seed)
    try:
        with torch.enable_grad():
            return [t.requires_grad for t in leaves_of(own(*arguments.args, **arguments.kwargs))]
    except RuntimeError:
        # in-place on a leaf that requires grad: such a reference is not for training
        return []


def same_any_way(model: Any, fed: Any, way: str, expected: list[torch.Tensor], seed: int) -> bool:
    """Whether the reference returns the same bits when it is called another way."""
    own = own_copy(model)
    torch.manual_seed(seed)
    try:
        seen = leaves_of(ways.take(way, own, functools.partial(own, *fed.args, **fed.kwargs), fed.tensors()))
    except Exception:
        return False
    return len(seen) == len(expected) and all(
        bytes(codec.tensor_bytes(a.detach())) == bytes(codec.tensor_bytes(b))
        for a, b in zip(seen, expected, strict=True))


def work_of(model: Any, fed: Any, seed: int) -> dict[str, Any]:
    """Operations of the reference by operator, and how many of its results each output is but a multiple of."""
    own = own_copy(model)
    torch.manual_seed(seed)
    counted = LibraryWork()
    with torch.no_grad(), counted:
        outputs = own(*fed.args, **fed.kwargs)
    leaves = leaves_of(outputs)
    results = list(counted.results)
    affine = [row[2] for row in affine_of(results, leaves)]
    marks = [digest(leaf) for leaf in leaves]
    equal = [mark for _, mark in digests_of(results, leaves)]
    return {"library": dict(counted.operations), "affine": [affine.count(i) for i in range(len(leaves))],
            "equal": [equal.count(mark) if mark else 0 for mark in marks]}


def leaves_of(outputs: Any) -> list[torch.Tensor]:
    """The tensors of an output, in order."""
    return codec.flatten(outputs)[1]
