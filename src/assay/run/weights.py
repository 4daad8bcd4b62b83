"""Giving a candidate the reference's weights, whatever names and order it chose."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch


@dataclass(frozen=True)
class WeightMatch:
    """How the candidate's tensors answer to the reference's.

    Attributes:
        how: `none` (nothing to match), `names`, `seed` (the same seed gave the same values), `shapes`,
            `order` (same shapes, matched in order), or `unmatched`.
        pairs: reference name to candidate name.
        text: what did not match, for `unmatched`.
    """

    how: str
    pairs: dict[str, str]
    text: str = ""


def match(reference: Mapping[str, torch.Tensor], candidate: Mapping[str, torch.Tensor],
          buffers: frozenset[str] = frozenset()) -> WeightMatch:
    """Pair the reference's parameters and buffers with the candidate's.

    Args:
        reference: state of the reference, by name.
        candidate: state of the candidate after construction from the same seed, by name.
        buffers: reference names that are buffers: these may be missing when nothing else is.

    Names and shapes first; then equal values under the same seed; then unique shapes; then order among equal
    shapes. A set of parameters that fits in none of these ways is `unmatched`, which decides nothing.
    """
    if not reference:
        return WeightMatch("none", {})
    if all(n in candidate and candidate[n].shape == t.shape for n, t in reference.items()):
        return WeightMatch("names", {n: n for n in reference})
    needed = {n: t for n, t in reference.items() if n not in buffers or _claimed(t, candidate)}
    trained = {n: t for n, t in reference.items() if n not in buffers}
    # a buffer of a parameter's shape seems claimed by it: where that fits nowhere, parameters alone may
    for wanted in (needed, trained):
        by_value = _by_value(wanted, candidate)
        if by_value is not None:
            return WeightMatch("seed", by_value)
        by_shape = _by_shape(wanted, candidate)
        if by_shape is not None:
            return by_shape
    if not candidate:
        return WeightMatch("unmatched", {}, "the candidate has no parameters, the reference has "
                           + ", ".join(f"{n}{list(t.shape)}" for n, t in list(reference.items())[:6]))
    missing = ", ".join(f"{n}{list(t.shape)}" for n, t in list(needed.items())[:6])
    have = ", ".join(f"{n}{list(t.shape)}" for n, t in list(candidate.items())[:6])
    return WeightMatch("unmatched", {}, f"the reference has {missing}; the candidate has {have}")


def _claimed(tensor: torch.Tensor, candidate: Mapping[str, torch.Tensor]) -> bool:
    return any(t.shape == tensor.shape and t.dtype == tensor.dtype for t in candidate.values())


def _by_value(reference: Mapping[str, torch.Tensor], candidate: Mapping[str, torch.Tensor]) -> dict[str, str] | None:
    free = dict(candidate)
    pairs: dict[str, str] = {}
    for name, tensor in reference.items():
        same = [n for n, t in free.items()
                if t.shape == tensor.shape and t.dtype == tensor.dtype and torch.equal(t.cpu(), tensor.cpu())]
        if not same:
            return None
        # equal values (several biases of zeros): keep a like-named one if there is one
        chosen = next((n for n in same if n.split(".")[-1] == name.split(".")[-1]), same[0])
        pairs[name] = chosen
        del free[chosen]
    return pairs


def _by_shape(reference: Mapping[str, torch.Tensor], candidate: Mapping[str, torch.Tensor]) -> WeightMatch | None:
    groups: dict[tuple[int, ...], tuple[list[str], list[str]]] = {}
    for side, state in enumerate((reference, candidate)):
        for name, tensor in state.items():
            groups.setdefault(tuple(tensor.shape), ([], []))[side].append(name)
    pairs: dict[str, str] = {}
    how = "shapes"
    for theirs, ours in groups.values():
        if theirs and len(theirs) != len(ours):
            return None
        if len(theirs) > 1:
            how = "order"
        pairs.update(zip(theirs, ours, strict=False))
    return WeightMatch(how, pairs)


def replace(model: object, reference: Mapping[str, torch.Tensor], found: WeightMatch) -> None:
    """Give the candidate the reference's values, through `load_state_dict` as a user would, so that hooks run."""
    if not isinstance(model, torch.nn.Module) or not found.pairs:
        return
    state = dict(model.state_dict())
    for theirs, ours in found.pairs.items():
        if state[ours].shape == reference[theirs].shape:
            state[ours] = reference[theirs].to(state[ours].dtype)
    model.load_state_dict(state, strict=False)


def named_state(model: object) -> dict[str, torch.Tensor]:
    """Parameters and persistent buffers by name; nothing for what is not a module."""
    if not isinstance(model, torch.nn.Module):
        return {}
    return {n: t for n, t in model.state_dict(keep_vars=True).items() if isinstance(t, torch.Tensor)}


def adopt(model: torch.nn.Module, reference: Mapping[str, torch.Tensor], buffers: frozenset[str]) -> None:
    """Give a module that declares none the parameters and buffers of the reference, in their order.

    Args:
        model: gets them under their names with `__` for dots, and the list of these names as `adopted`.
        reference: state of the reference, by name.
        buffers: which of them are buffers.
    """
    names = []
    for name, value in reference.items():
        own = name.replace(".", "__")
        copy = value.detach().clone()
        if name in buffers:
            model.register_buffer(own, copy)
        else:
            model.register_parameter(own, torch.nn.Parameter(copy, requires_grad=copy.is_floating_point()))
        names.append(own)
    model.adopted = names  # type: ignore[assignment]
