"""What outlasts a verification: a store of verdicts and findings, their replay, and their smallest inputs.

    from assay.evidence import Store

    with Store.open(".assay", create=True) as store:
        verdict = store.put_report(report, task, candidate, contract)
        for found in store.findings(verdict):
            print(found.id, found.finding.reason)

Importing this package is light: torch is imported by the first name that needs it.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from assay.evidence.errors import StoreDamaged, StoreError, StoreUnwritable, StoreWarning
    from assay.evidence.ids import finding_id, verdict_id, with_ids
    from assay.evidence.model import Bundle, Captured, Evidence, FindingRecord, VerdictRecord, VerdictSummary
    from assay.evidence.store import DEFAULT_DIRECTORY, Store

_HOMES = {
    "StoreDamaged": "errors", "StoreError": "errors", "StoreUnwritable": "errors", "StoreWarning": "errors",
    "finding_id": "ids", "verdict_id": "ids", "with_ids": "ids", "Bundle": "model", "Captured": "model",
    "Evidence": "model", "FindingRecord": "model", "VerdictRecord": "model", "VerdictSummary": "model",
    "DEFAULT_DIRECTORY": "store", "Store": "store",
}

__all__ = [
    "DEFAULT_DIRECTORY",
    "Bundle",
    "Captured",
    "Evidence",
    "FindingRecord",
    "Store",
    "StoreDamaged",
    "StoreError",
    "StoreUnwritable",
    "StoreWarning",
    "VerdictRecord",
    "VerdictSummary",
    "finding_id",
    "verdict_id",
    "with_ids",
]


def __getattr__(name: str) -> Any:
    """The public nouns, imported when first asked for."""
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f"assay.evidence.{home}"), name)
    globals()[name] = value
    return value
