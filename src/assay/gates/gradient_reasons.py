"""Telling apart the ways in which a gradient is wrong: one record's backward passes against their truth.

Every pass after the first is blamed for what it adds (a second pass, another layout) only where the first
was right, so that a plainly wrong backward has one reason.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch

from assay import oracle
from assay.gates.numbers import (
    Compared,
    class_reason,
    compare_call,
    first_difference,
    same_bits,
    shown,
    unravel,
)
from assay.oracle import Comparison, LeafTruth
from assay.probe.backward import Step, steps_of
from assay.probe.model import Injection
from assay.probe.record import CallResult, Record
from assay.report.model import Finding
from assay.vocabulary import Reason, Tier

ID, SLUG = "CMP-02", "gradients"
HALVES = (torch.float16, torch.bfloat16)

PRECEDENCE = (
    Reason.SEVERED, Reason.GRADIENT_MISSING, Reason.GRADIENT_SHAPE, Reason.GRADIENT_NOT_REPEATABLE,
    Reason.SAVED_TENSOR_CHANGED, Reason.GRADIENT_NOT_ACCUMULATED, Reason.GRADIENT_LAYOUT,
    Reason.GRADIENT_BATCH_COUPLED, Reason.GRADIENT_DTYPE, Reason.GRADIENT_RAISED,
)
"""The more telling reason first."""

Named = dict[str, torch.Tensor | None]


@dataclass(frozen=True)
class Obligation:
    """What one verification holds a backward pass to.

    Attributes:
        every: whether each gradient of the reference is owed, not only those that arrive.
        bitwise: whether the same backward owes the same bits.
        batched: positions of inputs whose first dimension is the batch.
        nan: whether a NaN in grad_output has to arrive.
    """

    every: bool = True
    bitwise: bool = True
    batched: frozenset[int] = frozenset()
    nan: bool = True


def ranked(findings: list[Finding]) -> list[Finding]:
    """Findings with the more telling reasons first, without those that another one explains.

    An input used twice says nothing where it is wrong once, and neither does a later pass over a graph whose
    saved tensors the earlier one changed.
    """
    changed = any(f.reason is Reason.SAVED_TENSOR_CHANGED for f in findings)
    once = any(not f.probe.startswith(f"{SLUG}/twice@") for f in findings)
    findings = [f for f in findings if not (once and f.probe.startswith(f"{SLUG}/twice@"))
                and not (changed and f.reason is Reason.GRADIENT_LAYOUT)]
    return sorted(findings, key=lambda f: PRECEDENCE.index(f.reason) if f.reason in PRECEDENCE else len(PRECEDENCE))


def plain(record: Record, reason: Reason, where: str, expected: str, actual: str, **detail: object) -> Finding:
    """A finding that needs no tolerance."""
    return Finding(gate=ID, slug=SLUG, reason=reason, tier=Tier.WRONG, tolerance_free=True, output=where,
                   expected=expected, actual=actual[:300], detail=detail, probe=record.probe.id)


def raised(record: Record) -> Finding:
    """The finding for a backward that raised where the reference's does not."""
    error = record.observation.error or {}
    text = f"{error.get('type', record.observation.status)}: {error.get('message', '')}"
    stage = str(error.get("phase", "")).rpartition("/")[2]
    reason = Reason.GRADIENT_RAISED
    if "invalid gradient at index" in text and "shape" in text:
        reason = Reason.GRADIENT_SHAPE
    elif "modified by an inplace operation" in text or stage == "crossed":
        reason = Reason.SAVED_TENSOR_CHANGED
    elif stage in ("strided", "expanded"):
        reason = Reason.GRADIENT_LAYOUT
    return plain(record, reason, f"backward ({stage})" if stage else "backward", "gradients", text)


def refused(record: Record) -> bool:
    """Whether the reference itself cannot take the step at which the candidate stopped."""
    number = len(record.observation.calls)
    return any(r.startswith(f"{number}/") for t in record.truths for r in t.backward_refused)


def gradients_of(call: CallResult) -> Named:
    """The gradients of the first pass, by name."""
    return _named(call.input_grads or (), call.parameter_grads)


def _named(inputs: tuple[torch.Tensor | None, ...], parameters: Named) -> Named:
    return {**{f"input:{i}": g for i, g in enumerate(inputs)}, **{f"parameter:{n}": g for n, g in parameters.items()}}


