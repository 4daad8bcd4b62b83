"""What the reference sees of its tensors during the replay, above the dispatcher.

The tensors are float64; a reference that asks for a dtype must be told the one it would have natively, or its
assertions, `torch.finfo` look-ups and branches would go another way. Attention is caught here because the
dispatcher would already have chosen a fused or a pre-scaled form.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from assay.oracle.arithmetic import FORMAT, wide_dtype
from assay.oracle.replay import Replay
from assay.oracle.rules_attention import attention
from assay.oracle.rules_sparse import sampled_product, sparse_product

_DTYPE = torch.Tensor.dtype.__get__  # type: ignore[attr-defined]


class Surface(TorchFunctionMode):
    """Answers dtype questions natively and replaces scaled dot product attention by its mathematical form."""

    def __init__(self, replay: Replay) -> None:
        super().__init__()
        self.replay = replay

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        # Below the dispatcher's autocast key nothing shows that autocast is on.
        self.replay.autocast = _autocast()
        special = _SPECIAL.get(func)
        if special is not None:
            return special(self.replay, *args, **(kwargs or {}))
        return func(*args, **(kwargs or {}))


def _autocast() -> str | None:
    for device in ("cuda", "cpu"):
        if torch.is_autocast_enabled(device):
            return FORMAT.get(torch.get_autocast_dtype(device))
    return None


def _dtype(replay: Replay, t: torch.Tensor, *_: Any) -> torch.dtype:
    actual = _DTYPE(t)
    if actual in (torch.float64, torch.complex128):
        return replay.nominal(t)
    return actual  # type: ignore[no-any-return]


def _attention(
    replay: Replay,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attn_mask: torch.Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> torch.Tensor:
    replay.ops["scaled_dot_product_attention"] += 1
    if attn_mask is not None and attn_mask.dtype != torch.bool:
        attn_mask = attn_mask.to(wide_dtype(attn_mask.dtype))
    if is_causal and attn_mask is not None:
        raise RuntimeError(
            "scaled_dot_product_attention: explicit attn_mask should not be set when is_causal=True"
        )
    with replay.deeper():
        out = attention(
            query, key, value, attn_mask, dropout_p, is_causal, scale, enable_gqa, replay.attention_tile
        )
    with torch.utils._python_dispatch._disable_current_modes():
        return replay.stored(out)


def _type_as(replay: Replay, t: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    return t.to(_dtype(replay, other))


def _to(replay: Replay, t: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
    other = args[0] if args else kwargs.get("other")
    if isinstance(other, torch.Tensor):
        kwargs = {k: v for k, v in kwargs.items() if k != "other"}
        return t.to(other.device, _dtype(replay, other), *args[1:], **kwargs)
    return t.to(*args, **kwargs)


def _sampled(replay: Replay, sampled: torch.Tensor, a: torch.Tensor, b: torch.Tensor, **kwargs: Any) -> torch.Tensor:
    replay.ops["sparse_sampled_addmm"] += 1
    with replay.deeper():
        return sampled_product(replay, sampled, a, b, **kwargs)


def _sparse_mm(replay: Replay, a: torch.Tensor, b: torch.Tensor, reduce: str = "sum") -> torch.Tensor:
    replay.ops["sparse_mm"] += 1
    with replay.deeper():
        return sparse_product(replay, a, b, reduce)


_SPECIAL: dict[Any, Callable[..., Any]] = {
    _DTYPE: _dtype,
    torch.nn.functional.scaled_dot_product_attention: _attention,
    torch.Tensor.type_as: _type_as,
    torch.Tensor.to: _to,
    torch.sparse.sampled_addmm: _sampled,
    torch.sparse.mm: _sparse_mm,
}
