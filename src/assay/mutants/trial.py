"""One mutant against the experiments of its subject: the first difference found. Runs in a forked child."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterator
from typing import Any

import torch

from assay.mutants.experiments import (
    Expected,
    Experiment,
    Laboratory,
    build,
    copies,
    differs,
    expected_of,
    leaves,
    set_weights,
    widened,
)
from assay.run.emulation.orders import ORDERS

REPEATS = 4


@dataclasses.dataclass(frozen=True)
class Witness:
    """An experiment on which a mutant differs from the kernel it was made of.

    Attributes:
        how: `value`, `class`, `integer`, `shape`, `dtype`, `structure`, `device`, `raised`, `memory`, `input`,
            `alias`, `earlier`, `history`, `weights`, `random`, `unwritten`, `gradient`, `hang`, `exit`, `compile`.
        where: the experiment.
        ratio: by how many times what is legal; infinite where there is nothing to measure.
    """

    how: str
    where: str
    ratio: float = math.inf


def search(lab: Laboratory, mutant: Any, emulation: Any, gradients: bool) -> Witness | None:
    """The first experiment that tells a mutant from the right kernel, or None.

    Args:
        lab: the subject's experiments.
        mutant: the mutant's module.
        emulation: the emulated device of this process.
        gradients: whether the kernel has a backward pass of its own.
    """
    for trial in (_single, _repeated, _orders, _changed_weights, _fresh_memory, _configurations):
        found = next(trial(lab, mutant, emulation), None)
        if found is not None:
            return found
    return next(_backward(lab, mutant), None) if gradients else None


def _model(mutant: Any, experiment: Experiment) -> Any:
    model = build(mutant, "ModelNew", experiment.module)
    set_weights(model, experiment.weights)
    return model


def _single(lab: Laboratory, mutant: Any, emulation: Any) -> Iterator[Witness]:
    """One call on each experiment, with a fresh instance."""
    for experiment in lab.experiments:
        emulation.reset()
        inputs = copies(experiment.inputs)
        kept = copies(inputs)
        try:
            with torch.no_grad():
                outputs = leaves(_model(mutant, experiment)(*inputs))
        except Exception as error:
            # one that never runs is no kernel with a fault: it is stillborn
            how = "stillborn" if experiment is lab.experiments[0] else "raised"
            yield Witness(how, f"{experiment.name}: {type(error).__name__}")
            return
        if emulation.access_faults():
            yield Witness("memory", experiment.name)
        difference = differs(experiment.expected, outputs)
        if difference is not None:
            yield Witness(difference[0], experiment.name, difference[1])
        if any(isinstance(a, torch.Tensor) and not same(a, b) for a, b in zip(inputs, kept, strict=True)):
            yield Witness("input", experiment.name)
        storages = {t.untyped_storage().data_ptr() for t in inputs if isinstance(t, torch.Tensor) and t.numel()}
        if any(o.numel() and o.untyped_storage().data_ptr() in storages for o in outputs):
            yield Witness("alias", experiment.name)
        if any(emulation.is_host(o) for o in outputs):
            yield Witness("device", experiment.name)


def _draws(lab: Laboratory) -> list[Experiment]:
    return [e for e in lab.experiments if e.sizes == lab.native and e.name.startswith("draw")]


def _repeated(lab: Laboratory, mutant: Any, emulation: Any) -> Iterator[Witness]:
    """Several calls of one instance: others' results, kept outputs, new values at old addresses."""
    draws = _draws(lab)
    if len(draws) < 2:
        return
    first, second = draws[:2]
    model = _model(mutant, first)
    kept: list[tuple[list[torch.Tensor], list[torch.Tensor]]] = []
    with torch.no_grad():
        for experiment in [first, second, first, second, second, first][: REPEATS + 2]:
            outputs = leaves(model(*copies(experiment.inputs)))
            difference = differs(experiment.expected, outputs)
            if difference is not None:
                yield Witness("history", experiment.name, difference[1])
            for earlier, values in kept:
                if any(not same(a, b) for a, b in zip(earlier, values, strict=True)):
                    yield Witness("earlier", experiment.name)
            kept.append((outputs, [o.clone() for o in outputs]))
        model = _model(mutant, first)
        inputs = copies(first.inputs)
        model(*inputs)
        for mine, theirs in zip(inputs, second.inputs, strict=True):
            if isinstance(mine, torch.Tensor):
                mine.copy_(theirs)
        difference = differs(second.expected, leaves(model(*inputs)))
        if difference is not None:
            yield Witness("history", "new values at old addresses", difference[1])
        one, two = (leaves(model(*copies(first.inputs))) for _ in range(2))
        if any(not same(a, b) for a, b in zip(one, two, strict=True)):
            yield Witness("random", first.name)


def _orders(lab: Laboratory, mutant: Any, emulation: Any) -> Iterator[Witness]:
    """Programs of each launch in the other orders that a GPU may choose."""
    for experiment in _draws(lab):
        for name in ORDERS:
            emulation.reset()
            emulation.run_in_order(name)
            with torch.no_grad():
                outputs = leaves(_model(mutant, experiment)(*copies(experiment.inputs)))
            emulation.reset()
            difference = differs(experiment.expected, outputs)
            if difference is not None:
                yield Witness("race", f"{experiment.name}, {name}", difference[1])


