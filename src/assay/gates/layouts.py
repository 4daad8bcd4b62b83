"""LAY-01: right on transposed, sliced, stepped, expanded, misaligned and channels-last inputs."""

from __future__ import annotations

from collections.abc import Sequence

from assay.contract.inference import name_of
from assay.gates.base import Context, Verdict, distinct, own, single
from assay.gates.ordinary import judge_record, wrong_plainly
from assay.probe.layouts import LAYOUTS, place
from assay.probe.model import Draw, Probe
from assay.probe.record import Record
from assay.probe.structure import Trait
from assay.task.facts import InputLeaf
from assay.vocabulary import Reason, Tier

_NEW = tuple(layout for layout in LAYOUTS if layout != "contiguous")
_WHOLE: tuple[Trait, ...] = (
    "upper_triangular", "lower_triangular", "diagonal", "banded", "symmetric", "positive_definite",
    "orthogonal", "permutation",
)
"""Structures of a whole matrix or array, which an expanded first row does not have."""


class Layouts:
    """Same values, other strides: each input alone, then all mixed. The reference decides what is legal."""

    id = "LAY-01"
    slug = "layouts"
    aliases = ("veit:layout-generality",)
    obligation = "right on transposed, sliced, expanded, offset, misaligned and channels-last inputs"
    opt_in = False

    def plan(self, ctx: Context) -> list[Probe]:
        """A control, one probe per input and layout that says something new about its shape, and mixtures."""
        leaves = ctx.study.tensor_inputs()
        possible = [self._possible(ctx, leaf) for leaf in leaves]
        if not any(possible):
            return []
        probes = [single(self, "control", Draw(seed=ctx.draw_seed(self.slug, "control")), ctx.small,
                         kind="control")]
        depth = max(map(len, possible))
        # inputs take turns, so that a short plan has something of each
        for turn in range(depth):
            for i, names in enumerate(possible):
                if turn < len(names):
                    layouts = tuple(names[turn] if j == i else "task" for j in range(len(leaves)))
                    probes.append(self._probe(ctx, f"{names[turn]}@{i}", layouts))
        if sum(map(bool, possible)) > 1:
            for turn in range(2):
                layouts = tuple(names[(i + turn) % len(names)] if names else "task"
                                for i, names in enumerate(possible))
                probes.append(self._probe(ctx, f"mixed-{turn}", layouts))
        return probes[:4] if ctx.quick else probes

    def _probe(self, ctx: Context, name: str, layouts: tuple[str, ...]) -> Probe:
        return single(self, name, Draw(seed=ctx.draw_seed(self.slug, name), layouts=layouts), ctx.small)

    def _possible(self, ctx: Context, leaf: InputLeaf) -> list[str]:
        """Layouts that the contract admits and that say something new about an input."""
        shape = tuple(axis.at(ctx.study.complete(ctx.small)) for axis in leaf.axes)
        clause = ctx.contract.domain.inputs.get(name_of(leaf))
        admitted = clause.layouts if clause is not None and clause.layouts is not None else _NEW
        names = [name for name in _NEW if name in admitted and place(name, shape) is not None]
        if leaf.structure is not None and leaf.structure.has(*_WHOLE):
            # one row repeated would leave the domain
            names = [name for name in names if name != "expanded"]
        return names

    def judge(self, ctx: Context, records: Sequence[Record]) -> Verdict:
        """Within tolerance for every layout that the reference takes."""
        mine = own(self, records)
        if not mine:
            forbidden = any(clause.layouts is not None for clause in ctx.contract.domain.inputs.values())
            return Verdict(inapplicable=Reason.BY_CONTRACT if forbidden else Reason.NO_SUCH_INPUT,
                           note="no tensor input has another layout")
        verdict = Verdict()
        if wrong_plainly(r for r in mine if r.probe.kind == "control"):
            # wrong on an ordinary layout too: this says nothing about strides
            verdict.undecided[Reason.VALUE] += len(mine) - 1
            return verdict
        for record in mine:
            if record.probe.kind != "control":
                judge_record(self, record, verdict, Tier.VIOLATION)
        verdict.findings = distinct(verdict.findings)
        return verdict
