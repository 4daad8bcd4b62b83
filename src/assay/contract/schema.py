"""The published JSON Schema of a contract."""

from __future__ import annotations

from typing import Any

from assay.contract.model import CONTRACT_VERSION, Contract


def contract_schema() -> dict[str, Any]:
    """JSON Schema (draft 2020-12) that a parsed contract file satisfies; unknown keys are errors."""
    schema = Contract.model_json_schema(mode="validation")
    properties = schema["$defs"]["InputDomain"]["properties"]
    # one structure may be written as plain text
    listed = properties["structure"]["anyOf"][0]
    properties["structure"]["anyOf"].insert(0, dict(listed["items"]))
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": f"urn:assay:contract:{CONTRACT_VERSION}",
        **schema,
        "title": "Assay contract",
    }
