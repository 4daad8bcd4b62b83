"""The contract as data: what a candidate promises, read off a task, written down, and told to a generator.

Importing it is light: what reads samples, and with it torch, is imported when it is first used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from assay.contract.model import Contract

if TYPE_CHECKING:
    from assay.contract.inference import InferredContract, infer, merge
    from assay.contract.schema import contract_schema

_HOMES = {
    "InferredContract": "assay.contract.inference", "contract_schema": "assay.contract.schema",
    "infer": "assay.contract.inference", "merge": "assay.contract.inference",
}

__all__ = ["Contract", "InferredContract", "contract_schema", "infer", "merge"]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)
