"""The truth of one draw: inputs, native output, float64 replay, gradients, and what coarser arithmetic would leave."""

from __future__ import annotations

import copy
import dataclasses
from typing import Any

import torch

from assay.probe.model import Draw
from assay.run import backward, codec, mixed, training
from assay.run.reference_calls import dependent, laid_out, native, requires_grad, same_any_way, work_of
from assay.run.reference_gradients import NoGradient, arriving, gradients_of, handed_to, legal, second, tied
from assay.run.reference_inputs import arranged, draw_inputs, layout_applies
from assay.run.reference_state import State, WithBuffers, model_of, seeded


def truth(state: State, header: dict[str, Any]) -> tuple[dict[str, Any], list[memoryview]]:
    """Inputs, native output and float64 truth of one draw."""
    from assay import oracle

    draw = Draw.model_validate(header["draw"])
    dtype = header.get("dtype")
    instance = seeded(state, header)
    arguments, reason = draw_inputs(state, instance, draw, dtype)
    if reason:
        return {"inapplicable": reason}, []
    if draw.layouts and not layout_applies(arguments.tensors(), draw.layouts):
        return {"inapplicable": "the layout says nothing new for these shapes"}, []
    device = state.device_for(arguments.tensors())
    model = model_of(instance, int(header.get("parameters", 0)), dtype, device)
    if header.get("eval") and isinstance(model, torch.nn.Module):
        model = copy.deepcopy(model).eval()
    if header.get("autocast"):
        model = mixed.under(model, str(header["autocast"]), device)
    if header.get("buffers"):
        model = WithBuffers(model, header["buffers"])
    targets: list[torch.Tensor] = []
    if header.get("follow") == "train":
        plain = native(model, arranged(arguments, draw.layouts, device), int(header["call_seed"]))[0]
        targets = handed_to(plain, int(header["call_seed"]), "normal")
        model = training.Trained(model, [t.to(device) for t in targets], backward.TRAINING_STEPS)
    packed, chunks = codec.pack([list(arguments.args), dict(arguments.kwargs)])
    chunks = [memoryview(bytes(c)) for c in chunks]
    fed = arranged(arguments, draw.layouts, device)
    evaluation = oracle.evaluate(
        model, list(fed.args), dict(fed.kwargs), seed=int(header["call_seed"]),
        arithmetic=_arithmetic(_widest(arguments.tensors(), model), dict(header.get("numerics") or {})),
        runs=int(header.get("runs", 12)),
    )
    if evaluation.raised is not None:
        return {"raised": f"{evaluation.raised.type}: {evaluation.raised.message}"[:1000], "inputs": packed}, chunks
    asked = str(header.get("modes") or "")
    if asked in ("few", "all"):
        shares = oracle.contributions(model, list(fed.args), dict(fed.kwargs), arithmetic=evaluation.arithmetic)
        evaluation = oracle.with_dominant(evaluation, shares)
    try:
        outputs, seconds, mutated, aliases = native(model, arranged(arguments, draw.layouts, device),
                                              int(header["call_seed"]))
    except RuntimeError as error:
        # what only the real layout shows, such as writing in place to an expanded input
        return {"raised": f"{type(error).__name__}: {error}"[:1000], "inputs": packed}, chunks
    description, tensors = codec.flatten(outputs)
    kept = [i for i, leaf in enumerate(evaluation.leaves) if leaf.kind not in ("scalar", "none")]
    leaves = [evaluation.leaves[i] for i in kept]
    if any(layout != "task" for layout in draw.layouts) and len(leaves) == len(tensors):
        leaves = [laid_out(leaf, tensor) for leaf, tensor in zip(leaves, tensors, strict=True)]
    if draw.injections and not all(bool(torch.isfinite(leaf.native).all()) for leaf in leaves):
        leaves = dependent(state, instance, model, draw, dtype, leaves, int(header["call_seed"]), device)
    metas, names = [], []
    for leaf in leaves:
        meta, parts = leaf.to_parts()
        metas.append(meta)
        names.append(list(parts))
    parts_of = [leaf.to_parts()[1] for leaf in leaves]
    flat = [t for parts in parts_of for t in parts.values()]
    modes = []
    for mode in _modes(model, fed, evaluation.arithmetic, kept, asked, bool(header.get("approximate"))):
        meta, parts = mode.to_parts()
        modes.append([meta, list(parts)])
        flat += parts.values()
    gradients: list[Any] = []
    handed: list[torch.Tensor] = []
    requires: list[bool] = []
    refused: list[str] = []
    masks: dict[str, torch.Tensor] = {}
    for number, way in enumerate(header.get("ways") or ()):
        fed = arranged(arguments, draw.layouts, device)
        if not same_any_way(model, fed, way, tensors, int(header["call_seed"])):
            refused.append(f"{number}/{way}")
    # the seed of the last native call, unless the reference sets one itself
    reseeds = torch.initial_seed() != int(header["call_seed"])
    work: dict[str, Any] = {}
    if header.get("work"):
        work = work_of(model, arranged(arguments, draw.layouts, device), int(header["call_seed"]))
    if header.get("follow") == "train":
        handed = targets
        flat += handed
    elif header.get("grad"):
        def again() -> Any:
            return tied(arranged(arguments, draw.layouts, device), header.get("tie"))

        seed, kind = int(header["call_seed"]), str(header["grad"])
        requires = requires_grad(model, again(), seed)
        found: dict[str, Any] = {}
        if any(requires):
            handed = handed_to(outputs, seed, kind)
            if header.get("follow") == "second":
                try:
                    found, beyond = second(model, again(), evaluation.arithmetic, handed, seed)
                except NoGradient as error:
                    return {"inapplicable": f"the reference has no second derivative: {error}"[:300]}, []
                handed += beyond
            else:
                try:
                    found = gradients_of(model, again(), evaluation.arithmetic, seed, kind)
                except NoGradient:
                    # what has no backward owes no gradient
                    requires = [False] * len(requires)
                refused, masks = legal(model, again, handed, str(header.get("steps") or ""), seed, found)
                if draw.injections and found:
                    masks = arriving(state, instance, model, draw, dtype, handed, found, seed, device)
        for name, leaf in found.items():
            meta, parts = leaf.to_parts()
            gradients.append([name, meta, list(parts)])
            flat += parts.values()
        flat += handed
        flat += masks.values()
    reply: dict[str, Any] = {
        "gradients": gradients, "cotangents": len(handed), "requires_grad": requires,
        "refused": refused, "nan": list(masks), "work": work, "reseeds": reseeds,
        "inputs": packed, "output": {"tree": description},
        "contiguous": [t.is_contiguous() for t in tensors], "leaves": metas, "names": names,
        "parts": {"forms": [codec.form_of(t).to_json() for t in flat]},
        "random": evaluation.random if state.study is None else state.study.random and (
            evaluation.random or not header.get("eval")),
        "unmodelled": list(evaluation.unmodelled), "seconds": seconds,
        "ops": evaluation.ops, "arithmetic": evaluation.arithmetic.to_json(), "modes": modes,
        "mutated": mutated, "aliases": aliases,
        # a number read off a tensor keeps no trace of its dtype, and so cannot be known to be exact
        "numbers": [[float(leaf.y.real), float(dataclasses.replace(leaf, exact=False).tolerance.amax())]
                    for leaf in evaluation.leaves if leaf.kind == "scalar" and leaf.dtype == "float"],
    }
    return reply, [*chunks, *[codec.tensor_bytes(t) for t in flat]]


