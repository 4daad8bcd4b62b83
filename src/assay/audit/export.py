"""The results of an audit as Parquet: four flat tables, and what each column means."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from assay.audit.floors import marks
from assay.audit.outcome import Records
from assay.audit.store import Store
from assay.audit.summary import all_records
from assay.errors import InputError

COLUMNS: dict[str, dict[str, str]] = {
    "rows": {
        "id": "string", "position": "int64", "task": "string", "task_key": "string", "op_class": "string",
        "candidate_sha256": "string", "accepted": "bool", "speedup": "double", "generator": "string", "run": "string",
        "created": "string", "status": "string", "note": "string", "label": "string", "effort": "string",
        "scope": "string", "language": "string", "seed": "int64", "gates_passed": "int64", "gates_undecided": "int64",
        "tier": "string", "no_output": "bool", "strict_floor": "bool", "strict_floor_nan_waived": "bool",
        "strict_floor_ignoring": "bool", "channels": "string", "extra": "string", "seconds": "double",
    },
    "gates": {
        "id": "string", "gate": "string", "slug": "string", "outcome": "string", "reason": "string",
        "blocking": "bool", "probes_planned": "int64", "probes_run": "int64", "probes_undecided": "int64",
        "findings": "int64", "note": "string",
    },
    "findings": {
        "id": "string", "number": "int64", "gate": "string", "slug": "string", "reason": "string", "tier": "string",
        "tolerance_free": "bool", "output": "string", "expected": "string", "actual": "string", "error": "double",
        "tolerance": "double", "probe": "string", "injected": "string",
    },
    "screens": {
        "id": "string", "variant": "string", "outcome": "string", "reason": "string", "text": "string",
        "seconds": "double",
    },
}
"""Columns of each table with their types."""
GROUP = 5000
"""Rows of the corpus in one row group."""
STAMP = "tables"


def is_current(store: Store) -> bool:
    """Whether the tables hold every result that is there."""
    stamp = store.folder / f"{STAMP}.json"
    try:
        data = json.loads(stamp.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    return data == _state(store) and all((store.folder / f"{name}.parquet").exists() for name in COLUMNS)


def _state(store: Store) -> dict[str, Any]:
    return {"results": store.results(), "classes": store.classified(), "chosen": store.get("chosen")}


def export(store: Store) -> None:
    """Write the four tables of an audit, each replaced only by a whole one. Raises InputError without pyarrow."""
    try:
        import pyarrow as arrow
        import pyarrow.parquet as parquet
    except ImportError:
        raise InputError("tables need pyarrow", "", "pip install 'assay[audit]'") from None
    _clean(store.folder)
    state = _state(store)
    schemas = {name: arrow.schema([(column, getattr(arrow, _ARROW[kind])()) for column, kind in columns.items()])
               for name, columns in COLUMNS.items()}
    paths = {name: store.folder / f".{name}.{os.getpid()}.parquet" for name in COLUMNS}
    writers: dict[str, Any] = {}
    try:
        writers = {name: parquet.ParquetWriter(paths[name], schemas[name], compression="zstd") for name in COLUMNS}
        waiting: dict[str, list[Mapping[str, Any]]] = {name: [] for name in COLUMNS}
        for count, found in enumerate(all_records(store), 1):
            for name, lines in _flat(found).items():
                waiting[name].extend(lines)
            if count % GROUP == 0:
                _write(arrow, writers, schemas, waiting)
        _write(arrow, writers, schemas, waiting)
    finally:
        for writer in writers.values():
            writer.close()
    for name, path in paths.items():
        os.replace(path, store.folder / f"{name}.parquet")
    (store.folder / f"{STAMP}.json").write_text(json.dumps(state), encoding="utf-8")


def _clean(folder: Path) -> None:
    """Remove what writers left that were killed."""
    for path in folder.glob(".*.*.parquet"):
        writer = path.name.split(".")[2]
        if writer.isdigit() and not Path(f"/proc/{writer}").exists():
            path.unlink(missing_ok=True)


_ARROW = {"string": "string", "int64": "int64", "double": "float64", "bool": "bool_"}


def _write(arrow: Any, writers: dict[str, Any], schemas: dict[str, Any],
           waiting: dict[str, list[Mapping[str, Any]]]) -> None:
    for name, lines in waiting.items():
        if lines:
            writers[name].write_table(arrow.Table.from_pylist(lines, schema=schemas[name]))
            lines.clear()


def _flat(found: Records) -> dict[str, Iterable[Mapping[str, Any]]]:
    """One row's records as they go into the tables."""
    marked = marks(found)
    row = {**found.row, "extra": json.dumps(found.row["extra"], sort_keys=True),
           "channels": " ".join(sorted(marked.channels)) or None,
           "strict_floor": bool(marked.floor()), "strict_floor_nan_waived": bool(marked.floor(policy="NaN waived")),
           "strict_floor_ignoring": bool(marked.floor(policy="ignore"))}
    return {"rows": [row], "gates": found.gates, "findings": found.findings, "screens": found.screens}


def table(folder: Path, name: str) -> Path:
    """Where a table is."""
    return folder / f"{name}.parquet"