def judge(record: Record, owed: Obligation) -> list[Finding]:
    """What is wrong with the gradients of one record; all its passes that returned."""
    if record.probe.draws[0].injections:
        return _poisoned(record, owed) if record.observation.calls else []
    truth = record.truths[0]
    wanted = {n: leaf for n, leaf in truth.gradients.items() if leaf.kind in ("float", "complex")}
    steps = steps_of(record.probe.conditions)
    calls = record.observation.calls
    found = _unsteady(record, calls, steps, wanted) if owed.bitwise else []
    steady = not found
    for number, (call, step) in enumerate(zip(calls, steps, strict=False)):
        if step.inference:
            # a wrong forward is wrong in any mode: only what this mode adds is blamed on it
            if all(c.result.ok for c in compare_call(record, 0)):
                found += [_of_output(record, c) for c in compare_call(record, number)
                          if not c.result.ok]
            continue
        asked = wanted if step.ask is None else {n: t for n, t in wanted.items() if n in step.ask}
        wrong = _form(record, call, asked, owed, whole=step.ask is None)
        first = gradients_of(call)
        severed = any(f.reason is Reason.SEVERED for f in wrong)
        for name, leaf in asked.items():
            # what a severed output would have added is missing from all of them
            if not severed and (gradient := first.get(name)) is not None:
                wrong += _value(record, name, leaf, gradient)
        if step.passes[0] == "crossed":
            # right without another forward in between: what belongs to one graph is kept where the other finds it
            wrong = [f.model_copy(update={"reason": Reason.SAVED_TENSOR_CHANGED,
                                          "detail": {**f.detail, "backward": "after another forward"}}) for f in wrong]
        if not wrong and steady:
            wrong = list(_further(record, number, asked, owed))
        if call.wrote:
            wrong.append(plain(record, Reason.SAVED_TENSOR_CHANGED, "grad_output", "unchanged", "written into",
                               passes=list(call.wrote)).model_copy(update={"attested_by": "worker"}))
        found += wrong
        if wrong:
            break
    return found


def _of_output(record: Record, compared: Compared) -> Finding:
    """A finding on an output of a forward in inference mode."""
    result = compared.result
    assert result.index is not None
    finite = result.reason is oracle.Reason.VALUE
    return Finding(gate=ID, slug=SLUG, reason=Reason.VALUE if finite else class_reason(result.expected, result.actual),
                   tier=Tier.WRONG, tolerance_free=not finite, output=f"{compared.output.path} in inference mode",
                   index=unravel(result.index, compared.output.shape), expected=shown(result.expected),
                   actual=shown(result.actual), error=result.error if finite else None, tolerance=result.tolerance,
                   probe=record.probe.id)


def _form(record: Record, call: CallResult, asked: dict[str, LeafTruth], owed: Obligation, *,
          whole: bool) -> list[Finding]:
    """Outputs that claim no gradient and gradients that do not arrive."""
    truth = record.truths[0]
    if not owed.every:
        return []
    second = "follow:second" in record.probe.conditions
    if whole and not second:
        severed = [path for path, claims, expected
                   in zip(truth.paths, call.claims, truth.requires_grad, strict=False) if expected and not claims]
        if severed:
            return [plain(record, Reason.SEVERED, path, "requires grad", "no gradient") for path in severed]
    got = gradients_of(call)
    missing = [n for n, leaf in asked.items() if got.get(n) is None and bool((leaf.y != 0).any())]
    reason = Reason.SEVERED if missing and len(missing) == len(asked) and whole else Reason.GRADIENT_MISSING
    what = "a second derivative" if second else "a gradient"
    return [plain(record, reason, name, what, "None") for name in missing]


def _value(record: Record, name: str, truth: LeafTruth, gradient: torch.Tensor) -> list[Finding]:
    """Form and values of one gradient of a first pass."""
    if tuple(gradient.shape) != tuple(truth.y.shape):
        return [plain(record, Reason.GRADIENT_SHAPE, name, str(list(truth.y.shape)), str(list(gradient.shape)))]
    if gradient.dtype != truth.native.dtype:
        return [plain(record, Reason.GRADIENT_DTYPE, name, str(truth.native.dtype), str(gradient.dtype))]
    result = oracle.compare(truth, gradient)
    if result.ok or result.index is None:
        return []
    return [_finding(record, _reason(record, truth, gradient, result), name, result, tuple(gradient.shape))]


def _reason(record: Record, truth: LeafTruth, gradient: torch.Tensor, result: Comparison) -> Reason:
    """Why a gradient of a first pass has a wrong value."""
    if result.reason not in (oracle.Reason.VALUE, None):
        return class_reason(result.expected, result.actual)
    allowed = {i for t in record.truths for i in t.mutated}
    if any(e.kind == "input" and e.leaf not in allowed for e in record.observation.memory):
        return Reason.SAVED_TENSOR_CHANGED
    if "tie" in {c.partition(":")[0] for c in record.probe.conditions}:
        return Reason.GRADIENT_NOT_ACCUMULATED
    if "cotangent:one_hot" in record.probe.conditions and _elsewhere(truth, gradient):
        return Reason.GRADIENT_BATCH_COUPLED
    if _halved(truth, gradient):
        return Reason.GRADIENT_DTYPE
    return Reason.GRADIENT_VALUE


