"""LAY-01: right on transposed, sliced, stepped, expanded, misaligned and channels-last inputs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from assay.gates.base import Context, Verdict, distinct, fault_finding, own, single, undecided_reason
from assay.gates.numbers import compare_record, decides, finding
from assay.probe.layouts import LAYOUTS, place
from assay.probe.model import Draw, Probe
from assay.probe.record import FAULTS, Record
from assay.vocabulary import Reason, Tier

_NEW = tuple(layout for layout in LAYOUTS if layout != "contiguous")
_PER_ROW: tuple[Any, ...] = (
    "upper_triangular", "lower_triangular", "diagonal", "banded", "symmetric", "positive_definite", "orthogonal",
    "permutation",
)
"""Structures of a whole matrix or array, which an expanded first row does not have."""


class Layouts:
    """Same values, other strides: each input alone, then all of them mixed. The reference decides what is legal."""

    id = "LAY-01"
    slug = "layouts"
    aliases = ("veit:layout-generality",)
    obligation = "right on transposed, sliced, expanded, offset, misaligned and channels-last inputs"
    opt_in = False

    def plan(self, ctx: Context) -> list[Probe]:
        """One probe per input and layout that says something new about its shape."""
        leaves = ctx.study.tensor_inputs()
        shapes = [tuple(axis.at(ctx.study.complete(ctx.small)) for axis in leaf.axes) for leaf in leaves]
        control = Draw(seed=ctx.draw_seed(self.slug, "control"))
        probes = [single(self, "control", control, ctx.small, kind="control")]
        possible: list[list[str]] = []
        for i, (leaf, shape) in enumerate(zip(leaves, shapes, strict=True)):
            wanted = ctx.contract.domain.inputs.get(str(leaf.path[0]))
            allowed = wanted.layouts if wanted and wanted.layouts is not None else _NEW
            names = [n for n in _NEW if n in allowed and place(n, shape) is not None]
            if leaf.structure is not None and leaf.structure.has(*_PER_ROW):
                # one row repeated would leave the domain
                names = [n for n in names if n != "expanded"]
            possible.append(names)
            for name in names:
                layouts = tuple(name if j == i else "task" for j in range(len(leaves)))
                probes.append(single(self, f"{name}@{i}", Draw(seed=ctx.draw_seed(self.slug, name, i),
                                                               layouts=layouts), ctx.small))
        if len(leaves) > 1:
            for turn in range(2):
                layouts = tuple(names[(i + turn) % len(names)] if names else "task"
                                for i, names in enumerate(possible))
                probes.append(single(self, f"mixed-{turn}", Draw(seed=ctx.draw_seed(self.slug, turn),
                                                                 layouts=layouts), ctx.small))
        if len(probes) == 1:
            return []
        return probes[:4] if ctx.quick else probes

    def judge(self, ctx: Context, records: Sequence[Record]) -> Verdict:
        """Within tolerance for every layout that the reference takes."""
        mine = own(self, records)
        if not mine:
            return Verdict(inapplicable=Reason.NO_SUCH_INPUT, note="no tensor input has another layout")
        verdict = Verdict()
        control = next((r for r in mine if r.probe.kind == "control"), None)
        if control is not None and (
            control.observation.status in FAULTS or any(not c.result.ok for c in compare_record(control))
        ):
            # wrong on an ordinary layout too: this says nothing about strides
            verdict.undecided[Reason.VALUE] += len(mine)
            return verdict
        for record in mine:
            if (reason := undecided_reason(record)) is not None:
                verdict.undecided[reason] += 1
            elif record.observation.status in FAULTS:
                verdict.decided += 1
                verdict.findings.append(fault_finding(self, record, Tier.VIOLATION))
            else:
                compared = compare_record(record)
                if not decides(compared):
                    verdict.undecided[Reason.UNSTABLE_REFERENCE] += 1
                    continue
                verdict.decided += 1
                verdict.findings += [finding(self, record, c, Tier.VIOLATION) for c in compared if not c.result.ok]
        verdict.findings = distinct(verdict.findings)
        return verdict
