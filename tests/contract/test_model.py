"""The contract as data: strict keys, a published schema, and TOML that reads back."""

from __future__ import annotations

import tomllib

import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from assay.contract import Contract, contract_schema, merge
from assay.contract.toml import write
from assay.errors import InputError
from assay.gates import GATES


@pytest.mark.parametrize(("data", "says"), [
    ({"numeric": {}}, "unknown key `numeric`; did you mean `numerics`?"),
    ({"domain": {"sizes": {"N": {"minimun": 2}}}}, "did you mean `minimum`?"),
    ({"domain": {"inputs": {"0": {"layout": []}}}}, "did you mean `layouts`?"),
    ({"domain": {"inputs": {"0": {"structure": "uper_triangular"}}}}, "did you mean `upper_triangular`?"),
    ({"domain": {"inputs": {"0": {"layouts": ["transpose"]}}}}, "did you mean `transposed`?"),
    ({"exceptional": {"nan": "allow"}}, "exceptional.nan"),
    ({"policy": {"advisory": ["layout"]}}, "did you mean `layouts`?"),
    ({"schema_version": 2}, "schema_version"),
])
def test_an_unknown_key_names_the_nearest_right_one(data, says):
    with pytest.raises(InputError) as caught:
        Contract.from_data(data)
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_policy_knows_every_gate():
    assert Contract.from_data({"policy": {"blocking": list(GATES)}}).policy.blocking == tuple(GATES)


def test_the_schema_admits_what_is_written_and_nothing_else():
    schema = contract_schema()
    jsonschema.Draft202012Validator.check_schema(schema)
    check = jsonschema.Draft202012Validator(schema)
    assert check.is_valid(Contract().model_dump(mode="json", exclude_none=True))
    assert check.is_valid({"domain": {"inputs": {"0": {"structure": "symmetric"}}}})
    assert not check.is_valid({"numerics": {"accumulates": "fp32"}})
    assert not check.is_valid({"exceptional": {"nan": "sometimes"}})


NAMES = st.text(min_size=1, max_size=12)
CONTRACTS = st.builds(
    lambda sizes, inputs, nan, tf32, inplace: Contract.from_data({
        "domain": {"sizes": sizes, "inputs": inputs}, "exceptional": {"nan": nan},
        "numerics": {"matmul": tf32}, "memory": {"inplace": inplace},
    }),
    st.dictionaries(NAMES, st.fixed_dictionaries({
        "minimum": st.integers(0, 9), "fixed": st.booleans()}), max_size=3),
    st.dictionaries(NAMES, st.fixed_dictionaries({
        "low": st.floats(allow_nan=False), "structure": st.sampled_from([None, [], ["banded", "symmetric"]]),
    }), max_size=3),
    st.sampled_from(["propagate", "reference", "ignore"]), st.sampled_from(["ieee", "tf32"]),
    st.lists(NAMES, max_size=2),
)


@settings(max_examples=150, deadline=None)
@given(CONTRACTS, st.text(max_size=30))
def test_what_is_written_reads_back(contract, note):
    observed = {"exceptional.nan": note, "domain.sizes": note, "memory.inplace": note}
    text = write(contract, observed=observed, head=("first", note.replace("\n", " ").replace("\r", " ")))
    assert Contract.from_data(tomllib.loads(text)) == contract


@pytest.mark.parametrize("name", ["0\n", "a\nb", "\n", " a", "a.b", "a]", 'a"', "é", "", "a\r", "a b"])
def test_names_that_no_bare_key_can_be_read_back(name):
    contract = Contract.from_data({"domain": {"sizes": {name: {"minimum": 2}}, "inputs": {name: {"low": 0.0}}}})
    assert Contract.from_data(tomllib.loads(write(contract))) == contract


def test_what_a_person_wrote_wins():
    inferred = Contract.from_data({
        "domain": {"sizes": {"N": {"minimum": 0, "multiple_of": 4}},
                   "inputs": {"0": {"structure": ["ascending"], "low": 0.0}}},
        "determinism": "bitwise",
    })
    written = Contract.from_data({
        "domain": {"sizes": {"N": {"minimum": 2}}, "inputs": {"0": {"structure": []}}},
        "exceptional": {"nan": "ignore"},
    })
    merged = merge(inferred, written)
    assert (merged.domain.sizes["N"].minimum, merged.domain.sizes["N"].multiple_of) == (2, 4)
    assert merged.domain.inputs["0"].structure == ()
    assert merged.domain.inputs["0"].low == 0.0
    assert merged.exceptional.nan == "ignore"
    assert merged.determinism == "bitwise"
    assert merge(inferred, Contract()) == inferred