def _elsewhere(truth: LeafTruth, gradient: torch.Tensor) -> bool:
    """Whether rows (first dimension) that the truth leaves at zero are wrong."""
    if gradient.dim() < 2 or gradient.shape[0] < 2 or gradient.is_complex():
        return False
    rows = truth.y.reshape(truth.y.shape[0], -1)
    untouched = (rows == 0).all(dim=1)
    error = (gradient.double().reshape(rows.shape) - rows).abs()
    bad = ((error > truth.tolerance.expand(truth.y.shape).reshape(rows.shape))
           & truth.decided.reshape(rows.shape)).any(dim=1)
    return bool((bad & untouched).any()) and bool((~untouched).any())


def _halved(truth: LeafTruth, gradient: torch.Tensor) -> bool:
    """Whether a wider gradient holds only numbers of a half precision, close to the right ones."""
    if gradient.dtype not in (torch.float32, torch.float64) or gradient.numel() < 8:
        return False
    error = (gradient.double() - truth.y).abs()
    scale = float(truth.y.abs().max())
    for half in HALVES:
        wide = torch.equal(gradient.to(half).to(gradient.dtype), gradient)
        own = torch.equal(truth.native.to(half).to(truth.native.dtype), truth.native)
        # where the tolerance is that of half precision, as under autocast, half precision is not what is wrong
        meant = float(truth.tolerance.max()) >= torch.finfo(half).eps * scale
        if wide and not own and not meant and float(error.max()) <= 16 * torch.finfo(half).eps * scale:
            return True
    return False


def _unsteady(record: Record, calls: tuple[CallResult, ...], steps: tuple[Step, ...],
              wanted: dict[str, LeafTruth]) -> list[Finding]:
    """The same backward of a fresh forward, and other bits."""
    full = [c for c, s in zip(calls, steps, strict=False) if not s.inference and s.ask is None]
    if len(full) < 2:
        return []
    first, other = gradients_of(full[0]), gradients_of(full[1])
    for name in wanted:
        a, b = first.get(name), other.get(name)
        if a is not None and b is not None and a.shape == b.shape and a.dtype == b.dtype and not same_bits(a, b):
            index = first_difference(a, b)
            return [plain(record, Reason.GRADIENT_NOT_REPEATABLE, f"grad {name}", shown(a[index].item()),
                          shown(b[index].item()), element=list(index))]
    return []


def _further(record: Record, number: int, asked: dict[str, LeafTruth],
             owed: Obligation) -> Iterator[Finding]:
    """Passes after a right first one: again, other layouts, NaN; but for those that the reference gets wrong."""
    call = record.observation.calls[number]
    first = gradients_of(call)
    for done in call.further:
        if f"wrong:{number}/{done.name}" in record.truths[0].backward_refused:
            continue
        got = _named(done.inputs, done.parameters)
        for name, leaf in asked.items():
            one, other = first.get(name), got.get(name)
            if one is None or other is None or other.shape != one.shape:
                if one is not None and other is None and bool((leaf.y != 0).any()):
                    yield plain(record, Reason.GRADIENT_MISSING, name, "a gradient", f"None ({done.name})")
                continue
            found = None
            if done.name == "again":
                found = _again(record, name, leaf, one, other, owed)
            elif done.name in ("strided", "expanded"):
                result = oracle.compare(leaf, other)
                if not result.ok and result.index is not None:
                    found = _finding(record, Reason.GRADIENT_LAYOUT, name, result, tuple(other.shape), done.name)
            elif done.name == "nan":
                found = _nan(record, name, leaf, other, owed)
            if found is not None:
                yield found


def _again(record: Record, name: str, truth: LeafTruth, one: torch.Tensor, both: torch.Tensor,
           owed: Obligation) -> Finding | None:
    """A second pass over one graph adds the same again: twice the first, and doubling is exact."""
    if same_bits(both, one + one):
        return None
    if same_bits(both, one):
        if not bool((one != 0).any()):
            return None
        return plain(record, Reason.GRADIENT_NOT_ACCUMULATED, f"grad {name}", "added to the gradient that is there",
                     "overwritten")
    halved = oracle.compare(truth, both / 2)
    if halved.ok and not owed.bitwise:
        return None
    index = first_difference(both, one + one)
    reason = Reason.SAVED_TENSOR_CHANGED
    if not halved.ok and oracle.compare(truth, both).ok:
        reason = Reason.GRADIENT_NOT_ACCUMULATED
    return plain(record, reason, f"grad {name}", shown((one + one)[index].item()), shown(both[index].item()),
                 element=list(index), backward="a second one over the same graph")


