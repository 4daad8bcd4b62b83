"""Softmax and its logarithm by the shifted definition, with the errors of their base-2 and log-sum forms."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from assay.oracle.replay import RULES, Replay


def softmax(
    x: torch.Tensor, dim: int, log: bool, scaled: Callable[[torch.Tensor, torch.Tensor], None] | None = None
) -> torch.Tensor:
    """Softmax or its logarithm by the shifted definition, for the replay to perturb.

    `scaled(value, size)` may perturb a value by u · size: the shifted argument by the rounding of
    x · log2(e), which the base-2 form makes before the shift, and the logarithm of the total by the rounding
    of log Σ exp x, which a kernel may hold instead and subtract from x.
    """
    if x.numel() == 0:
        return x.clone()
    peak = torch.amax(x, dim, keepdim=True)
    shifted = x - peak
    argument = shifted
    if scaled is not None:
        argument = x - peak
        scaled(argument, 0.5 * x)
    weights = torch.exp(argument)
    total = torch.sum(weights, dim, keepdim=True)
    if not log:
        return weights / total
    level = torch.log(total)
    if scaled is not None:
        scaled(level, 0.75 * (peak + level))
    return shifted - level


def _softmax(replay: Replay, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    args = replay.widen(args)
    name = str(func._schema.name).split("::")[1]
    replay.ops[name] += 1
    x: torch.Tensor = args[0]

    def scaled(value: torch.Tensor, size: torch.Tensor) -> None:
        with torch.utils._python_dispatch._disable_current_modes():
            replay.current = "exp"
            replay.absolute(value, size.abs())

    with replay.inside():
        if x.dim() == 0:
            return softmax(x.unsqueeze(0), 0, "log" in name, scaled).squeeze(0)
        return softmax(x, args[1], "log" in name, scaled)


def _softmax_backward(replay: Replay, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """out · (grad - Σ grad·out), the sum with an error of its own.

    Where one weight is 1 the difference cancels exactly in these steps; a fused attention backward takes the
    sum from the output instead, so that its error and that of grad are independent.
    """
    args = replay.widen(args)
    replay.ops["_softmax_backward_data"] += 1
    grad, out, dim = args[0], args[1], args[2]
    with replay.inside():
        inner = torch.sum(grad * out, dim, keepdim=True)
    replay.current = "_softmax_backward_data"
    if replay.runs or replay.serial:
        replay.absolute(inner, (grad * out).square().sum(dim, keepdim=True).sqrt() + inner.abs())
    with replay.inside():
        return out * (grad - inner)


RULES["aten::_softmax_backward_data"] = _softmax_backward
for _name in ("_softmax", "_log_softmax"):
    RULES[f"aten::{_name}"] = _softmax
