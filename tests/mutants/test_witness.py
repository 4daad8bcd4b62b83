"""A mutant counts when it differs from its kernel on some input; one that does not is taken for equivalent."""

from __future__ import annotations

import pytest

from assay import corpus
from assay.mutants import FaultKind, Mutant, mutants_of
from assay.mutants.witness import Answer, find


def mutant(subject: str, old: str, new: str, operator: str = "by hand") -> tuple[str, str, Mutant]:
    entry = corpus.entry(subject)
    assert old in entry.kernel
    made = Mutant(subject, operator, FaultKind.SEMANTIC, 0, 1, new, entry.kernel.replace(old, new))
    return entry.reference, entry.kernel, made


def answers(*jobs: tuple[str, str, Mutant]) -> list[Answer]:
    found: list[Answer] = []
    find(jobs, 1, found.append)
    by_text = {a.mutant.source: a for a in found}
    return [by_text[job[2].source] for job in jobs]


RETURN = "BLOCK_SIZE=256)\n        return out"
CASES = {
    "value": ("0.7071067811865476", "0.7"),
    "dtype": (RETURN, "BLOCK_SIZE=256)\n        return out.double()"),
    "shape": (RETURN, "BLOCK_SIZE=256)\n        return out.unsqueeze(0)"),
    "input": (RETURN, "BLOCK_SIZE=256)\n        x.zero_()\n        return out"),
    "device": (RETURN, "BLOCK_SIZE=256)\n        return out.cpu()"),
    "class": ("other=0.0).to(tl.float32)", "other=0.0).to(tl.float32)\n    x = tl.where(x == x, x, 0.0)"),
    "memory": ("tl.load(x_ptr + offsets, mask=mask, other=0.0)", "tl.load(x_ptr + offsets)"),
    "earlier": ("torch.empty_like(x)", "self.__dict__.setdefault(str(x.shape), torch.empty_like(x))"),
    "history": ("n_elements = out.numel()", "n_elements = out.numel()\n        if hasattr(self, 'kept'):\n"
                "            return self.kept if self.kept.shape == x.shape else out\n        self.kept = out"),
    "random": (RETURN, "BLOCK_SIZE=256)\n        return out * (1 + 1.2e-7 * torch.rand_like(out))"),
    "exit": ("n_elements = out.numel()", "n_elements = out.numel()\n        import os\n        os._exit(0)"),
    "stillborn": ("gelu_kernel[grid](x, out", "gelu_kernel[grid](x"),
}


@pytest.fixture(scope="module")
def seen() -> dict[str, Answer]:
    jobs = {name: mutant("gelu", *change) for name, change in CASES.items()}
    jobs["same"] = mutant("gelu", "mask = offsets < n_elements", "mask = n_elements > offsets")
    return dict(zip(jobs, answers(*jobs.values()), strict=True))


@pytest.mark.parametrize("how", CASES)
def test_a_difference_is_found_and_named(how: str, seen: dict[str, Answer]) -> None:
    assert (seen[how].how, seen[how].problem) == (how, ""), seen[how]
    assert seen[how].witnessed == (how != "stillborn")


def test_the_same_kernel_in_other_words_has_no_witness(seen: dict[str, Answer]) -> None:
    assert not seen["same"].witnessed
    assert seen["same"].problem == ""


def test_less_precision_is_a_difference_and_another_order_is_none() -> None:
    half, order = answers(
        mutant("row_mean", "total += x", "total = (total + x).to(tl.float16).to(tl.float32)"),
        mutant("row_mean", "BLOCK_SIZE=128", "BLOCK_SIZE=32"),
    )
    assert half.how == "value"
    assert half.ratio > 10
    assert not order.witnessed


def test_an_update_that_another_program_undoes_is_found_in_another_order() -> None:
    entry = corpus.entry("atomic_row_sum")
    made = [m for m in mutants_of("atomic_row_sum", entry.kernel, most=2) if m.operator == "lost_update"]
    (found,) = answers(*((entry.reference, entry.kernel, m) for m in made))
    assert found.how == "race"
    assert "tl.load(out_ptr + row) + (tl.sum(x, axis=0))" in found.mutant.source
    (same,) = answers(mutant("atomic_row_sum", "axis=0", "axis=-1"))
    assert not same.witnessed


@pytest.mark.slow
def test_a_product_in_tf32_a_wrong_gradient_and_a_block_too_large_are_found() -> None:
    tf32, severed, large, tuned = answers(
        mutant("matmul_tiled", '"ieee"', '"tf32"'),
        mutant("silu_trained", "Silu.apply(x)", "Silu.apply(x.detach())"),
        mutant("gelu", "n_elements, BLOCK_SIZE=256", "n_elements, BLOCK_SIZE=2097152", "oversized_block"),
        mutant("tuned_row_sum", 'reset_to_zero=["out_ptr"],', ""),
    )
    assert (tf32.how, severed.how, large.how) == ("value", "gradient", "compile")
    assert tuned.where.startswith("while tuning")


@pytest.mark.slow
def test_a_kernel_that_does_not_end_is_a_difference() -> None:
    (found,) = answers(mutant("gelu", "n_elements = out.numel()", "n_elements = out.numel()\n        while True:\n"
                                                                  "            pass"))
    assert found.how == "hang"