def _nan(record: Record, name: str, truth: LeafTruth, gradient: torch.Tensor, owed: Obligation) -> Finding | None:
    """A NaN in grad_output arrives where the reference puts it and the gradient depends on that element."""
    mask = record.truths[0].gradient_nan.get(name)
    if mask is None or mask.shape != gradient.shape or truth.y.is_complex():
        return None
    arrives = mask.bool()
    depends = truth.decided & (truth.y.abs() > truth.tolerance)
    swallowed = arrives & depends & torch.isfinite(gradient)
    if owed.nan and bool(swallowed.any()):
        index = unravel(int(swallowed.reshape(-1).nonzero()[0]), tuple(gradient.shape))
        return plain(record, Reason.NAN_SWALLOWED, f"grad {name}", "nan", shown(gradient[index].item()),
                     element=list(index), grad_output="NaN in one element")
    kind, _, which = name.partition(":")
    if kind == "input" and int(which) in owed.batched and gradient.dim() >= 1 and gradient.shape[0] > 1:
        rows = gradient.shape[0]
        untouched = ~arrives.reshape(rows, -1).any(dim=1) & (truth.y.reshape(rows, -1) == 0).all(dim=1)
        leaked = torch.isnan(gradient.reshape(rows, -1)).any(dim=1) & untouched
        if bool(leaked.any()):
            return plain(record, Reason.GRADIENT_BATCH_COUPLED, f"grad {name}", "finite", "nan",
                         row=int(leaked.nonzero()[0]), grad_output="NaN in an element of another row")
    return None


def _poisoned(record: Record, owed: Obligation) -> list[Finding]:
    """A NaN or an infinity in an input arrives in the gradients that depend on it, and in no other row's."""
    truth, got = record.truths[0], gradients_of(record.observation.calls[0])
    injection = record.probe.draws[0].injections[0]
    value, own = injection.value, _row(truth.inputs, injection)
    found = []
    for name, marks in truth.gradient_nan.items():
        gradient = got.get(name)
        if gradient is None or gradient.shape != marks.shape or gradient.is_complex():
            continue
        swallowed = (marks == 1) & torch.isfinite(gradient)
        if owed.nan and bool(swallowed.any()):
            index = unravel(int(swallowed.reshape(-1).nonzero()[0]), tuple(gradient.shape))
            native = truth.gradients[name].native[index].item()
            found.append(plain(record, class_reason(native, gradient[index].item()), f"grad {name}", shown(native),
                               shown(gradient[index].item()), element=list(index), input=value))
            continue
        kind, _, which = name.partition(":")
        if kind == "input" and int(which) in owed.batched and gradient.dim() >= 1 and gradient.shape[0] > 1:
            clean = (marks.reshape(gradient.shape[0], -1) == 0).all(dim=1)
            if own is not None and own < gradient.shape[0]:
                # a reference may lose the NaN in its own row; what arrives there came from no other
                clean[own] = False
            leaked = ~torch.isfinite(gradient.reshape(gradient.shape[0], -1)).all(dim=1) & clean
            if bool(leaked.any()):
                found.append(plain(record, Reason.GRADIENT_BATCH_COUPLED, f"grad {name}", "finite", "not finite",
                                   row=int(leaked.nonzero()[0]), input=f"{value} in an element of another row"))
    return found


def _row(inputs: tuple[torch.Tensor, ...], injection: Injection) -> int | None:
    """The row (first dimension) of its input that a value was put into; None where that cannot be told."""
    if injection.leaf >= len(inputs) or inputs[injection.leaf].dim() == 0 or inputs[injection.leaf].numel() == 0:
        return None
    tensor = inputs[injection.leaf]
    place = min(int(injection.position * tensor.numel()), tensor.numel() - 1)
    return place // (tensor.numel() // tensor.shape[0])


def _finding(record: Record, reason: Reason, name: str, result: Comparison, shape: tuple[int, ...],
             layout: str = "") -> Finding:
    finite = result.reason in (oracle.Reason.VALUE, None)
    assert result.index is not None
    detail: dict[str, object] = {"wrong_elements": result.n_bad, "elements": result.n,
                                 "ratio": result.ratio if finite else None,
                                 "cotangent": record.probe.conditions[0].removeprefix("cotangent:")}
    if layout:
        detail["grad_output"] = layout
    return Finding(gate=ID, slug=SLUG, reason=reason, tier=Tier.WRONG, tolerance_free=not finite,
                   output=f"grad {name}", index=unravel(result.index, shape), expected=shown(result.expected),
                   actual=shown(result.actual), error=result.error if finite else None, tolerance=result.tolerance,
                   detail=detail, probe=record.probe.id)
