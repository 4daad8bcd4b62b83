"""Inputs with a known truth for timed calls: draws of the task's generator, each with a twin."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Sequence
from dataclasses import dataclass

from assay.errors import InputError
from assay.probe.model import Draw, Injection
from assay.probe.record import Truth
from assay.run import codec
from assay.run.reference import ReferenceSession
from assay.task.facts import Study

PLACES = (0.55, 0.61, 0.68, 0.74, 0.83, 0.91, 0.96, 0.99)
"""Where a twin differs from its draw, as parts of an input's length: nowhere near its start."""
PLAIN = frozenset({"normal_like"})
"""Structures of an input in which a value near zero is one like any other."""


@dataclass(frozen=True)
class Known:
    """Draws with their truths.

    Attributes:
        truths: by draw.
        groups: draws that follow each other: a draw and its twin, or two draws where no input has a plain value.
    """

    truths: tuple[Truth, ...]
    groups: tuple[tuple[int, ...], ...]

    @property
    def forms(self) -> list[codec.TensorForm]:
        """How each tensor input lies."""
        first = self.truths[0]
        return [dataclasses.replace(codec.form_of(t), stride=tuple(stride))
                for t, stride in zip(first.inputs, first.strides, strict=True)]

    @property
    def input_bytes(self) -> int:
        """Bytes of one set of inputs."""
        return sum(t.numel() * t.element_size() for t in self.truths[0].inputs)

    @property
    def output_bytes(self) -> int:
        """Bytes of one set of outputs."""
        return sum(leaf.native.numel() * leaf.native.element_size() for leaf in self.truths[0].leaves)


def twin_of(draw: Draw, study: Study) -> Draw | None:
    """The same draw with a few values near zero far from the start of each plain input; None where none is plain."""
    plain = [i for i, leaf in enumerate(study.tensor_inputs())
             if leaf.structure is not None and leaf.structure.kind == "float" and set(leaf.structure.traits) <= PLAIN
             and "normal_like" in leaf.structure.traits]
    if not plain:
        return None
    return draw.model_copy(update={"injections": tuple(
        Injection(leaf=leaf, position=place, value="tiny") for leaf in plain for place in PLACES)})


def known_draws(reference: ReferenceSession, study: Study, sizes: dict[str, int], seeds: Sequence[int],
                seconds: float) -> Known:
    """Groups of draws, at least one, as many as there are seeds for and the time allows.

    Args:
        reference: where the truths come from.
        study: of the task.
        sizes: overrides of its integers.
        seeds: two for each group.
        seconds: after which no further group is begun.

    Raises:
        InputError: the reference has no truth at these sizes.
    """
    began = time.monotonic()
    truths: list[Truth] = []
    groups: list[tuple[int, ...]] = []
    for first, second in zip(seeds[::2], seeds[1::2], strict=False):
        draw = Draw(seed=first)
        group = [_truth(reference, sizes, draw)]
        twin = twin_of(draw, study)
        other = None if twin is None else reference.truth(sizes, None, twin, first)
        group.append(other if other is not None and _decides(other) else _truth(reference, sizes, Draw(seed=second)))
        groups.append(tuple(range(len(truths), len(truths) + len(group))))
        truths += group
        if time.monotonic() - began > seconds:
            break
    return Known(tuple(truths), tuple(groups))


def _truth(reference: ReferenceSession, sizes: dict[str, int], draw: Draw) -> Truth:
    truth = reference.truth(sizes, None, draw, draw.seed)
    if not truth.ok:
        raise InputError(f"timed outputs could not be checked: {truth.status}: {truth.text}"[:400], "the reference",
                         "give it sizes at which it runs and fits in memory (--size NAME=VALUE)")
    if truth.random:
        raise InputError("timed outputs cannot be checked: the reference draws random numbers", "the reference",
                         "time it in evaluation mode, or without the random part")
    if not _decides(truth):
        raise InputError("timed outputs cannot be checked: the reference is unstable on its own inputs",
                         "the reference", "give it inputs on which it agrees with its float64 replay")
    return truth


def _decides(truth: Truth) -> bool:
    """Whether more than half of the outputs' elements can be judged."""
    if not truth.ok:
        return False
    decided = sum(int(leaf.decided.sum()) for leaf in truth.leaves)
    return 2 * decided > sum(leaf.y.numel() for leaf in truth.leaves)
