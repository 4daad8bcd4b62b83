"""Operators change one thing in the text of a right kernel, and leave every other line as it is."""

from __future__ import annotations

import ast
import difflib

import pytest

from assay import corpus
from assay.mutants import OPERATORS, FaultKind, Mutant, Source, mutants_of
from assay.mutants.experiments import integers, resized
from assay.mutants.source import apply


@pytest.fixture(scope="module")
def made() -> list[Mutant]:
    return [m for entry in corpus.entries() for m in mutants_of(entry.id, entry.kernel, integers(entry.reference))]


def test_there_are_operators_for_every_kind_of_fault() -> None:
    assert len(OPERATORS) >= 40
    assert len({o.name for o in OPERATORS}) == len(OPERATORS)
    assert {o.kind for o in OPERATORS} == set(FaultKind)


def test_every_operator_applies_to_some_kernel_of_the_corpus(made: list[Mutant]) -> None:
    assert {o.name for o in OPERATORS} == {m.operator for m in made}


def test_mutants_are_python_all_different_and_named_once(made: list[Mutant]) -> None:
    assert len({m.id for m in made}) == len(made)
    assert len({(m.subject, m.source) for m in made}) == len(made)
    for mutant in made:
        ast.parse(mutant.source)


def test_a_mutant_differs_from_its_kernel_in_a_few_lines(made: list[Mutant]) -> None:
    for mutant in made:
        lines = corpus.entry(mutant.subject).kernel.splitlines()
        kept = difflib.SequenceMatcher(None, lines, mutant.source.splitlines(), autojunk=False)
        same = sum(block.size for block in kept.get_matching_blocks())
        assert len(lines) - same <= 7, mutant.id


def test_at_least_thirty_operators_are_mutated(made: list[Mutant]) -> None:
    assert len({m.subject for m in made}) >= 30


def test_faults_of_a_backward_pass_are_faults_of_gradients() -> None:
    entry = corpus.entry("silu_trained")
    text = entry.kernel
    start = text.index("def backward_kernel")
    end = text.index("class Silu")
    for mutant in mutants_of(entry.id, text):
        changed = next(i for i, (a, b) in enumerate(zip(text, mutant.source, strict=False)) if a != b)
        if start < changed < end:
            assert mutant.kind is FaultKind.GRADIENT, mutant.id


def test_an_edit_keeps_comments_and_text_beyond_ascii() -> None:
    text = "# größe\n@triton.jit\ndef k(x_ptr):\n    a = tl.max(x_ptr, axis=0)  # löschen\n"
    source = Source(text)
    call = next(source.kernel_calls("max"))
    assert apply(text, source.replace(call.func, "tl.min")) == text.replace("tl.max", "tl.min")


def test_a_reference_can_be_had_at_other_sizes() -> None:
    reference = corpus.entry("matmul_tiled").reference
    other = resized(reference, {"K": 7})
    assert integers(other) == {**integers(reference), "K": 7}
    assert other.replace("K = 7", "K = 50") == reference
