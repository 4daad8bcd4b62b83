"""Inference: clauses read off a task, the same every time, each with how it was seen."""

from __future__ import annotations

import tomllib

import pytest
import torch

from assay.contract import Contract, infer
from assay.contract.domain import conform, declared, narrowed
from assay.contract.toml import write_inferred
from assay.errors import InputError

TRIANGLE = ("N = 24\nM = 10", "return a @ b", "[torch.triu(torch.randn(N, N)), torch.randn(N, M)]")
LOSS = ("B = 32\nC = 10", "return F.cross_entropy(x, y)", "[torch.randn(B, C), torch.randint(0, C, (B,))]")
ROWS = ("ROWS = 5\nCOLS = 40", "return x.sum(-1)", "[torch.rand(ROWS, COLS)]")


def test_structure_ties_and_ranges_become_clauses(studied):
    contract = infer(studied(*TRIANGLE, parameters="a, b")).contract
    assert contract.domain.inputs["0"].structure == ("upper_triangular",)
    assert contract.domain.inputs["0"].axes == ("N", "N")
    assert contract.domain.inputs["1"].structure == ()
    assert contract.domain.inputs["1"].low is None
    targets = infer(studied(*LOSS, parameters="x, y")).contract.domain.inputs["1"]
    assert targets.dtypes == ("int64",)
    assert (targets.low, targets.high) == (0.0, 9.0)


def test_each_clause_says_how_it_was_seen(studied):
    inferred = infer(studied(*LOSS, parameters="x, y"))
    assert "ends at C-1" in inferred.observed["domain.inputs.1.high"]
    assert "the reference ran at" in inferred.observed["domain.sizes.B.minimum"]
    text = write_inferred(inferred, "loss")
    assert "# the reference ran at" in text
    assert Contract.from_data(tomllib.loads(text)) == inferred.contract


@pytest.mark.parametrize("task", [TRIANGLE, LOSS, ROWS])
def test_a_second_inference_writes_the_same_file(studied, task):
    names = {TRIANGLE: "a, b", LOSS: "x, y"}.get(task, "x")
    first, second = (write_inferred(infer(studied(*task, parameters=names)), "task") for _ in range(2))
    assert first == second


@pytest.mark.parametrize(("forward", "word"), [
    ("return x * 0", "zeros"), ("return x + 1e-4", "first input"), ("return torch.ones_like(x)", "constant"),
])
def test_a_weak_task_is_told_before_any_candidate(studied, forward, word):
    warnings = infer(studied("R = 4\nC = 30", forward, "[torch.randn(R, C)]")).warnings
    assert any(w.startswith("weak task") and word in w for w in warnings)


def test_randomness_and_state_are_told(studied):
    dropout = infer(studied("B = 4", "return self.drop(x)", "[torch.randn(B, 30)]",
                            init="self.drop = nn.Dropout(0.5)"))
    assert dropout.contract.determinism == "none"
    assert any("random" in w for w in dropout.warnings)
    norm = infer(studied("B = 4", "return self.norm(x)", "[torch.randn(B, 5)]",
                         init="self.norm = nn.BatchNorm1d(5)"))
    assert any("running_mean" in w for w in norm.warnings)
    assert any("leaves it in training" in w for w in norm.warnings)
    assert norm.contract.domain.parameters["norm.weight"].dtype == "float32"


def test_an_inferred_contract_changes_nothing(studied):
    for task, names in ((TRIANGLE, "a, b"), (LOSS, "x, y"), (ROWS, "x")):
        found = studied(*task, parameters=names)
        contract = infer(found).contract
        assert narrowed(found, contract) == found
        assert declared(found, contract) == {}


def test_what_is_deleted_from_an_inferred_contract_is_no_longer_assumed(studied):
    found = studied(*TRIANGLE, parameters="a, b")
    data = infer(found).contract.model_dump(mode="json")
    del data["domain"]["inputs"]["0"]["structure"]
    changed = narrowed(found, Contract.from_data(data))
    assert not changed.tensor_inputs()[0].structure.has("upper_triangular")


def test_written_ranges_and_structures_replace_inferred_ones(studied):
    found = studied(*ROWS)
    contract = Contract.from_data({
        "domain": {"inputs": {"0": {"low": -2.0, "high": 5.0, "structure": "integral"}}}})
    structure = narrowed(found, contract).tensor_inputs()[0].structure
    assert (structure.low, structure.high) == (-2.0, 5.0)
    assert structure.has("integral", "bounded")
    assert not structure.has("unit_interval", "positive", "non_negative")
    clause = declared(found, contract)[0]
    drawn = conform(torch.randn(200) * 10, clause)
    assert drawn.min() >= -2
    assert drawn.max() <= 5
    assert torch.equal(drawn, drawn.round())


def test_sizes_are_narrowed_and_never_widened(studied):
    found = studied(*ROWS)
    contract = Contract.from_data({"domain": {"sizes": {
        "ROWS": {"minimum": 3, "multiple_of": 3, "maximum": 9}, "COLS": {"fixed": True}}}})
    sizes = {s.name: s for s in narrowed(found, contract).integers}
    assert (sizes["ROWS"].minimum, sizes["ROWS"].maximum, sizes["ROWS"].multiple_of) == (3, 9, 3)
    assert all(a.value in (5, 3, 6, 9) for a in sizes["ROWS"].tried if a.accepted)
    assert not sizes["COLS"].varies


def test_a_name_that_the_task_has_not_got_is_an_error(studied):
    with pytest.raises(InputError, match=r"no size `ROW`.*known: ROWS, COLS"):
        narrowed(studied(*ROWS), Contract.from_data({"domain": {"sizes": {"ROW": {"fixed": True}}}}))


def test_an_index_range_that_follows_a_size_goes_on_following_it(studied):
    found = studied(*LOSS, parameters="x, y")
    contract = infer(found).contract.model_dump(mode="json")
    contract["domain"]["inputs"]["1"]["low"] = 2.0
    clause = declared(found, Contract.from_data(contract))[1]
    assert (clause.low, clause.high) == (2.0, None)
    assert narrowed(found, Contract.from_data(contract)).tensor_inputs()[1].structure.high_axis == "C"
    contract["domain"]["inputs"]["1"]["high"] = 5.0
    changed = Contract.from_data(contract)
    assert declared(found, changed)[1].high == 5.0
    assert narrowed(found, changed).tensor_inputs()[1].structure.high_axis is None


def test_sizes_beside_a_varied_one_are_within_the_contract(studied):
    found = studied("ROWS = 30\nCOLS = 64", "return x * 2", "[torch.randn(ROWS, COLS)]")
    assert found.beside["ROWS"] < 20
    contract = Contract.from_data({"domain": {"sizes": {"ROWS": {"minimum": 20}, "COLS": {"fixed": True}}}})
    assert narrowed(found, contract).beside == {"ROWS": 20}
