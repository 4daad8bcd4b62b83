"""CMP-01: right on the whole declared domain, every input and parameter varied."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from assay import oracle
from assay.gates.attribution import numeric_findings
from assay.gates.base import Context, Verdict, distinct, fault_finding, own, single, undecided_reason
from assay.gates.distribution import ERROR_PROBABILITY, Pair, Shift, two_sample
from assay.gates.numbers import Compared, compare_call, finding, same_form
from assay.gates.ordinary import judge_record
from assay.probe import values
from assay.probe.model import Call, Draw, Probe
from assay.probe.record import FAULTS, Record
from assay.report.model import Finding
from assay.vocabulary import EffortTier, Reason, Tier

DRAWS = {EffortTier.QUICK: 2, EffortTier.STANDARD: 8, EffortTier.DEEP: 12}
VARIANTS = {EffortTier.QUICK: 4, EffortTier.STANDARD: 28, EffortTier.DEEP: 64}
SLOW_DRAWS = 4
"""Task draws where a call is slow."""
SLOW_SECONDS = 0.2
"""Seconds of a call from which it counts as slow."""
SAMPLES = {EffortTier.QUICK: 32, EffortTier.STANDARD: 64, EffortTier.DEEP: 128}
"""Draws that the distribution of a random reference is judged by."""
WAYS = (("thread", "eval", "inference"), ("grad",))
"""Ways of calling a module, see `assay.run.ways`, by probe. Each has an instance of its own: buffers that are made
in inference mode may not be written in any other, and a kernel without a backward may refuse the last."""
_TELLING = ("wide10", "narrow", "all_negative", "constant_rows", "zeros")
"""Variations worth trying on one input alone first."""
_TIED = ("ties", "levels")
"""Variations with many equal elements."""


class Values:
    """Draws of the task's own generator, then the same structure with other distributions."""

    id = "CMP-01"
    slug = "values"
    aliases = ("lethe:CMP-01", "veit:functional-correctness")
    obligation = "right on the whole declared domain, every input and parameter varied"
    opt_in = False

    def plan(self, ctx: Context) -> list[Probe]:
        """Task draws, then variations of all inputs together, then of each input alone."""
        if ctx.study.random:
            return [self._first(ctx, 0), self._samples(ctx), *self._evaluation(ctx)]
        slow = ctx.call_seconds > SLOW_SECONDS and not ctx.deep
        count = min(DRAWS[ctx.tier], SLOW_DRAWS) if slow else DRAWS[ctx.tier]
        probes = [self._first(ctx, i) for i in range(count)]
        trained = any(fact.requires_grad for fact in ctx.study.parameters)
        if trained and ctx.contract.domain.vary_parameters:
            probes += [
                single(self, f"parameters-{i}", Draw(seed=ctx.draw_seed("values", "parameters", i)),
                       ctx.sizes, parameters=i)
                for i in range(1, 2 if ctx.quick else 3)
            ]
        probes += self._ways(ctx) + self._evaluation(ctx) + self._autocast(ctx)
        return probes + self._buffers(ctx) + self._variations(ctx)

    def _ways(self, ctx: Context) -> list[Probe]:
        """One draw, called in every other ordinary way; by fresh instances where a call leaves something behind."""
        same = ctx.study.training and not ctx.study.mode_matters
        groups = [[way for way in group if way != "eval" or same] for group in WAYS]
        if ctx.study.stateful:
            groups = [[way] for group in groups for way in group]
        return [
            Probe(id=f"{self.slug}/{'+'.join(group)}", gate=self.slug, kind="ways", sizes=ctx.small,
                  draws=(Draw(seed=ctx.draw_seed(self.slug, "ways")),),
                  calls=tuple(Call(instance=number) for number in range(len(group))),
                  conditions=(f"ways:{','.join(group)}",))
            for group in groups
        ]

    def _evaluation(self, ctx: Context) -> list[Probe]:
        """One draw in evaluation mode, where the mode of the reference matters and it starts out in the other."""
        if not (ctx.study.training and (ctx.study.mode_matters or ctx.study.random)):
            return []
        return [single(self, "eval", Draw(seed=ctx.draw_seed(self.slug, "eval")), ctx.small, kind="eval",
                       conditions=("mode:eval",))]

    def _autocast(self, ctx: Context) -> list[Probe]:
        """One draw under autocast, where the contract asks for it."""
        if (dtype := ctx.contract.numerics.autocast) == "none":
            return []
        return [single(self, "autocast", Draw(seed=ctx.draw_seed(self.slug, "autocast")), ctx.small, kind="autocast",
                       conditions=(f"autocast:{dtype}",))]

    def _buffers(self, ctx: Context) -> list[Probe]:
        """One draw after which the floating buffers that the reference changes are compared too."""
        names = [fact.name for fact in ctx.study.parameters
                 if fact.buffer and fact.name in ctx.study.stateful and fact.dtype.startswith(("float", "bfloat"))]
        if not names:
            return []
        draw = Draw(seed=ctx.draw_seed("values", "buffers"))
        return [single(self, "buffers", draw, ctx.sizes, kind="buffers",
                       conditions=(f"state:{','.join(names)}",))]

    def _first(self, ctx: Context, number: int) -> Probe:
        return single(self, f"draw-{number}", Draw(seed=ctx.draw_seed("values", number)), ctx.sizes)

    def _varied(self, ctx: Context, name: str, leaf: int) -> Draw:
        return Draw(seed=ctx.draw_seed("values", name, leaf), variant=name, leaves=(leaf,))

    def _samples(self, ctx: Context) -> Probe:
        """Many draws, each called once, for the distribution of a random reference."""
        count = SAMPLES[EffortTier.QUICK if ctx.call_seconds > SLOW_SECONDS else ctx.tier]
        draws = tuple(Draw(seed=ctx.draw_seed("values", "sample", i)) for i in range(count))
        return Probe(id=f"{self.slug}/distribution", gate=self.slug, kind="distribution", sizes=ctx.small,
                     draws=draws, calls=tuple(Call(draw=i) for i in range(count)))

    def _variations(self, ctx: Context) -> list[Probe]:
        leaves = [leaf for leaf in ctx.study.tensor_inputs() if leaf.structure is not None]
        admitted = [values.variants(leaf.structure) if leaf.structure else () for leaf in leaves]
        groups = list(dict.fromkeys(admitted))
        # inputs of different kinds take turns, so that a mask is varied as early as a matrix is
        turns = itertools.zip_longest(*groups)
        names = list(dict.fromkeys(name for turn in turns for name in turn if name is not None))
        if any(leaf.kind == "tensor" and leaf.dtype.startswith(("int", "uint")) for leaf in ctx.study.outputs):
            # which of equal elements an index names shows on ties alone
            names.sort(key=lambda name: name not in _TIED)
        joint = [
            single(self, name, Draw(seed=ctx.draw_seed("values", name), variant=name), ctx.sizes)
            for name in names
        ]
        alone = []
        if len(leaves) > 1:
            telling = sorted(names, key=lambda n: _TELLING.index(n) if n in _TELLING else len(_TELLING))
            for name in telling:
                takers = [i for i, group in enumerate(admitted) if name in group]
                if len(takers) > 1:
                    alone += [
                        single(self, f"{name}@{i}", self._varied(ctx, name, i), ctx.sizes) for i in takers
                    ]
        limit = VARIANTS[ctx.tier]
        return joint[:limit] + alone[: max(limit // 2, len(leaves))]

    def judge(self, ctx: Context, records: Sequence[Record]) -> Verdict:
        """Every output of every draw within its tolerance; of a random reference, its distribution."""
        verdict = Verdict()
        for record in own(self, records):
            if record.probe.kind == "distribution":
                self._distribution(record, verdict)
            elif record.probe.kind == "buffers":
                self._after(record, verdict)
            elif record.probe.kind == "ways":
                self._other_ways(ctx, record, verdict)
            elif record.probe.kind == "eval" and record.observation.facts.get("module") is False:
                # a function has no mode that anybody could set
                verdict.undecided[Reason.NOTHING_TO_VARY] += 1
            elif record.probe.kind in ("eval", "autocast"):
                judge_record(self, record, verdict, Tier.VIOLATION)
            else:
                judge_record(self, record, verdict, Tier.WRONG)
        if ctx.study.weak:
            weak = " or ".join(f"a {name} function" for name in ctx.study.weak)
            verdict.note = f"weak task: {weak} would pass the usual check"
        verdict.findings = distinct(verdict.findings)
        return verdict

    def _other_ways(self, ctx: Context, record: Record, verdict: Verdict) -> None:
        """Each way of calling whose result the reference does not change."""
        if (reason := undecided_reason(record)) is not None:
            verdict.undecided[reason] += 1
            return
        seen, refused = record.observation, record.truths[0].backward_refused
        ways = next(c for c in record.probe.conditions if c.startswith("ways:")).removeprefix("ways:").split(",")
        for number in range(len(seen.calls)):
            if f"{number}/{ways[number]}" in refused:
                continue
            verdict.decided += 1
            for found in numeric_findings(self, record, compare_call(record, number)):
                verdict.findings.append(found.model_copy(update={"detail": {**found.detail, "called": ways[number]}}))
        number = len(seen.calls)
        if seen.status not in FAULTS or number >= len(ways):
            return
        # kernels without a backward may refuse inputs that ask for a gradient
        forward_only = ctx.contract.gradients != "training" and not ctx.defines_backward
        may_refuse = ways[number] == "grad" and seen.status == "raised" and forward_only
        if may_refuse or f"{number}/{ways[number]}" in refused:
            verdict.undecided[Reason.NOTHING_TO_VARY] += 1
            return
        verdict.decided += 1
        found = fault_finding(self, record, Tier.VIOLATION)
        verdict.findings.append(found.model_copy(update={"detail": {**found.detail, "called": ways[number]}}))

    def _after(self, record: Record, verdict: Verdict) -> None:
        """Compare the buffers that the candidate has too, as the call left them."""
        if undecided_reason(record) is not None or record.observation.status in FAULTS:
            judge_record(self, record, verdict, Tier.WRONG)
            return
        truth, seen = record.truths[0], record.observation.calls[0]
        leaves = dict(zip(truth.paths, truth.leaves, strict=True))
        shared = [output for output in seen.outputs if output.path.startswith("1.") and output.path in leaves
                  and output.shape == tuple(leaves[output.path].y.shape)]
        if not shared:
            verdict.undecided[Reason.NOTHING_TO_VARY] += 1
            return
        verdict.decided += 1
        for output in shared:
            result = oracle.compare(leaves[output.path], output.tensor)
            if not result.ok:
                found = finding(self, record, Compared(0, output, leaves[output.path], result), Tier.VIOLATION)
                name = f"buffer {output.path.removeprefix('1.')}"
                verdict.findings.append(found.model_copy(update={"output": name}))

    def _distribution(self, record: Record, verdict: Verdict) -> None:
        """Compare distributions; the error probability is shared among the outputs."""
        if undecided_reason(record) is not None or record.observation.status in FAULTS:
            judge_record(self, record, verdict, Tier.WRONG)
            return
        if not all(same_form(record.truth_of(i), call) for i, call in enumerate(record.observation.calls)):
            verdict.undecided[Reason.SHAPE] += 1
            return
        verdict.decided += 1
        groups = _pairs(record)
        for place, pairs in groups.items():
            shift = two_sample(pairs, ERROR_PROBABILITY / len(groups))
            if shift is not None:
                verdict.findings.append(self._shifted(record, place, shift))
        verdict.note = (f"the reference is random: distributions compared on {len(record.probe.draws)} "
                        f"draws, error probability {ERROR_PROBABILITY:g}")

    def _shifted(self, record: Record, place: str, shift: Shift) -> Finding:
        return Finding(
            gate=self.id, slug=self.slug, reason=Reason.VALUE, tier=Tier.WRONG, tolerance_free=False,
            output=place, expected=f"{shift.statistic} {shift.reference:.6g}",
            actual=f"{shift.statistic} {shift.candidate:.6g}",
            detail={"probability": shift.probability, "larger_on": shift.larger, "draws": shift.draws},
            probe=record.probe.id)


def _pairs(record: Record) -> dict[str, list[Pair]]:
    """Reference and candidate of every draw, by the place of the output; floating outputs only."""
    groups: dict[str, list[Pair]] = {}
    for number, call in enumerate(record.observation.calls):
        for output, leaf in zip(call.outputs, record.truth_of(number).leaves, strict=True):
            if leaf.kind in ("float", "complex") and output.dtype == leaf.dtype.removeprefix("torch."):
                slack = float(leaf.tolerance.mean()) if leaf.tolerance.numel() else 0.0
                groups.setdefault(output.path, []).append(Pair(leaf.native, output.tensor, slack))
    return groups
