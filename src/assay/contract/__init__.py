"""The contract as data."""

from assay.contract.model import Contract

__all__ = ["Contract"]
