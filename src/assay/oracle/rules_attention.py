"""Scaled dot product attention in its mathematical form, whatever fused operator torch would choose."""

from __future__ import annotations

import math
from typing import Any

import torch

from assay.oracle.replay import RULES, Replay


def attention(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    mask: torch.Tensor | None,
    dropout: float,
    causal: bool,
    scale: float | None,
    grouped: bool = False,
    tile: int | None = None,
) -> torch.Tensor:
    """Attention in its mathematical form, scores scaled after the product.

    query (..., L, E), key (..., S, E), value (..., S, Ev); mask broadcastable to (..., L, S), boolean (True
    takes part) or added. With `tile`, exponentials are multiplied by the values, so many keys at a time (0: all),
    and their sum divides the result. Returns the output (..., L, Ev).
    """
    if grouped:
        key = key.repeat_interleave(query.size(-3) // key.size(-3), -3)
        value = value.repeat_interleave(query.size(-3) // value.size(-3), -3)
    factor = 1.0 / math.sqrt(query.shape[-1]) if scale is None else scale
    scores, empty = _scores(query, key, mask, causal, factor)
    if tile is not None and scores.numel() and dropout == 0.0:
        result = _in_tiles(scores, value, tile or scores.shape[-1])
        return result if empty is None else result.masked_fill(empty, 0.0)
    weights = _weights(scores, empty)
    if dropout > 0.0:
        weights = torch.nn.functional.dropout(weights, dropout, True)
    return torch.matmul(weights, value)


def _scores(
    query: torch.Tensor, key: torch.Tensor, mask: torch.Tensor | None, causal: bool, factor: float
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Scaled scores, shape (..., L, S), and where a boolean mask leaves a row nothing, if there is one."""
    scores = torch.matmul(query, key.transpose(-2, -1)) * factor
    if causal:
        lower = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).tril()
        scores = scores.masked_fill(lower.logical_not(), -math.inf)
    if mask is None:
        return scores, None
    if mask.dtype == torch.bool:
        return scores.masked_fill(mask.logical_not(), -math.inf), mask.logical_not().all(-1, keepdim=True)
    return scores + mask, None


def _weights(scores: torch.Tensor, empty: torch.Tensor | None) -> torch.Tensor:
    """Softmax of scores (..., L, S)."""
    weights = torch.softmax(scores, -1) if scores.numel() else scores
    # torch gives rows that are masked out entirely the value 0, not NaN.
    return weights if empty is None else weights.masked_fill(empty, 0.0)


def _named(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    """Arguments of an operator by name, defaults included."""
    given = {a.name: a.default_value for a in func._schema.arguments if a.has_default_value()}
    given.update(zip((a.name for a in func._schema.arguments), args, strict=False))
    return {**given, **kwargs}


def _in_tiles(scores: torch.Tensor, value: torch.Tensor, tile: int) -> torch.Tensor:
    """Online softmax of scores (..., L, S) times value (..., S, Ev)."""
    peak = torch.full_like(scores[..., :1], -math.inf)
    total = torch.zeros_like(peak)
    result: torch.Tensor | float = 0.0
    for start in range(0, scores.shape[-1], tile):
        part = scores[..., start : start + tile]
        higher = torch.maximum(peak, part.amax(-1, keepdim=True))
        # before the first key that takes part there is no maximum
        shift = torch.where(higher == -math.inf, 0.0, higher)
        weights, before = torch.exp(part - shift), torch.exp(peak - shift)
        total = total * before + weights.sum(-1, keepdim=True)
        result = result * before + torch.matmul(weights, value[..., start : start + tile, :])
        peak = higher
    return result / total


def _attention(replay: Replay, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Fused attention operators of any device, by their named arguments."""
    given = _named(func, replay.widen(args), kwargs)
    replay.ops[str(func._schema.name).split("::")[1]] += 1
    mask = given.get("attn_mask", given.get("attn_bias"))
    with replay.inside():
        out = attention(
            given["query"],
            given["key"],
            given["value"],
            mask,
            float(given.get("dropout_p") or 0.0),
            bool(given.get("is_causal", False)),
            given.get("scale"),
            bool(given.get("enable_gqa", False)),
            replay.attention_tile,
        )
    returns = len(func._schema.returns)
    if returns == 1:
        return out
    # The others (log-sum-exp, generator state) serve the fused backward, which is not used in a replay.
    rest: list[Any] = [torch.empty(0, device=out.device)] * (returns - 1)
    return (out, *rest)


def _attention_backward(replay: Replay, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Gradients by query, key and value of a fused attention, in its mathematical form: the weights again,
    then the backward of each product and of the softmax.

    It is reached where the fused operator was chosen below what `Surface` sees, as in `nn.MultiheadAttention`.
    """
    given = _named(func, replay.widen(args), kwargs)
    if float(given.get("dropout_p") or 0.0) > 0.0:
        # which weights were dropped is known to the fused forward alone
        raise NotImplementedError("the backward of a fused attention with dropout")
    replay.ops[str(func._schema.name).split("::")[1]] += 1
    query, key, value, grad = given["query"], given["key"], given["value"], given["grad_out"]
    scale = given.get("scale")
    factor = 1.0 / math.sqrt(query.shape[-1]) if scale is None else scale
    with replay.inside():
        scored = _scores(query, key, given.get("attn_mask"), bool(given.get("is_causal", False)), factor)
        weights = _weights(*scored)
        by_weights = torch.matmul(grad, value.transpose(-2, -1))
        by_scores = torch.ops.aten._softmax_backward_data(by_weights, weights, -1, weights.dtype) * factor
        return (torch.matmul(by_scores, key), torch.matmul(by_scores.transpose(-2, -1), query),
                torch.matmul(weights.transpose(-2, -1), grad))


RULES["aten::_scaled_dot_product_flash_attention_for_cpu_backward"] = _attention_backward
for _name in (
    "_scaled_dot_product_flash_attention_for_cpu",
    "_scaled_dot_product_flash_attention",
    "_scaled_dot_product_efficient_attention",
    "_scaled_dot_product_cudnn_attention",
    "_scaled_dot_product_fused_attention_overrideable",
):
    RULES[f"aten::{_name}"] = _attention
