"""SQL over the results of an audit: read-only, in memory, without access to anything else."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from assay.audit.export import COLUMNS, export, is_current, table
from assay.audit.store import Store
from assay.errors import InputError

VIEWS: dict[str, str] = {
    "decided": "SELECT * FROM rows WHERE status = 'decided'",
    "rejected": "SELECT * FROM decided WHERE label = 'rejected'",
    "gate_rates": """SELECT gate, slug, count(*) FILTER (outcome = 'fail') AS fail,
  count(*) FILTER (outcome = 'pass') AS pass,
  count(*) FILTER (outcome IN ('inconclusive', 'error')) AS undecided,
  count(*) FILTER (outcome = 'not_applicable') AS not_applicable,
  round(100.0 * count(*) FILTER (outcome = 'fail')
        / nullif(count(*) FILTER (outcome IN ('fail', 'pass')), 0), 2) AS percent
FROM gates JOIN decided USING (id) GROUP BY gate, slug ORDER BY gate""",
    "class_rates": """SELECT op_class, count(*) AS decided, count(*) FILTER (label = 'rejected') AS rejected,
  count(*) FILTER (strict_floor) AS strict_floor,
  round(100.0 * count(*) FILTER (label = 'rejected') / count(*), 2) AS percent
FROM decided GROUP BY op_class ORDER BY decided DESC""",
    "sole_gates": """SELECT slug, count(*) AS rows FROM (
  SELECT id, min(slug) AS slug FROM gates WHERE outcome = 'fail' AND blocking GROUP BY id HAVING count(*) = 1)
  JOIN rejected USING (id) GROUP BY slug ORDER BY rows DESC""",
    "differential": """SELECT variant, s.outcome AS screen, d.label, count(*) AS rows
FROM screens AS s JOIN decided AS d USING (id) GROUP BY ALL ORDER BY ALL""",
}
"""Views over the four tables, by name."""


@dataclass(frozen=True)
class Answer:
    """What a query gives.

    Attributes:
        columns: names.
        rows: values.
    """

    columns: tuple[str, ...]
    rows: tuple[tuple[Any, ...], ...]


def query(folder: Path, sql: str) -> Answer:
    """Answer one SELECT.

    The tables are those of `assay.audit.export.COLUMNS`, the views those of `VIEWS`. They are read into memory
    before the statement, which then can reach neither files nor the network nor settings.

    Raises:
        InputError: no audit, no duckdb, or a statement that is wrong or does more than read.
    """
    try:
        import duckdb
    except ImportError:
        raise InputError("queries need duckdb", "", "pip install 'assay[audit]'") from None
    with Store(folder) as store:
        if not is_current(store):
            export(store)
    with duckdb.connect(":memory:") as db:
        for name in COLUMNS:
            db.execute(f"CREATE TABLE {name} AS SELECT * FROM read_parquet(?)", [str(table(folder, name))])
        for name, select in VIEWS.items():
            db.execute(f"CREATE VIEW {name} AS {select}")
        db.execute("SET enable_external_access = false")
        db.execute("SET lock_configuration = true")
        try:
            statements = db.extract_statements(sql)
            kinds = {str(s.type).rsplit(".", 1)[-1].upper().removesuffix("_STATEMENT") for s in statements}
            if len(statements) != 1 or not kinds <= {"SELECT", "EXPLAIN"}:
                raise InputError(f"one SELECT is answered, not {len(statements)} of {', '.join(sorted(kinds))}",
                                 "query", "ask for one thing")
            found = db.execute(sql)
            columns = tuple(str(d[0]) for d in found.description or ())
            return Answer(columns, tuple(tuple(row) for row in found.fetchall()))
        except duckdb.Error as error:
            raise InputError(" ".join(str(error).split())[:400], "query",
                             f"tables: {', '.join(COLUMNS)}; views: {', '.join(VIEWS)}") from None
