"""CMP-02: gradients of every differentiable input and parameter match the reference's float64 VJP."""

from __future__ import annotations

from collections.abc import Sequence

from assay import oracle
from assay.gates import races
from assay.gates.base import Context, Verdict, distinct, own, undecided_reason
from assay.gates.gradient_plan import differentiable, obliged, planned
from assay.gates.gradient_reasons import Obligation, gradients_of, judge, plain, raised, ranked, refused
from assay.gates.numbers import shown, unravel
from assay.probe.model import Probe
from assay.probe.record import FAULTS, Record
from assay.report.model import Finding
from assay.vocabulary import Reason, Tier


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
        """A backward per kind of cotangent; see `assay.gates.gradient_plan`."""
        if ctx.contract.gradients == "none" or not differentiable(ctx):
            return []
        return planned(ctx)

    def judge(self, ctx: Context, records: Sequence[Record]) -> Verdict:
        """Each gradient that the reference has: there, of its form, within tolerance, and the same each time."""
        if ctx.contract.gradients == "none":
            return Verdict(inapplicable=Reason.BY_CONTRACT)
        if ctx.study.random and all(t.random for r in own(self, records) for t in r.truths):
            return Verdict(inapplicable=Reason.REFERENCE_RANDOM)
        if not differentiable(ctx):
            return Verdict(inapplicable=Reason.NO_SUCH_INPUT, note="the reference's outputs carry no gradient")
        verdict = Verdict()
        owed = _obligation(ctx)
        forward_only = without = 0
        mine = own(self, records)
        for record in (r for r in mine if r.probe.kind != races.KIND):
            trains = "follow:train" in record.probe.conditions
            if (reason := undecided_reason(record)) is not None:
                verdict.undecided[reason] += 1
            elif any(truth.random for truth in record.truths):
                verdict.undecided[Reason.REFERENCE_RANDOM] += 1
            elif not trains and not any(record.truths[0].requires_grad):
                without += 1
            elif record.observation.status in FAULTS:
                self._raised(ctx, record, verdict, owed)
            elif trains:
                verdict.decided += 1
                verdict.findings += _trained(record)
            elif not any(record.observation.calls[0].claims) and ctx.contract.gradients == "auto":
                forward_only += 1
            elif not record.probe.draws[0].injections and _unstable(record):
                verdict.undecided[Reason.UNSTABLE_REFERENCE] += 1
            else:
                verdict.decided += 1
                verdict.findings += judge(record, owed)
        if not verdict.findings:
            for record in (r for r in mine if r.probe.kind == races.KIND and races.tells(r)):
                control = next((r for r in mine if r.probe.id == races.of_control(record)), None)
                if control is not None and control.comparable and any(control.observation.calls[0].claims):
                    verdict.decided += 1
                    wrong = [f for f in judge(record, owed) if f.reason is Reason.GRADIENT_VALUE]
                    verdict.findings += [races.raced(record, f) for f in wrong]
        verdict.findings += [found for record in records for found in _unasked(record)]
        if forward_only and not verdict.findings:
            note = "forward only: no output claims a gradient"
            note += ", although a backward is defined" if ctx.defines_backward else ""
            return Verdict(inapplicable=Reason.FORWARD_ONLY, note=note)
        if without and not verdict.decided:
            return Verdict(inapplicable=Reason.NO_SUCH_INPUT, note="the reference's outputs carry no gradient")
        verdict.findings = distinct(ranked(verdict.findings))
        return verdict

    def _raised(self, ctx: Context, record: Record, verdict: Verdict, owed: Obligation) -> None:
        """An error with gradients on: the backward's fault if the candidate has one, else nothing to decide."""
        before = judge(record, owed) if record.observation.calls else []
        phase = str((record.observation.error or {}).get("phase", ""))
        forward = phase in ("construct", "inputs") or phase.endswith("/forward")
        lenient = ctx.contract.gradients == "auto" and not ctx.defines_backward
        if before:
            verdict.decided += 1
            verdict.findings += before
        elif refused(record) or phase.endswith("/second"):
            # whoever has no second derivative and says so has not been wrong
            verdict.undecided[Reason.NOTHING_TO_VARY] += 1
        elif lenient or (forward and record.probe.sizes != ctx.small):
            verdict.undecided[Reason.RAISED] += 1
        else:
            verdict.decided += 1
            verdict.findings.append(raised(record))


