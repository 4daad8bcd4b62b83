"""The contract as data: what a candidate promises, read off a task, written down, and told to a generator."""

from assay.contract.infer import InferredContract, infer, merge
from assay.contract.model import Contract
from assay.contract.schema import contract_schema

__all__ = ["Contract", "InferredContract", "contract_schema", "infer", "merge"]
