"""Matrix products and convolutions: sums of products along the inner dimension.

Their errors depend on partial sums, see `product_scale`. Those cost about three more products, once, whatever the
number of perturbed runs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from assay.oracle.arithmetic import UNIT
from assay.oracle.product_runs import by_deviations
from assay.oracle.product_scale import convolution_scale, product_scale, square
from assay.oracle.replay import BATCHED, RULES, Replay, product_of
from assay.oracle.rules_pointwise import SIZES
from assay.oracle.summation import GRAIN, grid_step, repetition


def _repeated(replay: Replay, a: torch.Tensor, b: torch.Tensor) -> bool:
    """Whether the terms of a product (a's last dimension with b's first) repeat one value, by a sample."""
    rows = a.reshape(-1, a.shape[-1])
    rows = rows[:: max(1, rows.shape[0] // 4)][:4]
    terms = (rows * b.reshape(-1)[: rows.shape[-1]]).abs()
    # At a coarser unit all small terms would look alike, although their signs and remainders differ.
    unit = min(replay.unit, UNIT["fp32"])
    return bool((repetition(terms, GRAIN * unit * terms.sum(-1)) > 4.0).any())


def _exact_product(replay: Replay, a: torch.Tensor, b: torch.Tensor, bound: Callable[[], torch.Tensor]) -> bool:
    """Whether a product is exact in any order because its terms are multiples of one power of two."""
    step = grid_step(a) * grid_step(b)
    if step == 0.0:
        return False
    largest = float(bound().max()) if a.numel() and b.numel() else 0.0
    return largest <= step / replay.unit


def _matmul(replay: Replay, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """mm, bmm, mv, dot and vdot."""
    return _product(replay, func, replay.widen(args), None)


def _product(replay: Replay, func: Any, args: tuple[Any, ...], base: torch.Tensor | None) -> Any:
    """A product, and what is added to it, if anything: the sum's rounding is one of the product's."""
    replay.note(func)
    a, b = replay.operand(args[0]), replay.operand(args[1])
    out = replay.run(func, (a, b), {})
    if not replay.runs + replay.serial or out.numel() == 0 or a.numel() == 0:
        return out
    if not out.is_floating_point() and not out.is_complex():
        return out
    left, right = a, b
    if str(func._schema.name) == "aten::vdot":
        left = a.conj()
    if replay.grid and _exact_product(replay, a, b, lambda: torch.matmul(left.abs(), right.abs())):
        return out
    column = right.select(-1, 0) if right.dim() > 1 else right
    scale = product_scale(left, right, _repeated(replay, left, column))
    if base is not None:
        scale = _plus(replay, out, base, scale)
    return replay.absolute(out, scale)


def _plus(replay: Replay, out: torch.Tensor, base: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
    """Add `base` to the fresh `out` in all runs; the error scale of `out`, with one rounding more."""
    more = replay.stack(base, out.dim())
    stack = replay.materialise(out) if more is not None else replay.stack(out)
    out.add_(base)
    if stack is not None:
        stack.add_(base if more is None else more)
    replay.ops["add"] += 1
    return scale.square_().addcmul_(out, out, value=SIZES["add"] ** 2).sqrt_()


def _add_product(replay: Replay, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """addmm, baddbmm, addmv, addbmm, addr: beta · input + alpha · product."""
    args = replay.widen(args)
    name = str(func._schema.name).split("::")[1]
    replay.ops[name] += 1
    alpha, beta = kwargs.get("alpha", 1), kwargs.get("beta", 1)
    base, a, b = args[:3]
    products = {"addmm": "mm", "baddbmm": "bmm", "addmv": "mv"}
    if name in products and (alpha, beta) == (1, 1) and (replay.runs or replay.serial) and not replay.grid:
        wide = base.dtype == torch.float64 and a.dtype == torch.float64 and b.dtype == torch.float64
        if wide and a.numel() and b.numel():
            return _product(replay, getattr(torch.ops.aten, products[name]).default, (a, b), base)
    with replay.inside():
        if name == "addr":
            value = torch.outer(a, b)
        elif name == "addbmm":
            value = torch.sum(torch.bmm(a, b), 0)
        elif name == "addmv":
            value = torch.mv(a, b)
        else:
            value = torch.mm(a, b) if name.startswith("addmm") or name == "_addmm_activation" else torch.bmm(a, b)
        if alpha != 1:
            value = value * alpha
        if beta != 0:
            value = value + (base if beta == 1 else base * beta)
        if name == "_addmm_activation":
            gelu = bool(kwargs.get("use_gelu", False))
            value = torch.nn.functional.gelu(value) if gelu else torch.relu(value)
        return value


def _batched_matmul(replay: Replay, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], out: Any) -> Any:
    a, b = args[0], args[1]
    left, right = replay.stack(a), replay.stack(b)
    name = str(func._schema.name).split("::")[1]
    if name == "mm":
        if left is not None and right is None:
            return torch.matmul(left, b)
        if left is None and right is not None:
            return torch.matmul(a, right)
        assert left is not None
        assert right is not None
        return torch.bmm(left, right)
    if name == "bmm":
        return torch.matmul(a if left is None else left, b if right is None else right)
    return None


def _convolution(replay: Replay, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Convolution of any rank, grouped, dilated or transposed; the bias is a separate addition."""
    args = replay.widen(args)
    replay.note(func)
    x, weight, bias, stride, padding, dilation, transposed, output_padding, groups = args[:9]
    x, weight = replay.operand(x), replay.operand(weight)
    rest = (stride, padding, dilation, transposed, output_padding, groups)
    default = torch.ops.aten.convolution.default
    out = replay.run(default, (x, weight, None, *rest), {})
    if (replay.runs or replay.serial) and out.numel() and x.numel():

        def conv(u: torch.Tensor, w: torch.Tensor, parts: int = groups) -> torch.Tensor:
            value: torch.Tensor = default(u, w, None, *rest[:-1], parts)
            return value

        if not (replay.grid and _exact_product(replay, x, weight, lambda: conv(x.abs(), weight.abs()))):
            flat = x.reshape(1, -1), weight.reshape(-1)
            few = min(flat[0].shape[1], flat[1].shape[0])
            repeated = _repeated(replay, flat[0][:, :few], flat[1][:few])
            scale = convolution_scale(x, weight, groups, transposed, repeated, conv)
            if bias is not None and bias.dtype == out.dtype and not replay.grid:
                scale = _plus(replay, out, bias.view(1, -1, *(1,) * (out.dim() - 2)), scale)
                bias = None
            replay.absolute(out, scale)
    if bias is not None:
        with replay.inside():
            out = out + bias.view(1, -1, *(1,) * (out.dim() - 2))
    return out


