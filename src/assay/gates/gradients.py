"""CMP-02: gradients of every differentiable input and parameter match the reference's float64 VJP."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from assay import oracle
from assay.gates.base import Context, Verdict, distinct, own, undecided_reason
from assay.gates.numbers import class_reason, shown, unravel
from assay.oracle import LeafTruth
from assay.probe.model import Call, Draw, Probe
from assay.probe.record import FAULTS, CallResult, Record
from assay.report.model import Finding
from assay.vocabulary import Reason, Tier

COTANGENTS = ("normal", "ones", "strided", "one_hot", "zeros")


class Gradients:
    """Backward from several cotangents, against the replayed vector-Jacobian product of the reference.

    Under `auto` a candidate that claims no gradient owes none. One that claims some, and neither defines a
    backward nor is plain torch, owes only those that arrive: its kernels are forward-only.
    """

    id = "CMP-02"
    slug = "gradients"
    aliases = ("lethe:CMP-02", "veit:gradient-correctness")
    obligation = "gradients of every differentiable input and parameter match the reference's float64 VJP"
    opt_in = False

    def plan(self, ctx: Context) -> list[Probe]:
        """One backward per kind of cotangent, a second draw, and parameters other than constructed."""
        if ctx.contract.gradients == "none" or ctx.study.random or not _differentiable(ctx):
            return []
        if ctx.contract.gradients == "auto" and not ctx.defines_backward and ctx.language != "torch":
            # kernels without a backward: one probe shows whether anything is claimed
            return [self._probe(ctx, "normal", "normal")]
        kinds = COTANGENTS[:2] if ctx.quick else COTANGENTS
        probes = [self._probe(ctx, kind, kind) for kind in kinds]
        if not ctx.quick:
            probes.append(self._probe(ctx, "draw-1", "normal"))
            if any(p.requires_grad for p in ctx.study.parameters):
                probes.append(self._probe(ctx, "parameters", "normal", parameters=1))
        return probes

    def _probe(self, ctx: Context, name: str, cotangent: str, parameters: int = 0) -> Probe:
        return Probe(id=f"{self.slug}/{name}", gate=self.slug, kind="backward", sizes=ctx.small, grad=True,
                     draws=(Draw(seed=ctx.draw_seed(self.slug, name)),), calls=(Call(),), parameters=parameters,
                     conditions=(f"cotangent:{cotangent}",))

    def judge(self, ctx: Context, records: Sequence[Record]) -> Verdict:
        """Each gradient that the reference has: there, of its form, and within tolerance."""
        if ctx.contract.gradients == "none":
            return Verdict(inapplicable=Reason.BY_CONTRACT)
        if ctx.study.random:
            return Verdict(inapplicable=Reason.REFERENCE_RANDOM)
        if not _differentiable(ctx):
            return Verdict(inapplicable=Reason.NO_SUCH_INPUT, note="the reference's outputs carry no gradient")
        verdict = Verdict()
        forward_only = without = 0
        for record in own(self, records):
            if (reason := undecided_reason(record)) is not None:
                verdict.undecided[reason] += 1
            elif record.observation.status in FAULTS:
                self._raised(ctx, record, verdict)
            elif not any(record.truths[0].requires_grad):
                without += 1
            elif not any(record.observation.calls[0].claims) and ctx.contract.gradients == "auto":
                forward_only += 1
            else:
                verdict.decided += 1
                verdict.findings += self._compare(ctx, record, record.observation.calls[0])
        if forward_only and not verdict.findings:
            return Verdict(inapplicable=Reason.FORWARD_ONLY, note="forward only: no output claims a gradient")
        if without and not verdict.decided:
            return Verdict(inapplicable=Reason.NO_SUCH_INPUT, note="the reference's outputs carry no gradient")
        verdict.findings = distinct(verdict.findings)
        return verdict

    def _raised(self, ctx: Context, record: Record, verdict: Verdict) -> None:
        """An error with gradients on: the backward's fault if the candidate has one, else nothing to decide."""
        if ctx.contract.gradients == "auto" and not ctx.defines_backward:
            verdict.undecided[Reason.RAISED] += 1
            return
        verdict.decided += 1
        error = record.observation.error or {}
        actual = f"{error.get('type', record.observation.status)}: {error.get('message', '')}"[:300]
        verdict.findings.append(self._finding(record, Reason.GRADIENT_RAISED, "backward", "gradients", actual))

    def _compare(self, ctx: Context, record: Record, call: CallResult) -> list[Finding]:
        truth = record.truths[0]
        obliged = ctx.contract.gradients == "training" or ctx.defines_backward or ctx.language == "torch"
        wanted = {n: leaf for n, leaf in truth.gradients.items() if leaf.kind in ("float", "complex")}
        found: list[Finding] = []
        for path, claims, expected in zip(truth.paths, call.claims, truth.requires_grad, strict=False):
            if expected and not claims and obliged:
                found.append(self._finding(record, Reason.SEVERED, path, "requires grad", "no gradient"))
        got = {name: self._gradient(call, name) for name in wanted}
        missing = [n for n, g in got.items() if g is None and bool((wanted[n].y != 0).any())]
        if obliged and not found:
            reason = Reason.SEVERED if missing and len(missing) == len(wanted) else Reason.GRADIENT_MISSING
            found += [self._finding(record, reason, name, "a gradient", "None") for name in missing]
        for name, gradient in got.items():
            if gradient is not None:
                found += self._value(record, name, wanted[name], gradient)
        return found

    def _gradient(self, call: CallResult, name: str) -> torch.Tensor | None:
        kind, _, which = name.partition(":")
        if kind == "input":
            grads = call.input_grads or ()
            return grads[int(which)] if int(which) < len(grads) else None
        return call.parameter_grads.get(which)

    def _value(self, record: Record, name: str, truth: LeafTruth, gradient: torch.Tensor) -> list[Finding]:
        if tuple(gradient.shape) != tuple(truth.y.shape):
            return [self._finding(record, Reason.GRADIENT_SHAPE, name, str(list(truth.y.shape)),
                                  str(list(gradient.shape)))]
        if gradient.dtype != truth.native.dtype:
            return [self._finding(record, Reason.GRADIENT_DTYPE, name, str(truth.native.dtype), str(gradient.dtype))]
        result = oracle.compare(truth, gradient)
        if result.ok or result.index is None:
            return []
        finite = result.reason in (oracle.Reason.VALUE, None)
        return [Finding(
            gate=self.id, slug=self.slug,
            reason=Reason.GRADIENT_VALUE if finite else class_reason(result.expected, result.actual),
            tier=Tier.WRONG, tolerance_free=not finite, output=f"grad {name}",
            index=unravel(result.index, tuple(gradient.shape)), expected=shown(result.expected),
            actual=shown(result.actual), error=result.error if finite else None, tolerance=result.tolerance,
            detail={"wrong_elements": result.n_bad, "elements": result.n, "ratio": result.ratio if finite else None,
                    "cotangent": record.probe.conditions[0].removeprefix("cotangent:")},
            probe=record.probe.id)]

    def _finding(self, record: Record, reason: Reason, where: str, expected: str, actual: str) -> Finding:
        return Finding(gate=self.id, slug=self.slug, reason=reason, tier=Tier.WRONG, tolerance_free=True,
                       output=where, expected=expected, actual=actual, probe=record.probe.id)


def _differentiable(ctx: Context) -> bool:
    """Whether the task has a floating output, and something floating it could be differentiated by."""
    floating = ("float", "bfloat", "complex")
    sources = [leaf.dtype for leaf in ctx.study.tensor_inputs()]
    sources += [p.dtype for p in ctx.study.parameters if p.requires_grad]
    outputs = [leaf.dtype for leaf in ctx.study.outputs if leaf.kind == "tensor"]
    return any(d.startswith(floating) for d in sources) and any(d.startswith(floating) for d in outputs)
