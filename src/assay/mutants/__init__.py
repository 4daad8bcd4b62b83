"""Right kernels with one fault each, and whether the fault really shows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

from assay.mutants import behaviour, meaning, memory, precision
from assay.mutants.model import Edit, FaultKind, Mutant, Operator
from assay.mutants.source import Source, apply

__all__ = ["OPERATORS", "Edit", "FaultKind", "Mutant", "Operator", "Source", "mutants_of"]

OPERATORS: tuple[Operator, ...] = (
    *memory.OPERATORS, *meaning.OPERATORS, *precision.OPERATORS, *behaviour.OPERATORS,
)
"""Every operator, by name unique."""

HALF = frozenset({"missing_cast", "half_accumulator", "bf16_accumulator", "narrow_intermediate", "half_operands"})
"""Operators worth applying to a half-precision task too: elsewhere its mutants say what those at fp32 say."""


def mutants_of(subject: str, text: str, sizes: dict[str, int] | None = None, *, most: int = 4,
               operators: Iterable[Operator] = OPERATORS) -> Iterator[Mutant]:
    """Every mutant of a kernel, at most `most` per operator, spread over its places; equal texts once.

    Args:
        subject: name of the kernel.
        text: its source.
        sizes: module-level integers of its reference.
        most: places per operator.
        operators: which.
    """
    source = Source(text, sizes)
    seen = {text}
    for operator in operators:
        edits = []
        for edit in operator.find(source):
            try:
                changed = apply(text, edit)
            except SyntaxError:
                continue
            if changed not in seen:
                seen.add(changed)
                edits.append((edit, changed))
        for number, place in enumerate(_spread(len(edits), most)):
            edit, changed = edits[place]
            kind = FaultKind.GRADIENT if source.in_backward(edit.start) else operator.kind
            yield Mutant(subject, operator.name, kind, number, source.line_of(edit.start), edit.note, changed)


def _spread(count: int, most: int) -> list[int]:
    """At most `most` of `count` places, evenly spread."""
    if count <= most:
        return list(range(count))
    return [i * count // most for i in range(most)]


def counts(mutants: Iterable[Mutant]) -> Counter[FaultKind]:
    """How many mutants of each kind."""
    return Counter(m.kind for m in mutants)
