"""EXC-02: numbers below the smallest normal one are handled as declared."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch

from assay.gates.base import Context, Verdict, distinct, fault_finding, own, undecided_reason
from assay.gates.numbers import class_reason, compare_call, decides, same_form, shown, unravel
from assay.gates.numeric_plan import right
from assay.oracle import LeafTruth
from assay.oracle.compare import excess
from assay.oracle.truth import classes
from assay.probe import values
from assay.probe.model import Call, Draw, Injection, Probe
from assay.probe.record import FAULTS, Output, Record
from assay.probe.structure import Structure
from assay.report.model import Finding
from assay.vocabulary import Reason, Tier

PLACES = (0.0, 0.23, 0.41, 0.58, 0.77, 0.9999)
"""Where values are put, as fractions of an input."""


class Subnormals:
    """Subnormal and very small normal numbers in inputs whose domain reaches zero."""

    id = "EXC-02"
    slug = "subnormals"
    aliases = ("lethe:EXC-02", "veit:subnormal-handling")
    obligation = "subnormal handling as declared (preserve, flush, either)"
    opt_in = False

    def plan(self, ctx: Context) -> list[Probe]:
        """A control; subnormals in each input alone and among zeros; small normal numbers, among others and alone."""
        leaves = [
            (i, _signs(leaf.structure))
            for i, leaf in enumerate(ctx.study.tensor_inputs())
            if leaf.dtype.startswith(("float", "bfloat")) and leaf.structure is not None
        ]
        takers = [(i, signs) for i, signs in leaves if signs]
        if not takers:
            return []
        plan = [
            Probe(
                id=f"{self.slug}/plain",
                gate=self.slug,
                kind="control",
                sizes=ctx.small,
                draws=(Draw(seed=ctx.draw_seed(self.slug, "plain")),),
            )
        ]
        alone = [self._probe(ctx, f"subnormal@{i}", "subnormal", [(i, signs)]) for i, signs in takers]
        tiny = self._probe(ctx, "tiny", "tiny", takers)
        if ctx.quick:
            return [*plan, alone[0]]
        plan += [*alone[:3], tiny]
        plan += self._minute(ctx)
        structures = [leaf.structure for leaf in ctx.study.tensor_inputs()]
        among = [(i, s) for i, s in takers[:1] if "zeros" in values.variants(structures[i] or _NOTHING)]
        if among:
            plan.append(self._probe(ctx, "among zeros", "subnormal", among, variant="zeros"))
        return plan

    def _minute(self, ctx: Context) -> list[Probe]:
        """Every input near the smallest normal numbers, where no other number hides what becomes of them."""
        takers = tuple(
            i
            for i, leaf in enumerate(ctx.study.tensor_inputs())
            if leaf.dtype in ("float32", "bfloat16")
            and leaf.structure is not None
            and values.takes(values.MINUTE, leaf.structure)
        )
        if not takers:
            return []
        draw = Draw(seed=ctx.draw_seed(self.slug, "minute"), variant=values.MINUTE, leaves=takers)
        return [Probe(id=f"{self.slug}/minute", gate=self.slug, kind="tiny", sizes=ctx.small, draws=(draw,))]

    def _probe(
        self,
        ctx: Context,
        name: str,
        kind: str,
        takers: Sequence[tuple[int, tuple[str, ...]]],
        variant: str = "task",
    ) -> Probe:
        """The values put in, and a second draw with zeros in their place: what flushing them would give."""
        seed = ctx.draw_seed(self.slug, name)
        leaves = tuple(i for i, _ in takers) if variant != "task" else None
        put = [
            Injection(leaf=i, position=(place + 0.05 * i) % 1.0, value=f"{sign}{kind}")
            for i, signs in takers
            for place, sign in _signed(signs)
        ]
        zero = [injection.model_copy(update={"value": "zero"}) for injection in put]
        draws = tuple(
            Draw(seed=seed, variant=variant, leaves=leaves, injections=tuple(injections))
            for injections in (put, zero)
        )
        return Probe(
            id=f"{self.slug}/{name}",
            gate=self.slug,
            kind=kind,
            sizes=ctx.small,
            draws=draws,
            calls=(Call(draw=0),),
        )

    def judge(self, ctx: Context, records: Sequence[Record]) -> Verdict:
        """As the reference has it on the values or, unless they are to be kept, on zeros instead."""
        mine = own(self, records)
        if not mine:
            return Verdict(
                inapplicable=Reason.NO_SUCH_INPUT, note="no floating input whose domain reaches zero"
            )
        verdict = Verdict()
        control = next((r for r in mine if r.probe.kind == "control"), None)
        if control is None or right(control) is not True:
            for record in mine:
                verdict.undecided[undecided_reason(record) or Reason.VALUE] += 1
            verdict.note = "wrong on ordinary values" if control is not None else None
            return verdict
        policy = ctx.contract.exceptional.subnormals
        open_here = False
        for record in mine:
            if (reason := undecided_reason(record)) is not None:
                verdict.undecided[reason] += 1
            elif record.observation.status in FAULTS:
                verdict.decided += 1
                verdict.findings.append(fault_finding(self, record, Tier.VIOLATION))
            elif not same_form(record.truths[0], record.observation.calls[0]):
                verdict.undecided[Reason.SHAPE] += 1
            elif record is control:
                verdict.decided += 1
            else:
                found, unsettled = self._record(record, policy, ctx.device == "cpu")
                open_here = open_here or unsettled
                if found or decides(compare_call(record, 0)):
                    verdict.decided += 1
                else:
                    verdict.undecided[Reason.UNSTABLE_REFERENCE] += 1
                verdict.findings += found
        verdict.note = policy
        if open_here and not verdict.findings:
            verdict.undecided[Reason.EMULATION] += 1
            verdict.note = f"{policy}: what a GPU does with subnormal numbers is undecided on this machine"
        verdict.findings = distinct(verdict.findings)
        return verdict

    def _record(self, record: Record, policy: str, emulated: bool) -> tuple[list[Finding], bool]:
        """Findings of one record, and whether an emulated machine leaves the declared handling open."""
        found, open_here = [], False
        kept, flushed = record.truths[0], record.truths[-1]
        for i, output in enumerate(record.observation.calls[0].outputs):
            leaf, other = kept.leaves[i], flushed.leaves[i]
            if leaf.kind not in ("float", "complex"):
                continue
            index = _first(
                _wrong(leaf, other, output, strict=policy == "preserve" or record.probe.kind == "tiny")
            )
            if index is not None:
                found.append(self._finding(record, output, leaf.y, index, free=False))
            if policy == "either" or record.probe.kind == "tiny" or leaf.kind != "float":
                continue
            broken, unsettled = _declared(leaf, output, policy, emulated)
            open_here = open_here or unsettled
            if index is None and (index := _first(broken)) is not None:
                found.append(self._finding(record, output, leaf.native, index, free=True, policy=policy))
        return found, open_here

    def _finding(
        self, record: Record, output: Output, truth: torch.Tensor, index: int, *, free: bool, policy: str = ""
    ) -> Finding:
        expected, actual = truth.reshape(-1)[index].item(), output.tensor.reshape(-1)[index].item()
        same = bool((classes(truth.reshape(-1)[index]) == classes(output.tensor.reshape(-1)[index])).all())
        reason = Reason.VALUE if same else class_reason(expected, actual)
        wanted = "0.0" if policy == "flush" else shown(expected)
        return Finding(
            gate=self.id,
            slug=self.slug,
            reason=reason,
            tier=Tier.VIOLATION,
            tolerance_free=free or not same,
            output=output.path,
            index=unravel(index, output.shape),
            expected=wanted,
            actual=shown(actual),
            error=abs(actual - expected) if same else None,
            detail={"put_in": record.probe.kind},
            probe=record.probe.id,
        )


_NOTHING = Structure(kind="float", dtype="float32", nonfinite=True)
_RIGID = (
    "constant",
    "uniform",
    "integral",
    "binary",
    "signs",
    "one_hot",
    "permutation",
    "orthogonal",
    "rows_sum_to_one",
    "unit_norm_rows",
    "symmetric",
    "positive_definite",
    "upper_triangular",
    "lower_triangular",
    "diagonal",
    "banded",
    "ascending",
    "descending",
)


def _signs(structure: Structure | None) -> tuple[str, ...]:
    """Signs that a tiny number may have in an input: none where its domain avoids zero or is rigid."""
    if structure is None or structure.nonfinite or any(t in structure.traits for t in _RIGID):
        return ()
    low, high = structure.low, structure.high
    if low is None or high is None or structure.has("positive", "negative"):
        return ()
    return tuple(sign for sign, reaches in (("", low <= 0 < high), ("-", low < 0 <= high)) if reaches)


def _signed(signs: tuple[str, ...]) -> Iterable[tuple[float, str]]:
    return ((place, signs[k % len(signs)]) for k, place in enumerate(PLACES))


def _wrong(leaf: LeafTruth, flushed: LeafTruth, output: Output, *, strict: bool) -> torch.Tensor:
    """bool, shape of the leaf: outside the tolerance of both references; of the first alone when strict."""
    bad = excess(leaf, output.tensor) & leaf.decided
    if strict or flushed.y.shape != leaf.y.shape:
        return bad
    return bad & excess(flushed, output.tensor) & flushed.decided


def _declared(leaf: LeafTruth, output: Output, policy: str, emulated: bool) -> tuple[torch.Tensor, bool]:
    """Subnormal results that are not handled as declared, and whether an emulated machine leaves that open.

    Results that are subnormal in the reference and equal to its float64 value owe the same bits under
    `preserve`; other subnormal results must not become zero. Under `flush` all of them are zero.
    """
    smallest = torch.finfo(leaf.native.dtype).smallest_normal
    wide = leaf.native.double()
    subnormal = (wide != 0) & (wide.abs() < smallest) & leaf.decided
    actual = output.tensor.double()
    if policy == "flush":
        kept = subnormal & (actual != 0)
        return (torch.zeros_like(kept), bool(kept.any())) if emulated else (kept, False)
    lost = subnormal & torch.where(wide == leaf.y, actual != wide, actual == 0)
    return lost, emulated and bool(subnormal.any())


def _first(mask: torch.Tensor) -> int | None:
    places = mask.reshape(-1).nonzero()
    return int(places[0]) if places.numel() else None
