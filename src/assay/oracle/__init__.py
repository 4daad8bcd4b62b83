"""The oracle: what the right answer is, and how far an honest kernel may land from it.

`evaluate` runs in the reference worker, `compare` in the judge.
"""

from assay.oracle.arithmetic import Arithmetic, arithmetic_for
from assay.oracle.compare import Comparison, Reason, compare
from assay.oracle.dominant import contributions, with_dominant
from assay.oracle.evaluate import RUNS, evaluate, warm_up
from assay.oracle.fingerprint import Fingerprint, attribute, fingerprint
from assay.oracle.modes import ModeTruth, alternatives
from assay.oracle.truth import LAMBDA, ErrorText, Evaluation, IndexTruth, LeafTruth, Parts
from assay.oracle.vjp import cotangents, evaluate_vjp, gradient_names

__all__ = [
    "LAMBDA",
    "RUNS",
    "Arithmetic",
    "Comparison",
    "ErrorText",
    "Evaluation",
    "Fingerprint",
    "IndexTruth",
    "LeafTruth",
    "ModeTruth",
    "Parts",
    "Reason",
    "alternatives",
    "arithmetic_for",
    "attribute",
    "compare",
    "contributions",
    "cotangents",
    "evaluate",
    "evaluate_vjp",
    "fingerprint",
    "gradient_names",
    "warm_up",
    "with_dominant",
]
