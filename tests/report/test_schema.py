"""The published schemas hold for what is really written."""

from __future__ import annotations

import json

import jsonschema
import pytest

from assay.contract import Contract
from assay.report.model import Report
from assay.report.schema import SCHEMAS, contract_schema, report_schema
from assay.vocabulary import Label, Outcome, Reason


@pytest.mark.parametrize("name", sorted(SCHEMAS))
def test_each_schema_is_a_valid_json_schema(name: str) -> None:
    jsonschema.Draft202012Validator.check_schema(SCHEMAS[name]())


def test_a_real_report_is_valid(real_report: Report) -> None:
    assert real_report.label is Label.REJECTED
    jsonschema.validate(json.loads(real_report.to_json()), report_schema())


def test_a_report_with_every_kind_of_content_is_valid(made_report: Report) -> None:
    jsonschema.validate(json.loads(made_report.to_json()), report_schema())


def test_a_report_reads_back_to_the_same_bytes(real_report: Report) -> None:
    assert Report.model_validate_json(real_report.to_json()).to_json() == real_report.to_json()


@pytest.mark.parametrize(
    "change",
    [
        {"label": "fine"},
        {"surprise": 1},
        {"schema_version": 1},
        {"findings": None},
    ],
)
def test_what_is_no_report_is_refused(made_report: Report, change: dict[str, object]) -> None:
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({**json.loads(made_report.to_json()), **change}, report_schema())


def test_the_schema_lists_every_reason_and_outcome() -> None:
    definitions = report_schema()["$defs"]
    assert set(definitions["Reason"]["enum"]) == {r.value for r in Reason}
    assert set(definitions["Outcome"]["enum"]) == {o.value for o in Outcome}


def test_only_timing_differs_between_two_reports_without_it(made_report: Report) -> None:
    later = made_report.model_copy(update={"timing": made_report.timing.model_copy(update={"total_s": 9.0})})
    assert later.to_json() != made_report.to_json()
    assert later.to_json(timing=False) == made_report.to_json(timing=False)


def test_the_default_contract_is_valid_and_a_wrong_key_is_not() -> None:
    data = Contract().model_dump(mode="json")
    jsonschema.validate(data, contract_schema())
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({**data, "determinsm": "bitwise"}, contract_schema())
