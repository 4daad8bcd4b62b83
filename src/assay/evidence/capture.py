"""The tensors of a finding: what went in, what was expected, what came out."""

from __future__ import annotations

import torch

from assay.evidence.model import Captured
from assay.gates.gradient_reasons import gradients_of
from assay.oracle import LeafTruth
from assay.probe.record import Record

LIMIT_BYTES = 64 << 20
"""Most bytes of tensors kept of one finding."""


def capture(record: Record, limit: int = LIMIT_BYTES) -> Captured:
    """Inputs, truths and results of a record; nothing but a note where they take more than `limit` bytes."""
    found: dict[str, torch.Tensor] = {}
    for number, drawn in enumerate(record.truths):
        for leaf, tensor in enumerate(drawn.inputs):
            found[f"input.{number}.{leaf}"] = tensor
        for leaf, tensor in enumerate(drawn.cotangents):
            found[f"cotangent.{number}.{leaf}"] = tensor
    if sum(map(_size, found.values())) > limit:
        return _too_much(found, limit)
    for number, draw in enumerate(c.draw for c in record.probe.calls):
        truth = record.truths[draw] if draw < len(record.truths) else None
        for place, leaf_truth in enumerate(truth.leaves if truth is not None else ()):
            _keep_truth(found, leaf_truth, f"{{}}.{number}.{place}")
        if number < len(record.observation.calls):
            call = record.observation.calls[number]
            for place, output in enumerate(call.outputs):
                found[f"actual.{number}.{place}"] = output.tensor
            if truth is not None and truth.gradients:
                for name, leaf_truth in truth.gradients.items():
                    _keep_truth(found, leaf_truth, f"gradient.{{}}.{number}.{name}")
                found |= {f"gradient.actual.{number}.{name}": g for name, g in gradients_of(call).items()
                          if g is not None}
        if sum(map(_size, found.values())) > limit:
            return _too_much(found, limit)
    return Captured({name: tensor for name, tensor in found.items() if _plain(tensor)})


def _keep_truth(found: dict[str, torch.Tensor], truth: LeafTruth, name: str) -> None:
    found[name.format("expected")] = truth.y
    if truth.native is not None:
        found[name.format("native")] = truth.native
    if truth.kind in ("float", "complex") and truth.spread.numel():
        found[name.format("tolerance")] = truth.tolerance


def _size(tensor: torch.Tensor) -> int:
    return tensor.numel() * tensor.element_size()


def _plain(tensor: torch.Tensor) -> bool:
    return tensor.layout is torch.strided and not tensor.is_quantized


def _too_much(found: dict[str, torch.Tensor], limit: int) -> Captured:
    size = sum(map(_size, found.values()))
    return Captured({}, f"inputs and outputs take {size / (1 << 20):.0f} MiB or more, over the limit of "
                        f"{limit / (1 << 20):g} MiB: the recipe alone is kept")
