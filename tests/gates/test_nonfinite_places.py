"""Where exceptional values are put, and what the gate says of each policy."""

from __future__ import annotations

import pytest
import torch

from assay.contract import Contract
from assay.gates.nonfinite import places
from assay.probe.structure import infer
from assay.report.model import Report
from assay.run.process import Zygote
from assay.task import parse_candidate, parse_task
from assay.verify import Options, verify_task
from assay.vocabulary import EffortTier


def flats(shape, blocks, count, structure=None):
    total = torch.Size(shape).numel()
    return {name: int(position * total) for name, position in places(shape, blocks, count, structure)}


def test_both_sides_of_the_nearest_block_border_come_early():
    found = flats((6, 200), (64, 128, 1024), 6)
    row = 3 * 200
    assert found["last"] == 6 * 200 - 1
    assert (found["before-128"], found["at-128"]) == (row + 127, row + 128)


def test_without_blocks_the_ends_of_all_and_of_a_row_are_taken():
    found = flats((4, 10), (), 5)
    assert found == {"inside": 16, "last": 39, "first": 0, "row-end": 29, "row-start": 20}


@pytest.mark.parametrize("shape", [(), (1,), (3, 1), (1, 1, 1)])
def test_small_shapes_have_each_element_once(shape):
    found = flats(shape, (16,), 10)
    assert len(set(found.values())) == len(found) <= torch.Size(shape).numel()


def test_an_empty_input_has_no_place():
    assert places((0, 4), (), 4) == []


@pytest.mark.parametrize(("make", "legal"), [
    (lambda m: m.triu(), lambda r, c: c >= r), (lambda m: m.tril(), lambda r, c: c <= r),
    (lambda m: m.triu(-1).tril(1), lambda r, c: abs(r - c) <= 1), (lambda m: m + m.T, lambda r, c: r == c),
])
def test_elements_that_a_structure_keeps_at_zero_are_left_alone(make, legal):
    structure = infer([make(torch.randn(40, 40)) for _ in range(3)])
    for flat in flats((40, 40), (16,), 10, structure).values():
        assert legal(flat // 40, flat % 40)


TASK = """
import torch
import torch.nn as nn

ROWS = 5


class Model(nn.Module):
    def forward(self, x):
        return x.amax(dim=-1)


def get_inputs():
    return [torch.randn(ROWS, 60)]


def get_init_inputs():
    return []
"""
SWALLOWS = """
import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        return torch.where(x.isnan(), float("-inf"), x).amax(dim=-1)
"""
OVERFLOWS = SWALLOWS.replace("torch.where(x.isnan(), float(\"-inf\"), x)", "x.clamp(-1e30, 1e30)")


@pytest.fixture
def judged(zygote: Zygote):
    def judge(candidate: str, **clauses: str) -> Report:
        options = Options(device="cpu", tier=EffortTier.STANDARD, only=("nonfinite",), seed=2, lanes=1)
        contract = Contract.from_data({"exceptional": clauses})
        return verify_task(parse_task(TASK), parse_candidate(candidate), contract=contract, options=options,
                           zygote=zygote)

    return judge


def test_the_note_splits_what_failed_by_clause(judged):
    swallowed = judged(SWALLOWS)
    assert {f.reason.value for f in swallowed.findings} == {"nan_swallowed"}
    assert {f.detail["clause"] for f in swallowed.findings} == {"nan"}
    note = next(g.note for g in swallowed.gates)
    assert note is not None
    assert "0 of 4 Inf probes failed" in note
    overflowed = judged(OVERFLOWS)
    assert {f.reason.value for f in overflowed.findings} == {"inf_swallowed"}
    assert {f.detail["clause"] for f in overflowed.findings} == {"inf"}


def test_a_waived_clause_is_not_probed(judged):
    assert judged(SWALLOWS, nan="ignore").findings == ()
    assert judged(OVERFLOWS, inf="ignore").findings == ()
    assert judged(SWALLOWS, inf="ignore").findings != ()


HALVES = TASK.replace("return x.amax(dim=-1)", "return torch.tanh(x)")
WITHOUT = """
import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        return torch.tanh(x)
"""
# one unit in the last place of everything, well inside the tolerance, as soon as there is a NaN anywhere
MOVES = WITHOUT.replace("torch.tanh(x)", "torch.tanh(x) * torch.where(x.isnan().any(), 1 + 2.0**-23, 1.0)")


@pytest.mark.parametrize(("candidate", "contract", "reasons"), [
    (WITHOUT, {}, set()), (MOVES, {}, {"leaked"}), (MOVES, {"determinism": "bounded"}, set()),
])
def test_what_cannot_depend_on_a_nan_keeps_its_bits(zygote: Zygote, candidate, contract, reasons):
    options = Options(device="cpu", tier=EffortTier.QUICK, only=("nonfinite",), seed=2, lanes=1)
    report = verify_task(parse_task(HALVES), parse_candidate(candidate), contract=Contract.from_data(contract),
                         options=options, zygote=zygote)
    assert {f.reason.value for f in report.findings} == reasons
    assert all(f.tolerance_free for f in report.findings)
    assert report.gates[0].outcome == ("fail" if reasons else "pass")
