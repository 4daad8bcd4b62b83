"""PRC-01: right in every declared dtype, with the reference's output dtype."""

from __future__ import annotations

from collections.abc import Sequence

from assay.gates.attribution import numeric_findings
from assay.gates.base import Context, Verdict, distinct, fault_finding, own, single, undecided_reason
from assay.gates.numbers import compare_record, decides
from assay.gates.numeric_plan import silent_reason
from assay.probe.model import Draw, Probe
from assay.probe.record import FAULTS, Record
from assay.report.model import Finding
from assay.vocabulary import Reason, Tier

NAMES = {
    "fp64": "float64",
    "fp32": "float32",
    "fp16": "float16",
    "bf16": "bfloat16",
    "float64": "float64",
    "float32": "float32",
    "float16": "float16",
    "bfloat16": "bfloat16",
}
"""Dtypes that a contract may declare, by either name."""
OWN = "own"
"""Kind of the probes in the task's own dtype."""


def declared(ctx: Context) -> list[str]:
    """Floating dtypes that the contract promises beside the task's own, as torch names them.

    A dtype that clauses of inputs admit counts only when the clause of every floating input does, since a
    probe casts them together.
    """
    own = task_dtypes(ctx)
    wanted = [NAMES[name] for name in ctx.contract.domain.dtypes if name in NAMES]
    floating = [leaf for leaf in ctx.study.tensor_inputs() if leaf.dtype in own]
    clauses = [ctx.contract.domain.inputs.get(".".join(map(str, leaf.path))) for leaf in floating]
    if clauses and all(clause is not None and clause.dtypes for clause in clauses):
        first, *others = [
            {NAMES[n] for n in clause.dtypes if n in NAMES} for clause in clauses if clause is not None
        ]
        wanted += sorted(first.intersection(*others))
    return [name for name in dict.fromkeys(wanted) if own != {name}]


def task_dtypes(ctx: Context) -> set[str]:
    """Floating dtypes of the task's own inputs and parameters."""
    names = {leaf.dtype for leaf in ctx.study.tensor_inputs()} | {p.dtype for p in ctx.study.parameters}
    return {name for name in names if name.startswith(("float", "bfloat"))}


class Dtypes:
    """The task's own dtype, and those that a contract adds; others are no obligation."""

    id = "PRC-01"
    slug = "dtypes"
    aliases = ("lethe:PRC-01", "veit:dtype-generality")
    obligation = "right in every declared dtype, output dtype as the reference's"
    opt_in = False

    def plan(self, ctx: Context) -> list[Probe]:
        """Two draws in the task's own dtype; two in each declared one, the second with varied parameters."""
        if not task_dtypes(ctx):
            return []
        trained = any(p.requires_grad for p in ctx.study.parameters)
        plan = []
        for name in [None, *declared(ctx)]:
            for turn in range(1 if ctx.quick else 2):
                draw = Draw(seed=ctx.draw_seed(self.slug, name, turn))
                plan.append(
                    single(
                        self,
                        f"{name or 'own'}-{turn}",
                        draw,
                        ctx.sizes if turn == 0 else ctx.small,
                        dtype=name,
                        parameters=turn if trained else 0,
                        kind=name or OWN,
                    )
                )
        return plan

    def judge(self, ctx: Context, records: Sequence[Record]) -> Verdict:
        """Values, dtype and exceptions in each; a fault of the own dtype is not counted again in others."""
        mine = own(self, records)
        if not mine:
            return Verdict(inapplicable=Reason.NO_SUCH_INPUT, note="no floating input or parameter")
        verdict = Verdict()
        for kind in dict.fromkeys(r.probe.kind for r in mine):
            if (
                kind != OWN
                and verdict.findings
                and any(f.probe.startswith("dtypes/own") for f in verdict.findings)
            ):
                verdict.undecided[Reason.VALUE] += sum(1 for r in mine if r.probe.kind == kind)
                continue
            for record in (r for r in mine if r.probe.kind == kind):
                self._judge(ctx, record, verdict)
        extra = [r.probe.kind for r in mine if r.probe.kind != OWN]
        verdict.note = ", ".join([*sorted(task_dtypes(ctx)), *dict.fromkeys(extra)])
        verdict.findings = distinct(verdict.findings)
        return verdict

    def _judge(self, ctx: Context, record: Record, verdict: Verdict) -> None:
        if (reason := undecided_reason(record)) is not None:
            verdict.undecided[reason] += 1
            return
        if record.observation.status in FAULTS:
            verdict.decided += 1
            verdict.findings.append(fault_finding(self, record, Tier.VIOLATION))
            return
        found = self._output_dtypes(ctx, record)
        compared = compare_record(record)
        if not found and not decides(compared):
            verdict.undecided[silent_reason(record)] += 1
            return
        verdict.decided += 1
        verdict.findings += found
        verdict.findings += numeric_findings(self, record, compared)

    def _output_dtypes(self, ctx: Context, record: Record) -> list[Finding]:
        if ctx.contract.numerics.output_dtype != "reference":
            return []
        outputs, leaves = record.observation.calls[0].outputs, record.truths[0].leaves
        if len(outputs) != len(leaves):
            return []
        pairs = [
            (o, str(leaf.native.dtype).removeprefix("torch."))
            for o, leaf in zip(outputs, leaves, strict=True)
        ]
        return [
            Finding(
                gate=self.id,
                slug=self.slug,
                reason=Reason.DTYPE,
                tier=Tier.WRONG,
                tolerance_free=True,
                output=output.path,
                expected=expected,
                actual=output.dtype,
                probe=record.probe.id,
            )
            for output, expected in pairs
            if output.dtype != expected
        ]
