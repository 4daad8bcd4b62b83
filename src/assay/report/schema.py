"""JSON Schemas of what Assay writes and reads: the report, the screen's report and the contract."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

DIALECT = "https://json-schema.org/draft/2020-12/schema"


def report_schema() -> dict[str, Any]:
    """JSON Schema (2020-12) of the report that `assay verify --json` writes."""
    from assay.report.model import Report

    return {"$schema": DIALECT, **Report.model_json_schema(mode="serialization")}


def screen_schema() -> dict[str, Any]:
    """JSON Schema (2020-12) of the report that `assay screen --json` writes."""
    from assay.screen import ScreenReport

    return {"$schema": DIALECT, **ScreenReport.model_json_schema(mode="serialization")}


def bench_schema() -> dict[str, Any]:
    """JSON Schema (2020-12) of what `assay bench --json` writes."""
    from assay.bench.model import BenchReport

    return {"$schema": DIALECT, **BenchReport.model_json_schema(mode="serialization")}


def gate_schema() -> dict[str, Any]:
    """JSON Schema (2020-12) of what `assay gate --json` writes."""
    from assay.repository.model import GateReport

    return {"$schema": DIALECT, **GateReport.model_json_schema(mode="serialization")}


def contract_schema() -> dict[str, Any]:
    """JSON Schema (2020-12) of a contract, as TOML or JSON data."""
    from assay.contract import Contract

    return {"$schema": DIALECT, **Contract.model_json_schema()}


SCHEMAS: dict[str, Callable[[], dict[str, Any]]] = {
    "report": report_schema, "screen": screen_schema, "contract": contract_schema, "gate": gate_schema,
    "bench": bench_schema,
}
"""By the name that `assay schema` takes."""