def _arithmetic(dtype: torch.dtype, numerics: dict[str, Any]) -> Any:
    """The declared arithmetic: that of the dtype, with what the contract says otherwise."""
    from assay import oracle

    own = {name: numerics[name] for name in ("accumulate", "operands") if name in numerics}
    rest = {name: value for name, value in numerics.items() if name not in own}
    return dataclasses.replace(oracle.arithmetic_for(dtype, **rest), **own)


def _modes(model: Any, fed: Any, declared: Any, kept: list[int], asked: str, approximate: bool) -> list[Any]:
    """What arithmetic coarser than the declared one would do to the outputs that are tensors."""
    from assay import oracle

    if not asked:
        return []
    found = oracle.alternatives(model, list(fed.args), dict(fed.kwargs), arithmetic=declared, approximate=approximate,
                                thorough=asked == "all", only=None if asked in ("few", "all") else asked)
    return [dataclasses.replace(mode, leaves=[mode.leaves[i] for i in kept]) for mode in found]


def _widest(tensors: list[torch.Tensor], model: Any) -> torch.dtype:
    """The widest floating dtype the task computes in; float32 where there is none."""
    dtypes = [t.dtype for t in tensors if t.is_floating_point() or t.is_complex()]
    if not dtypes and isinstance(model, torch.nn.Module):
        dtypes = [p.dtype for p in model.parameters() if p.is_floating_point()]
    if not dtypes:
        return torch.float32
    return max(dtypes, key=lambda d: d.itemsize)
