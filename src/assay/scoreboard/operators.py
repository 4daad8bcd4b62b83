"""Operators of PyTorch's database as tasks, kept in the corpus: `python -m assay.scoreboard.operators` writes them.

Kept, because the database needs packages that only PyTorch's own tests need, and takes long to sample.
"""

from __future__ import annotations

import json
from pathlib import Path

from assay import corpus
from assay.errors import InputError
from assay.task.formats import aten

OPERATORS = (
    "abs.default", "acos.default", "add.Tensor", "addcdiv.default", "addcmul.default", "addmm.default",
    "amax.default", "amin.default", "angle.default", "asinh.default", "atan.default", "avg_pool2d.default",
    "bmm.default", "cat.default", "ceil.default", "clamp.default", "cos.default", "cosh.default",
    "cumsum.default", "deg2rad.default", "div.Tensor", "elu.default", "eq.Tensor", "erf.default",
    "erfc.default", "exp.default", "exp2.default", "expand.default", "expm1.default", "flip.default",
    "floor.default", "fmod.Tensor", "frac.default", "gelu.default", "glu.default", "hardsigmoid.default",
    "hardswish.default", "hardtanh.default", "hypot.default", "index_select.default", "isnan.default",
    "leaky_relu.default", "lerp.Tensor", "log.default", "log10.default", "log1p.default", "log2.default",
    "logaddexp.default", "logical_not.default", "logsumexp.default", "lt.Tensor", "masked_fill.Scalar",
    "maximum.default", "minimum.default", "mish.default", "mm.default", "mul.Tensor", "mv.default",
    "nan_to_num.default", "neg.default", "permute.default", "pow.Tensor_Scalar", "reciprocal.default",
    "relu.default", "roll.default", "round.default", "rsqrt.default", "rsub.Scalar", "sigmoid.default",
    "sign.default", "silu.default", "sin.default", "sinh.default", "softplus.default", "sqrt.default",
    "square.default", "stack.default", "sub.Tensor", "sum.dim_IntList", "tan.default", "tanh.default",
    "tril.default", "triu.default", "trunc.default", "where.self", "xlogy.Tensor", "_softmax.default",
    "_log_softmax.default", "mse_loss.default", "var.correction", "mean.dim", "smooth_l1_loss.default",
)
"""Overloads of ATen that are made tasks."""

ELEMENTS = 4096
"""Most elements of the tensors of a task."""


def tasks() -> dict[str, str]:
    """The reference of each overload, at the largest sample within bounds."""
    found = {}
    for name in OPERATORS:
        try:
            cases = [c for c in aten.database_cases(f"aten.{name}") if 0 < aten._elements(c) <= ELEMENTS]
        except (InputError, IndexError):
            # no such operator here, or samples that cannot be described
            continue
        if cases:
            found[name] = aten.reference_source(f"aten.{name}", max(cases, key=aten._elements))
    return found


if __name__ == "__main__":
    path = Path(corpus.HERE.parent, "operators.json")
    path.write_text(json.dumps(tasks(), indent=1) + "\n", encoding="utf-8")
    print(path)
