"""What training does with a module beyond one backward: steps of SGD, and the gradient of the gradient.

The reference's side is a module around it, so that its replay in float64 propagates rounding through the
steps; the candidate's side is plain `torch.optim` and `torch.autograd`, as a user would write it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch.utils import _pytree as pytree

RATE = 0.05
"""Learning rate of the steps."""


def loss(outputs: Any, targets: Sequence[torch.Tensor]) -> torch.Tensor:
    """Mean squared distance of the differentiable outputs from targets, summed over them."""
    terms = [((leaf - t.to(leaf.dtype)) ** 2).mean() for leaf, t in zip(_tensors(outputs), targets, strict=False)
             if leaf.requires_grad and leaf.shape == t.shape]
    return torch.stack(terms).sum() if terms else torch.zeros(())


def _tensors(outputs: Any) -> list[torch.Tensor]:
    return [t for t in pytree.tree_leaves(outputs) if isinstance(t, torch.Tensor)]


class Trained(torch.nn.Module):
    """A module that is trained by a few steps of SGD when it is called.

    Returns the losses and what became of parameters and running buffers, by name; its own stay as they are.
    """

    def __init__(self, model: torch.nn.Module, targets: Sequence[torch.Tensor], steps: int) -> None:
        super().__init__()
        self.model, self.targets, self.steps = model, list(targets), steps
        self.train(model.training)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """`[losses, parameters, buffers]`."""
        names = [n for n, p in self.model.named_parameters() if p.requires_grad]
        values = {n: p.detach().clone() for n, p in self.model.named_parameters()}
        state = {n: b.detach().clone() for n, b in self.model.named_buffers()}
        losses = []
        for _ in range(self.steps):
            with torch.enable_grad():
                asked = {n: v.detach().requires_grad_(n in names) for n, v in values.items()}
                outputs = torch.func.functional_call(self.model, {**asked, **state}, args, kwargs)
                value = loss(outputs, self.targets)
                found = torch.autograd.grad(value, [asked[n] for n in names], allow_unused=True)
            losses.append(value.detach())
            for name, gradient in zip(names, found, strict=True):
                if gradient is not None:
                    values[name] = values[name] - RATE * gradient
        return [losses, {n: values[n] for n in names},
                {n: b for n, b in state.items() if b.is_floating_point()}]


def train(call: Callable[[], Any], parameters: Mapping[str, torch.Tensor], buffers: Mapping[str, torch.Tensor],
          targets: Sequence[torch.Tensor], steps: int) -> Any:
    """The same with a candidate: `parameters` and `buffers` are its own, by the reference's names.

    Both are put back afterwards.
    """
    before = [(t, t.detach().clone()) for t in [*parameters.values(), *buffers.values()]]
    optimizer = torch.optim.SGD(list(parameters.values()), lr=RATE)
    losses = []
    for _ in range(steps):
        optimizer.zero_grad()
        value = loss(call(), targets)
        value.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        losses.append(value.detach().clone())
    found = [losses, {n: p.detach().clone() for n, p in parameters.items()},
             {n: b.detach().clone() for n, b in buffers.items() if b.is_floating_point()}]
    with torch.no_grad():
        for tensor, value in before:
            tensor.copy_(value)
            tensor.grad = None
    return found


class FirstGradient(torch.nn.Module):
    """A module whose outputs are the gradients of another, with a graph: its own gradient is the second one."""

    def __init__(self, model: Any, cotangents: Sequence[torch.Tensor]) -> None:
        super().__init__()
        self.model, self.cotangents = model, list(cotangents)
        if isinstance(model, torch.nn.Module):
            self.train(model.training)

    def forward(self, *args: Any, **kwargs: Any) -> list[torch.Tensor]:
        """One gradient per input and parameter that asks for one, inputs first."""
        leaves = [t for t in pytree.tree_leaves((args, kwargs)) if isinstance(t, torch.Tensor) and t.requires_grad]
        if isinstance(self.model, torch.nn.Module):
            leaves += [p for p in self.model.parameters() if p.requires_grad]
        return first(self.model(*args, **kwargs), leaves, self.cotangents)


def first(outputs: Any, targets: Sequence[torch.Tensor], cotangents: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """Gradients with a graph; zeros where there is none."""
    pairs = [(leaf, c.to(leaf.dtype)) for leaf, c in zip(_tensors(outputs), cotangents, strict=False)
             if leaf.requires_grad and leaf.shape == c.shape]
    if not pairs or not targets:
        return [torch.zeros_like(t) for t in targets]
    found = torch.autograd.grad([leaf for leaf, _ in pairs], list(targets), [c for _, c in pairs],
                                create_graph=True, allow_unused=True)
    return [torch.zeros_like(t) if g is None else g for t, g in zip(targets, found, strict=True)]
