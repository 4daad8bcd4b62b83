"""What outlasts a verification: a store of verdicts and findings, their replay, and their smallest inputs.

    from assay.evidence import Store

    with Store.open(".assay", create=True) as store:
        verdict = store.put_report(report, task, candidate, contract)
        for found in store.findings(verdict):
            print(found.id, found.finding.reason)
"""

from __future__ import annotations

from assay.evidence.errors import StoreDamaged, StoreError, StoreUnwritable, StoreWarning
from assay.evidence.ids import finding_id, verdict_id, with_ids
from assay.evidence.model import Bundle, Captured, Evidence, FindingRecord, VerdictRecord, VerdictSummary
from assay.evidence.store import DEFAULT_DIRECTORY, Store

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
