"""The probes of the gradient gate: few truths, and many backward passes over each."""

from __future__ import annotations

from assay.gates import races
from assay.gates.base import Context
from assay.probe.backward import PLAIN, Step, condition
from assay.probe.model import Call, Draw, Injection, Probe
from assay.task.facts import ParameterFact

SLUG = "gradients"
FLOATING = ("float", "bfloat", "complex")
SLOW_SECONDS = 1.0
DEEP_DRAWS = 4
POISONED = 0.41
"""Place of a poisoned element as a fraction of the input."""


def differentiable(ctx: Context) -> bool:
    """Whether the task has a floating output, and something floating it could be differentiated by."""
    outputs = [leaf.dtype for leaf in ctx.study.outputs if leaf.kind == "tensor"]
    return bool(targets(ctx)) and any(d.startswith(FLOATING) for d in outputs)


def targets(ctx: Context) -> list[str]:
    """Names of everything that may require a gradient, inputs first."""
    inputs = [f"input:{leaf.position}" for leaf in ctx.study.tensor_inputs() if leaf.dtype.startswith(FLOATING)]
    return inputs + [f"parameter:{p.name}" for p in trained(ctx)]


def trained(ctx: Context) -> list[ParameterFact]:
    """Parameters that the reference trains."""
    return [p for p in ctx.study.parameters if p.requires_grad and p.dtype.startswith(FLOATING)]


def obliged(ctx: Context) -> bool:
    """Whether the candidate owes every gradient, whatever it claims."""
    return ctx.contract.gradients == "training" or ctx.defines_backward or ctx.language == "torch"


def planned(ctx: Context) -> list[Probe]:
    """One backward per kind of grad_output, with passes that repeat it in other layouts; other draws; modes."""
    modes = bool(ctx.study.training and (ctx.study.mode_matters or ctx.study.random))
    if ctx.study.random:
        # where dropout is off there is one right gradient
        return [_probe(ctx, "eval", "normal", PLAIN, "mode:eval")] if modes else []
    if not obliged(ctx):
        # kernels without a backward: one probe shows whether anything is claimed
        return [_probe(ctx, "normal", "normal", PLAIN)]
    probes = [
        _probe(ctx, "normal", "normal", _first_steps(ctx)),
        _probe(ctx, "ones", "ones", (Step(("plain", "expanded")),)),
    ]
    if ctx.defines_backward:
        # programs of a backward may race as well as those of a forward
        probes += races.in_orders(ctx, _probe(ctx, "normal", "normal", PLAIN))
    if ctx.quick:
        return probes
    parameters = 1 if trained(ctx) and ctx.contract.domain.vary_parameters else 0
    probes += [
        _probe(ctx, "one_hot", "one_hot", (Step(("plain", "nan")),)),
        _probe(ctx, "other", "normal", PLAIN, parameters=parameters),
    ]
    if ctx.study.beside and ctx.study.beside != ctx.small:
        probes.append(_probe(ctx, "sizes", "normal", PLAIN, sizes=ctx.study.beside))
    probes += _poisoned(ctx)
    if (dtype := ctx.contract.numerics.autocast) != "none":
        probes.append(_probe(ctx, "autocast", "normal", PLAIN, f"autocast:{dtype}", parameters=parameters))
    if modes:
        probes.append(_probe(ctx, "eval", "normal", PLAIN, "mode:eval"))
    if (pair := _pair(ctx)) is not None:
        probes.append(_probe(ctx, f"twice@{pair[0]},{pair[1]}", "normal", PLAIN, f"tie:{pair[0]},{pair[1]}"))
    if ctx.call_seconds < SLOW_SECONDS or ctx.deep:
        probes.append(_probe(ctx, "zeros", "zeros", PLAIN))
    return probes + (_deep(ctx) if ctx.deep else [])


def _first_steps(ctx: Context) -> tuple[Step, ...]:
    """All gradients in every way of asking for them; then parts of them, and a forward in inference mode.

    A reference with state gives another result at its second call, so there is only one.
    """
    steps = [Step(("plain", "again", "strided"))]
    if ctx.study.stateful:
        return tuple(steps)
    steps.append(Step())
    names = targets(ctx)
    if len(names) > 1 and not ctx.quick:
        steps += [Step(ask=tuple(names[::2])), Step(ask=tuple(names[1::2]))]
    if not ctx.quick:
        steps.append(Step(("crossed",)))
    return (*steps, Step((), inference=True))


def _deep(ctx: Context) -> list[Probe]:
    probes = [_probe(ctx, f"draw-{i}", "normal", PLAIN) for i in range(DEEP_DRAWS)]
    if trained(ctx):
        probes.append(_probe(ctx, "sgd", "normal", PLAIN, "follow:train"))
    if ctx.contract.gradients == "training":
        probes.append(_probe(ctx, "second", "normal", PLAIN, "follow:second"))
    return probes


def _poisoned(ctx: Context) -> list[Probe]:
    """A NaN, and an infinity, in one element of the first floating input."""
    policy = ctx.contract.exceptional
    wanted = [value for value, clause in (("nan", policy.nan), ("inf", policy.inf)) if clause != "ignore"]
    leaf = next((i for i, leaf in enumerate(ctx.study.tensor_inputs()) if leaf.dtype.startswith(FLOATING[:2])), None)
    if leaf is None:
        return []
    found = []
    for value in wanted:
        probe = _probe(ctx, f"{value}_input", "normal", PLAIN)
        injected = Injection.model_validate({"leaf": leaf, "position": POISONED, "value": value})
        draw = probe.draws[0].model_copy(update={"injections": (injected,)})
        found.append(probe.model_copy(update={"draws": (draw,)}))
    return found


def _pair(ctx: Context) -> tuple[int, int] | None:
    """Two inputs that may be one tensor: of one shape, dtype and structure, both without a bound."""
    leaves = [leaf for leaf in ctx.study.tensor_inputs() if leaf.dtype.startswith(FLOATING)]
    for i, a in enumerate(leaves):
        for b in leaves[i + 1:]:
            alike = a.dtype == b.dtype and [x.label for x in a.axes] == [x.label for x in b.axes]
            free = all(leaf.structure is not None and leaf.structure.has("normal_like") for leaf in (a, b))
            if alike and free and a.shape == b.shape and a.position is not None and b.position is not None:
                assert a.structure is not None
                assert b.structure is not None
                if a.structure.traits == b.structure.traits:
                    return a.position, b.position
    return None


def _probe(ctx: Context, name: str, cotangent: str, steps: tuple[Step, ...], *extra: str, parameters: int = 0,
           sizes: dict[str, int] | None = None) -> Probe:
    return Probe(id=f"{SLUG}/{name}", gate=SLUG, kind="backward", sizes=ctx.small if sizes is None else sizes,
                 grad=True, draws=(Draw(seed=ctx.draw_seed(SLUG, name)),), calls=tuple(Call() for _ in steps),
                 parameters=parameters, conditions=(f"cotangent:{cotangent}", condition(steps), *extra))