def _changed_weights(lab: Laboratory, mutant: Any, emulation: Any) -> Iterator[Witness]:
    """Parameters changed in place between two calls."""
    draws = _draws(lab)
    if not draws or not draws[0].weights:
        return
    first = draws[0]
    torch.manual_seed(99)
    weights = {n: t * (0.5 + torch.rand(t.shape)).to(t.dtype) if t.is_floating_point() else t
               for n, t in first.weights.items()}
    module = first.module
    reference = build(module, "Model", module)
    set_weights(reference, weights)
    expected = lab.expect(module, reference, first.inputs, weights)
    model = _model(mutant, first)
    with torch.no_grad():
        model(*copies(first.inputs))
        set_weights(model, weights)
        difference = differs(expected, leaves(model(*copies(first.inputs)))) if expected else None
    if difference is not None:
        yield Witness("weights", "weights changed in place", difference[1])


def _fresh_memory(lab: Laboratory, mutant: Any, emulation: Any) -> Iterator[Witness]:
    """Fresh memory filled with different values: nothing may depend on them."""
    names = ("empty", "empty_like")
    originals = {name: getattr(torch, name) for name in names}

    def filled(make: Callable[..., torch.Tensor], value: float) -> Callable[..., torch.Tensor]:
        def fresh(*args: Any, **kwargs: Any) -> torch.Tensor:
            tensor = make(*args, **kwargs)
            return tensor.fill_(value if tensor.is_floating_point() else (value == value and int(value)))

        return fresh

    try:
        for experiment in _draws(lab)[:1] + lab.experiments[2:6]:
            for value in (math.nan, 7.0):
                for name in names:
                    setattr(torch, name, filled(originals[name], value))
                with torch.no_grad():
                    outputs = leaves(_model(mutant, experiment)(*copies(experiment.inputs)))
                difference = differs(experiment.expected, outputs)
                if difference is not None:
                    yield Witness("unwritten", experiment.name, difference[1])
    finally:
        for name in names:
            setattr(torch, name, originals[name])


def _configurations(lab: Laboratory, mutant: Any, emulation: Any) -> Iterator[Witness]:
    """Every configuration of an autotuned kernel, and a first call that tries them all."""
    count = max(emulation.configs().values(), default=0)
    for number in [*range(count), None] if count else []:
        emulation.force_config(number)
        emulation.tune_on_first_call(number is None)
        for experiment in lab.experiments[:12]:
            emulation.reset()
            with torch.no_grad():
                outputs = leaves(_model(mutant, experiment)(*copies(experiment.inputs)))
            difference = differs(experiment.expected, outputs)
            where = "while tuning" if number is None else f"configuration {number}"
            if difference is not None or emulation.access_faults():
                yield Witness(difference[0] if difference else "memory", f"{where}, {experiment.name}",
                              difference[1] if difference else math.inf)
    emulation.force_config(None)
    emulation.tune_on_first_call(False)


def _backward(lab: Laboratory, mutant: Any) -> Iterator[Witness]:
    """Gradients of a projection of the output, against float64; dense and expanded incoming gradients; twice."""
    for experiment in [e for e in lab.experiments if all(bool((x.kinds == 0).all()) for x in e.expected)][:16]:
        for spread in (False, True):
            try:
                wanted = _gradients(widened(experiment.module, experiment.weights), experiment, spread, wide=True)
                right = build(lab.right, "ModelNew", experiment.module)
                set_weights(right, experiment.weights)
                own = _gradients(right, experiment, spread)
                reference = build(experiment.module, "Model", experiment.module)
                set_weights(reference, experiment.weights)
                native = _gradients(reference, experiment, spread)
            except Exception:
                continue
            try:
                got, again = (_gradients(_model(mutant, experiment), experiment, spread) for _ in range(2))
            except Exception as error:
                yield Witness("gradient", f"{experiment.name}: {type(error).__name__}")
                return
            expected: list[Expected] = []
            outputs = []
            for want, mine, theirs, given in zip(wanted, own, native, got, strict=True):
                if want is None or mine is None or theirs is None:
                    continue
                if given is None:
                    yield Witness("gradient", f"{experiment.name}: none")
                    return
                # what autograd itself keeps and rounds between the passes is legal too
                expected.append(expected_of(mine, want, mine, (theirs,)))
                outputs.append(given)
            difference = differs(expected, outputs)
            if difference is not None:
                yield Witness("gradient", experiment.name, difference[1])
            if any(a is not None and b is not None and not same(a, b) for a, b in zip(got, again, strict=True)):
                yield Witness("random", f"gradient, {experiment.name}")


def _gradients(model: Any, experiment: Experiment, spread: bool, wide: bool = False) -> list[torch.Tensor | None]:
    """Gradients of inputs and parameters after two backward passes through one graph."""
    inputs = copies(experiment.inputs)
    if wide:
        inputs = [t.double() if isinstance(t, torch.Tensor) and t.is_floating_point() else t for t in inputs]
    sources = [t.requires_grad_() for t in inputs if isinstance(t, torch.Tensor) and t.is_floating_point()]
    output = leaves(model(*inputs))[0]
    generator = torch.Generator().manual_seed(3)
    if spread:
        up = torch.randn(output.shape[:1], generator=generator).to(output.dtype)
        up = up.reshape(-1, *[1] * (output.dim() - 1)).expand(output.shape)
    else:
        up = torch.randn(output.shape, generator=generator).to(output.dtype)
    output.backward(up, retain_graph=True)  # type: ignore[no-untyped-call]
    output.backward(up)  # type: ignore[no-untyped-call]
    return [t.grad for t in [*sources, *model.parameters()]]


def same(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Whether two tensors hold the same bits, NaN equal to NaN."""
    if a.shape != b.shape or a.dtype != b.dtype:
        return False
    return bool(((a == b) | ((a != a) & (b != b))).all())
