"""Truths of gradients in the reference worker, and what of a backward the reference itself can take."""

from __future__ import annotations

import functools
from typing import Any

import torch

from assay.probe.backward import Step, parsed
from assay.probe.model import Draw
from assay.run import backward, training
from assay.run.reference_inputs import Studied, arranged, draw_inputs, otherwise, own_copy

NEAR = (0.90625, 0.9375, 1.0625, 1.09375)
"""Factors from a value to some near it, two on either side, which every dtype tells apart."""


class NoGradient(Exception):
    """The reference raises in its backward."""


def tied(arguments: Any, pair: Any) -> Any:
    """The arguments with one tensor passed for two of them."""
    if not pair:
        return arguments
    kept = arguments.tensors()[pair[0]]
    return arguments.map_tensors(lambda position, tensor: kept if position == pair[1] else tensor)


def handed_to(outputs: Any, seed: int, kind: str) -> list[torch.Tensor]:
    """The gradients fed to the outputs: one per output tensor, empty for those that take none."""
    from torch.utils import _pytree as pytree

    from assay import oracle

    flat = pytree.tree_leaves(outputs, is_leaf=lambda v: v is None)
    return [torch.zeros(0) if g is None else g.cpu()
            for v, g in zip(flat, oracle.cotangents(outputs, seed, kind), strict=True)
            if isinstance(v, torch.Tensor)]


def second(model: Any, fed: Any, arithmetic: Any, handed: list[torch.Tensor],
            seed: int) -> tuple[dict[str, Any], list[torch.Tensor]]:
    """Truth of the gradients of the gradients, and what is fed to the latter, inputs first."""
    wrapped = training.FirstGradient(model, handed)
    found = gradients_of(wrapped, fed, arithmetic, seed, "normal")
    named = {name.replace("parameter:model.", "parameter:", 1): leaf for name, leaf in found.items()}
    leaves = [t.detach().requires_grad_() for t in fed.tensors() if t.is_floating_point() or t.is_complex()]
    trained = [p for p in model.parameters() if p.requires_grad] if isinstance(model, torch.nn.Module) else []
    return named, handed_to([*leaves, *trained], seed, "normal")


def legal(model: Any, make: Any, handed: list[torch.Tensor], text: str, seed: int,
           found: dict[str, Any]) -> tuple[list[str], dict[str, torch.Tensor]]:
    """Steps that the reference itself cannot take, as `STEP/PASS`, and where a NaN grad_output puts NaN.

    A pass over another layout in which the reference leaves the tolerance of `found`, the truths of the gradients,
    is there as `wrong:STEP/PASS`: torch 2.13 mistakes a transposed grad_output of an instance norm on a CPU.
    The NaN by the names of the gradients: 1 where one arrives, else 0.
    """
    refused: list[str] = []
    masks: dict[str, torch.Tensor] = {}
    for number, step in enumerate(parsed(text)):
        own = own_copy(model)
        fed = make()
        parameters = dict(own.named_parameters()) if isinstance(own, torch.nn.Module) else {}
        stage: list[str] = []
        torch.manual_seed(seed)

        def beside(others: Any, own: Any = own, fed: Any = fed) -> Any:
            moved = fed.map_tensors(lambda position, _: others[position])
            return own(*moved.args, **moved.kwargs)

        try:
            _, taken = backward.take(step, functools.partial(own, *fed.args, **fed.kwargs), fed.tensors(),
                                     parameters, handed, stage, beside)
        except Exception:
            refused.append(f"{number}/{stage[-1] if stage else 'forward'}")
            continue
        for name, inputs, trained in taken["further"]:
            named = {f"input:{i}": g for i, g in enumerate(inputs)}
            named |= {f"parameter:{n}": g for n, g in trained.items()}
            if name in ("strided", "expanded") and _astray(found, named):
                refused.append(f"wrong:{number}/{name}")
            if name == "nan":
                masks |= {n: torch.isnan(g).to(torch.uint8).cpu() for n, g in named.items() if g is not None}
    return refused, masks


