"""What the backward passes of a probe are: call by call, in words that fit into its conditions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

PASSES = ("plain", "again", "strided", "expanded", "nan", "crossed")
PREFIX = "backward:"


@dataclass(frozen=True)
class Step:
    """One forward, and the backward passes over the graph it leaves.

    Attributes:
        passes: in order: `plain` (a contiguous grad_output), `again` (the same once more, added to the
            gradients that are there), `strided` (the same values, not contiguous), `expanded` (the same values
            from one element, for a constant grad_output), `nan` (NaN in place of what is not zero), `crossed` (the
            same after another forward, on other inputs).
        ask: names of what requires a gradient, `input:K` or `parameter:NAME`; None for all there is.
        inference: no backward at all: the forward runs in inference mode.
    """

    passes: tuple[str, ...] = ("plain",)
    ask: tuple[str, ...] | None = None
    inference: bool = False

    def text(self) -> str:
        """The step as a word."""
        if self.inference:
            return "inference"
        asked = [] if self.ask is None else ["ask=" + ";".join(self.ask)]
        return "+".join([*asked, *self.passes])


PLAIN = (Step(),)


def condition(steps: Sequence[Step]) -> str:
    """The condition of a probe whose calls take these steps."""
    return PREFIX + "|".join(step.text() for step in steps)


def steps_of(conditions: Sequence[str]) -> tuple[Step, ...]:
    """The steps that a probe's conditions name; one plain pass where they name none."""
    found = next((c.removeprefix(PREFIX) for c in conditions if c.startswith(PREFIX)), "")
    return parsed(found)


def parsed(text: str) -> tuple[Step, ...]:
    """Steps from the text of a condition. Raises ValueError for a pass that there is not."""
    if not text:
        return PLAIN
    steps = []
    for word in text.split("|"):
        if word == "inference":
            steps.append(Step((), inference=True))
            continue
        parts = word.split("+")
        ask = None
        if parts[0].startswith("ask="):
            ask = tuple(parts.pop(0).removeprefix("ask=").split(";"))
        if unknown := [p for p in parts if p not in PASSES]:
            raise ValueError(f"no backward pass `{unknown[0]}`")
        steps.append(Step(tuple(parts), ask))
    return tuple(steps)