def _batched_convolution(replay: Replay, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], out: Any) -> Any:
    """With exact weights the runs are so many more images of the batch."""
    x, weight = args[0], args[1]
    stack = replay.stack(x)
    if stack is None or replay.has_stack(weight):
        return None

    def convolved(versions: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = func(versions.flatten(0, 1), w, None, *args[3:])
        return result.view(versions.shape[0], -1, *result.shape[1:])

    versions = by_deviations(stack, x, weight, out, convolved)
    return convolved(stack, weight) if versions is None else versions


def _convolution_backward(
    replay: Replay, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[torch.Tensor | None, ...]:
    """Gradients of a convolution: sums over output channels and window, and over batch and positions."""
    args = replay.widen(args)
    replay.note(func)
    grad, x, weight = (replay.operand(t) for t in args[:3])
    rest, mask = list(args[3:10]), list(args[10])
    groups = rest[6]
    products = [mask[0], mask[1], False]
    out = list(replay.run(func, (grad, x, weight, *rest, products), {}))
    if (replay.runs or replay.serial) and grad.numel() and x.numel():
        kernel = product_of(weight.shape[2:])
        terms = (grad.shape[1] // groups * kernel, grad.shape[0] * product_of(grad.shape[2:]))
        energy = square(grad)
        for i, (u, w) in enumerate(((x, square(weight)), (square(x), weight))):
            if not mask[i]:
                continue
            one = [i == 0, i == 1, False]
            squares = func(energy, u, w, *rest, one)[i].clamp(min=0.0)
            replay.absolute(out[i], (terms[i] / 3.0 * out[i].square() + terms[i] / 2.0 * squares).sqrt())
    if mask[2]:
        with replay.inside():
            out[2] = torch.sum(args[0], [d for d in range(grad.dim()) if d != 1])
    return tuple(out)


RULES["aten::convolution_backward"] = _convolution_backward
for _name in ("mm", "bmm", "mv", "dot", "vdot"):
    RULES[f"aten::{_name}"] = _matmul
    BATCHED[f"aten::{_name}"] = _batched_matmul
for _name in ("addmm", "baddbmm", "addmv", "addbmm", "addr", "_addmm_activation"):
    RULES[f"aten::{_name}"] = _add_product
for _name in ("convolution", "_convolution", "convolution_overrideable", "mkldnn_convolution"):
    if _name in ("convolution", "_convolution"):
        RULES[f"aten::{_name}"] = _convolution
BATCHED["aten::convolution"] = _batched_convolution