def _astray(found: dict[str, Any], gradients: dict[str, torch.Tensor | None]) -> bool:
    """Whether the reference's own gradients leave the tolerance of their truths."""
    from assay import oracle

    pairs = [(leaf, gradients.get(name)) for name, leaf in found.items() if leaf.kind in ("float", "complex")]
    return any(g is not None and g.shape == leaf.y.shape and not oracle.compare(leaf, g).ok for leaf, g in pairs)


def arriving(state: Studied, instance: Any, model: Any, draw: Draw, dtype: str | None, handed: list[torch.Tensor],
              found: dict[str, Any], seed: int, device: str) -> dict[str, torch.Tensor]:
    """Where the gradients are not finite for what was put into the inputs.

    By the names of the gradients: 1 where they also follow the poisoned elements, which shows where a finite value in
    that place moves a little, 2 where they do not (0 times NaN through a mask, or a choice that the element only takes
    part in, whose gradient at a NaN is anybody's), and 0 where they are finite.
    """
    def gradients(arguments: Any) -> dict[str, torch.Tensor]:
        own = own_copy(model)
        fed = arranged(arguments, draw.layouts, device)
        parameters = dict(own.named_parameters()) if isinstance(own, torch.nn.Module) else {}
        torch.manual_seed(seed)
        _, taken = backward.take(Step(), functools.partial(own, *fed.args, **fed.kwargs), fed.tensors(), parameters,
                                 handed, [])
        named = {f"input:{i}": g for i, g in enumerate(taken["inputs"])}
        named |= {f"parameter:{n}": g for n, g in taken["parameters"].items()}
        return {n: g.cpu() for n, g in named.items() if g is not None}

    poisoned = gradients(draw_inputs(state, instance, draw, dtype)[0])
    plain, _ = draw_inputs(state, instance, draw.model_copy(update={"injections": ()}), dtype)
    depends = {name: torch.zeros(g.shape, dtype=torch.bool) for name, g in poisoned.items()}
    for near in zip(*(otherwise(plain, draw, factor) for factor in NEAR), strict=True):
        try:
            below, less, more, above = (gradients(arguments) for arguments in near)
        except Exception:
            # a value outside the domain tells nothing; the other turns do
            continue
        for name, mask in depends.items():
            if all(name in seen for seen in (below, less, more, above)):
                # what turns at one value, as a choice does, moves on one side of it only
                mask |= (below[name] != less[name]) & (more[name] != above[name])
    marks = {}
    for name, gradient in poisoned.items():
        if name in found and name in depends and found[name].y.shape == gradient.shape:
            broken = ~torch.isfinite(gradient) & ~torch.isfinite(found[name].y.cpu())
            marks[name] = torch.where(broken, torch.where(depends[name], 1, 2), 0).to(torch.uint8)
    return marks


def gradients_of(model: Any, fed: Any, arithmetic: Any, seed: int, kind: str) -> dict[str, Any]:
    """Truth of every gradient by `input:POSITION` or `parameter:NAME`. Raises NoGradient."""
    from torch.utils import _pytree as pytree

    from assay import oracle

    args, kwargs = list(fed.args), dict(fed.kwargs)
    vjp = oracle.evaluate_vjp(model, args, kwargs, grad_seed=seed, grad_kind=kind, seed=seed, arithmetic=arithmetic)
    if vjp.raised is not None:
        raise NoGradient(f"{vjp.raised.type}: {vjp.raised.message}")
    leaves = pytree.tree_leaves((args, kwargs))
    position = {i: n for n, i in enumerate(i for i, v in enumerate(leaves) if isinstance(v, torch.Tensor))}
    found = {}
    for name, leaf in zip(oracle.gradient_names(model, args, kwargs), vjp.leaves, strict=True):
        kind_of, _, which = name.partition(" ")
        is_input = kind_of == "input" and which.isdigit() and int(which) in position
        found[f"input:{position[int(which)]}" if is_input else f"parameter:{name}"] = leaf
    return found
