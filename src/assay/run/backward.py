"""A forward and its backward passes, for a candidate and, to see what is legal, for its reference."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from assay.probe.backward import Step
from assay.run import codec, training

TRAINING_STEPS = 3


def take(step: Step, call: Callable[[], Any], inputs: Sequence[torch.Tensor],
         parameters: Mapping[str, torch.Tensor], cotangents: Sequence[torch.Tensor],
         stage: list[str], beside: Callable[[Sequence[torch.Tensor]], Any] | None = None
         ) -> tuple[Any, dict[str, Any]]:
    """One forward with gradients on, and the step's backward passes over its graph.

    Args:
        step: what to do.
        call: the forward.
        inputs: tensor inputs; gradients are asked of the floating ones.
        parameters: by the reference's name, what the module may be trained by.
        cotangents: one grad_output per output tensor.
        stage: gets the name of what runs, for the place of an error; empty again when all went well.
        beside: the forward on other inputs, for a pass that is crossed by one.

    Returns:
        The outputs, and the gradients of each pass: a dict with `inputs`, `parameters` and `claims` for the
        first, and `further`, a list of `[pass, inputs, parameters]`, for the others; `wrote` names the passes
        that changed a grad_output.
    """
    if step.inference:
        stage.append("inference")
        with torch.inference_mode():
            outputs = call()
        stage.clear()
        return outputs, {"inputs": [None] * len(inputs), "parameters": {}, "claims": [], "further": []}
    trained = {name: p for name, p in parameters.items() if p.requires_grad}
    for position, tensor in enumerate(inputs):
        if tensor.is_floating_point() or tensor.is_complex():
            tensor.requires_grad_(step.ask is None or f"input:{position}" in step.ask)
    for name, parameter in trained.items():
        parameter.requires_grad_(step.ask is None or f"parameter:{name}" in step.ask)
    _forget(inputs, parameters)
    try:
        stage.append("forward")
        outputs = call()
        _, leaves = codec.flatten(outputs)
        taken = [(leaf, c) for leaf, c in zip(leaves, cotangents, strict=False)
                 if leaf.requires_grad and leaf.shape == c.shape]
        results = []
        wrote = []
        crossing: Any = None
        for turn, name in enumerate(step.passes):
            stage.append(name)
            if name != "again":
                _forget(inputs, parameters)
            if name == "crossed" and beside is not None:
                # kept until the backward is done, as the other half of a graph would be
                crossing = beside([_moved(t) for t in inputs])
            if taken:
                handed = [laid_out(c, name).to(leaf.device) for leaf, c in taken]
                torch.autograd.backward([leaf for leaf, _ in taken], handed,
                                        retain_graph=turn + 1 < len(step.passes))
                if name != "nan" and any(not torch.equal(h, c.to(h.device)) for h, (_, c)
                                         in zip(handed, taken, strict=True)):
                    wrote.append(name)
            results.append([name, [_copied(t.grad) for t in inputs],
                            {n: _copied(p.grad) for n, p in parameters.items()}])
    finally:
        for parameter in trained.values():
            parameter.requires_grad_(True)
    stage.clear()
    del crossing
    return outputs, {"inputs": results[0][1], "parameters": results[0][2],
                     "claims": [bool(leaf.requires_grad) for leaf in leaves], "further": results[1:],
                     "wrote": wrote}


def follow(what: str, step: Step, call: Callable[[], Any], inputs: Sequence[torch.Tensor],
           state: Mapping[str, torch.Tensor], cotangents: Sequence[torch.Tensor],
           stage: list[str], beside: Callable[[Sequence[torch.Tensor]], Any] | None = None
           ) -> tuple[Any, dict[str, Any] | None]:
    """What a probe with gradients does: a step, or (`train`) steps of SGD, or (`second`) two derivatives.

    Args:
        what: `train`, `second` or nothing.
        step: what to do where it is nothing.
        call: the forward.
        inputs: tensor inputs.
        state: parameters and buffers by the reference's names.
        cotangents: one per output tensor; for `second`, then one per gradient, inputs first.
        stage: see `take`.
        beside: see `take`.
    """
    parameters = {n: p for n, p in state.items() if isinstance(p, torch.nn.Parameter) or p.requires_grad}
    if what == "train":
        stage.append("training")
        trained = {n: p for n, p in parameters.items() if p.requires_grad}
        found = training.train(call, trained, {n: b for n, b in state.items() if n not in parameters},
                               cotangents, TRAINING_STEPS)
        stage.clear()
        return found, None
    if what == "second":
        return _second(call, inputs, parameters, cotangents, stage)
    return take(step, call, inputs, parameters, cotangents, stage, beside)


def _second(call: Callable[[], Any], inputs: Sequence[torch.Tensor], parameters: Mapping[str, torch.Tensor],
            cotangents: Sequence[torch.Tensor], stage: list[str]) -> tuple[Any, dict[str, Any]]:
    asked = [t.requires_grad_() for t in inputs if t.is_floating_point() or t.is_complex()]
    targets = [*asked, *(p for p in parameters.values() if p.requires_grad)]
    _forget(inputs, parameters)
    stage.append("forward")
    outputs = call()
    _, leaves = codec.flatten(outputs)
    stage.append("second")
    # with a gradient of its own, so that a backward that is marked as once differentiable says so
    handed = [c.to(leaf.device).requires_grad_(c.is_floating_point() or c.is_complex())
              for leaf, c in zip(leaves, cotangents, strict=False)]
    gradients = training.first(outputs, targets, handed)
    pairs = [(g, c.to(g.device)) for g, c in zip(gradients, cotangents[len(leaves):], strict=False)
             if g.requires_grad]
    if pairs:
        torch.autograd.backward([g for g, _ in pairs], [c for _, c in pairs])
    stage.clear()
    return outputs, {"inputs": [_copied(t.grad) for t in inputs], "claims": [bool(pairs)] * len(leaves),
                     "parameters": {n: _copied(p.grad) for n, p in parameters.items()}, "further": []}


def _moved(tensor: torch.Tensor) -> torch.Tensor:
    """Other inputs of the same kind: rows in another order, elsewhere in memory."""
    moved = tensor.detach().clone()
    if moved.dim() and moved.shape[0] > 1 and (moved.is_floating_point() or moved.is_complex()):
        moved = moved.roll(1, 0)
    return moved.requires_grad_(tensor.requires_grad)


def _forget(inputs: Sequence[torch.Tensor], parameters: Mapping[str, torch.Tensor]) -> None:
    for tensor in [*inputs, *parameters.values()]:
        tensor.grad = None


def _copied(gradient: torch.Tensor | None) -> torch.Tensor | None:
    # a later pass adds to it in place, and whoever made it may write there again
    return None if gradient is None else gradient.detach().clone()


def laid_out(cotangent: torch.Tensor, name: str) -> torch.Tensor:
    """A cotangent as a pass hands it out: its own copy, with strides of its own, expanded, or with NaN."""
    if name == "expanded" and cotangent.numel():
        return cotangent.reshape(-1)[:1].clone().reshape(()).expand(cotangent.shape)
    if name == "strided" and cotangent.dim() >= 2:
        return cotangent.transpose(-1, -2).contiguous().transpose(-1, -2)
    if name == "strided" and cotangent.dim() == 1:
        return torch.stack([cotangent, torch.full_like(cotangent, 7.0)], dim=1)[:, 0]
    if name == "nan":
        return torch.where(cotangent != 0, torch.full_like(cotangent, math.nan), cotangent)
    # one that may be written into without harm to the next pass
    return cotangent.clone()