def _obligation(ctx: Context) -> Obligation:
    batch = {size.name for size in ctx.study.integers
             if size.varies and size.kind == "size" and size.moves
             and all(m.endswith(" dim 0") and m.startswith(("input ", "output ")) for m in size.moves)}
    batched = frozenset(leaf.position for leaf in ctx.study.tensor_inputs()
                        if leaf.position is not None and leaf.axes and batch & set(leaf.axes[0].integers))
    # on a device the libraries' own backward passes may add in any order
    bitwise = ctx.contract.determinism == "bitwise" and not (ctx.device == "cuda" and ctx.language == "torch")
    return Obligation(every=obliged(ctx), bitwise=bitwise, batched=batched,
                      nan=ctx.contract.exceptional.nan != "ignore")


def _unasked(record: Record) -> list[Finding]:
    """Outputs that hold on to a graph although gradients are off, but for parameters that are handed out."""
    if record.probe.gate != "values" or record.probe.kind != "call" or not record.comparable:
        return []
    own = record.observation.facts.get("parameters") or []
    return [
        plain(record, Reason.GRADIENT_UNASKED, output.path, "no gradient under no_grad", "requires grad").model_copy(
            update={"tier": Tier.VIOLATION, "attested_by": "worker"})
        for call in record.observation.calls for output in call.outputs
        if output.requires_grad and not any(begin <= output.storage_ptr < end for begin, end in own)
    ]


def _unstable(record: Record) -> bool:
    """Whether the reference is too unstable for most of its gradients to decide anything."""
    leaves = [leaf for leaf in record.truths[0].gradients.values() if leaf.kind in ("float", "complex")]
    total = sum(leaf.y.numel() for leaf in leaves)
    decided = sum(int(leaf.decided.sum()) for leaf in leaves)
    arrived = gradients_of(record.observation.calls[0])
    return total > 0 and 2 * decided < total and any(g is not None for g in arrived.values())


def _trained(record: Record) -> list[Finding]:
    """Losses, parameters and running buffers after steps of SGD, by path."""
    truth, call = record.truths[0], record.observation.calls[0]
    got = {output.path: output.tensor for output in call.outputs}
    found = []
    for path, leaf in zip(truth.paths, truth.leaves, strict=True):
        tensor = got.get(path)
        name = {"0": "loss", "1": "parameter", "2": "buffer"}.get(path.partition(".")[0], "value")
        where = f"{name} {path.partition('.')[2]} after training"
        if tensor is None:
            if name != "buffer":
                found.append(plain(record, Reason.GRADIENT_MISSING, where, "a value", "None"))
            continue
        if tensor.shape != leaf.y.shape:
            found.append(plain(record, Reason.GRADIENT_SHAPE, where, str(list(leaf.y.shape)),
                               str(list(tensor.shape))))
            continue
        result = oracle.compare(leaf, tensor)
        if not result.ok and result.index is not None:
            finite = result.reason is oracle.Reason.VALUE
            found.append(Finding(
                gate=Gradients.id, slug=Gradients.slug, reason=Reason.GRADIENT_VALUE, tier=Tier.WRONG,
                tolerance_free=not finite, output=where, index=unravel(result.index, tuple(tensor.shape)),
                expected=shown(result.expected), actual=shown(result.actual),
                error=result.error if finite else None, tolerance=result.tolerance,
                detail={"steps": 3, "ratio": result.ratio if finite else None}, probe=record.probe.id))
    return found
