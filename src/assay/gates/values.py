"""CMP-01: right on the whole declared domain, every input and parameter varied."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from assay.gates.base import (
    Context,
    Verdict,
    distinct,
    fault_finding,
    own,
    single,
    undecided_reason,
)
from assay.gates.numbers import compare_record, decides, finding
from assay.probe import values
from assay.probe.model import Draw, Probe
from assay.probe.record import FAULTS, Record
from assay.vocabulary import EffortTier, Reason, Tier

DRAWS = {EffortTier.QUICK: 2, EffortTier.STANDARD: 4, EffortTier.DEEP: 12}
VARIANTS = {EffortTier.QUICK: 4, EffortTier.STANDARD: 28, EffortTier.DEEP: 64}
_TELLING = ("wide10", "narrow", "all_negative", "constant_rows", "zeros")
"""Variations worth trying on one input alone first."""


class Values:
    """Draws of the task's own generator, then the same structure with other distributions."""

    id = "CMP-01"
    slug = "values"
    aliases = ("lethe:CMP-01", "veit:functional-correctness")
    obligation = "right on the whole declared domain, every input and parameter varied"
    opt_in = False

    def plan(self, ctx: Context) -> list[Probe]:
        """Task draws, then variations of all inputs together, then of each input alone."""
        probes = [
            single(self, f"draw-{i}", Draw(seed=ctx.draw_seed("values", i)), ctx.sizes)
            for i in range(DRAWS[ctx.tier])
        ]
        if any(p.requires_grad for p in ctx.study.parameters):
            probes += [
                single(self, f"parameters-{i}", Draw(seed=ctx.draw_seed("values", "parameters", i)), ctx.sizes,
                       parameters=i)
                for i in range(1, 2 if ctx.quick else 3)
            ]
        return probes + self._variations(ctx)

    def _variations(self, ctx: Context) -> list[Probe]:
        leaves = [leaf for leaf in ctx.study.tensor_inputs() if leaf.structure is not None]
        admitted = [values.variants(leaf.structure) if leaf.structure else () for leaf in leaves]
        groups = list(dict.fromkeys(admitted))
        # inputs of different kinds take turns, so that a mask is varied as early as a matrix is
        names = list(dict.fromkeys(n for turn in itertools.zip_longest(*groups) for n in turn if n is not None))
        joint = [
            single(self, name, Draw(seed=ctx.draw_seed("values", name), variant=name), ctx.sizes) for name in names
        ]
        alone = []
        if len(leaves) > 1:
            telling = sorted(names, key=lambda n: _TELLING.index(n) if n in _TELLING else len(_TELLING))
            for name in telling:
                takers = [i for i, group in enumerate(admitted) if name in group]
                if len(takers) > 1:
                    alone += [
                        single(self, f"{name}@{i}",
                               Draw(seed=ctx.draw_seed("values", name, i), variant=name, leaves=(i,)), ctx.sizes)
                        for i in takers
                    ]
        limit = VARIANTS[ctx.tier]
        return joint[:limit] + alone[: max(limit // 2, len(leaves))]

    def judge(self, ctx: Context, records: Sequence[Record]) -> Verdict:
        """Every output of every draw within its tolerance."""
        verdict = Verdict()
        for record in own(self, records):
            if (reason := undecided_reason(record)) is not None:
                verdict.undecided[reason] += 1
            elif record.observation.status in FAULTS:
                verdict.decided += 1
                verdict.findings.append(fault_finding(self, record, Tier.WRONG))
            else:
                compared = compare_record(record)
                if not decides(compared):
                    verdict.undecided[Reason.UNSTABLE_REFERENCE] += 1
                    continue
                verdict.decided += 1
                verdict.findings += [finding(self, record, c) for c in compared if not c.result.ok]
        verdict.findings = distinct(verdict.findings)
        return verdict
