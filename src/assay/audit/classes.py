"""The class of a task's operation, from the operators that its reference runs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

PRODUCTS = ("mm", "bmm", "addmm", "baddbmm", "addbmm", "mv", "addmv", "dot", "matmul", "linear", "einsum",
            "_scaled_mm", "_grouped_mm")
SOFTMAX = ("_softmax", "_log_softmax", "softmax", "log_softmax", "logsumexp", "_safe_softmax")
SCANS = ("cumsum", "cumprod", "cummax", "cummin", "logcumsumexp", "_cummax_helper", "_cummin_helper")
NORMS = ("native_layer_norm", "native_batch_norm", "native_group_norm", "_native_batch_norm_legit", "batch_norm",
         "cudnn_batch_norm", "rms_norm", "_fused_rms_norm", "native_instance_norm")
LOSSES = ("nll_loss_forward", "nll_loss2d_forward", "mse_loss", "binary_cross_entropy", "smooth_l1_loss",
          "huber_loss", "soft_margin_loss", "binary_cross_entropy_with_logits", "multi_margin_loss",
          "multilabel_margin_loss_forward", "_ctc_loss")
REDUCTIONS = ("sum", "mean", "amax", "amin", "max", "min", "prod", "argmax", "argmin", "var", "var_mean", "std",
              "any", "all", "linalg_vector_norm", "norm", "aminmax", "count_nonzero", "nansum", "median", "mode")
SORTS = ("topk", "sort", "argsort", "kthvalue")
INDEXING = ("embedding", "gather", "index", "index_select", "scatter", "scatter_add", "index_put", "index_add",
            "take", "_unsafe_index", "masked_select", "nonzero")

CLASSES = ("attention", "conv", "matmul", "scan", "norm", "loss", "softmax", "pooling", "sort", "reduction",
           "indexing", "elementwise", "unknown")
"""Every class, in the order in which they are tried: the work that dominates gives the name."""


def classify(operators: Mapping[str, int]) -> str:
    """The class of a reference by how often each operator occurs in it; `unknown` where none does.

    A product is a product whatever is fused behind it; two with a softmax between them are attention. A norm
    is told by its operator, or by a reduction whose root divides the result.
    """
    if not operators:
        return "unknown"

    def has(names: Iterable[str]) -> bool:
        return any(name in operators for name in names)

    products = sum(operators.get(name, 0) for name in PRODUCTS)
    softmax = has(SOFTMAX)
    if any("scaled_dot_product" in name for name in operators) or (products >= 2 and softmax):
        return "attention"
    if any("conv" in name for name in operators):
        return "conv"
    if products:
        return "matmul"
    if has(SCANS):
        return "scan"
    if has(LOSSES):
        return "loss"
    reduces = has(REDUCTIONS)
    rooted = "rsqrt" in operators or ({"sqrt", "linalg_vector_norm", "norm"} & set(operators) and "div" in operators)
    if has(NORMS) or (reduces and rooted):
        return "norm"
    if softmax:
        return "softmax"
    if any("pool" in name for name in operators):
        return "pooling"
    if has(SORTS):
        return "sort"
    if reduces:
        return "reduction"
    return "indexing" if has(INDEXING) else "elementwise"
