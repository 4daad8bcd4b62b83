"""MEM-02: output and result do not depend on uninitialised memory."""

from __future__ import annotations

from collections.abc import Sequence

from assay.gates import sanitized
from assay.gates.base import Context, Verdict, distinct, own, undecided_reason
from assay.gates.numbers import first_difference, same_bits, shown
from assay.gates.steadiness import explained_by_rounding, repeats
from assay.probe import sizes, values
from assay.probe.model import Call, Draw, Probe
from assay.probe.record import FAULTS, CallResult, Record
from assay.report.model import Finding
from assay.vocabulary import EffortTier, Reason, Tier

FILLS = ("ff", "3f")
"""Bytes of fresh memory: NaN, and 0.7479 in float32 (0.0005 in float64, 0.747 in bfloat16)."""
DRAWS = {EffortTier.QUICK: 2, EffortTier.STANDARD: 5, EffortTier.DEEP: 24}
CONTROLS = 4
"""Calls of the control: one that varies with the time of day agrees with itself now and then, seldom so often."""
_TELLING = (
    "all_negative",
    "zero_rows",
    "zeros",
    "ties",
    "lowest",
    "false_rows",
    "all_false",
    "constant_rows",
    "sparse",
    "low_end",
    "all_same",
    "highest",
    "all_true",
)
"""Variations under which a store is skipped, or a branch never taken, most likely first."""


class Initialization:
    """One draw with fresh memory filled with one byte and with another: the outputs agree bit for bit."""

    id = "MEM-02"
    slug = "initialization"
    aliases: tuple[str, ...] = ("veit:initialization", "uninitialised", "initcheck")
    obligation = "output and result do not depend on uninitialised memory"
    opt_in = False

    def plan(self, ctx: Context) -> list[Probe]:
        """Pairs of probes that differ only in what fresh memory holds, and one with several calls as control."""
        draw = Draw(seed=ctx.draw_seed(self.slug))
        control = self._probe(f"control@{FILLS[0]}", "control", draw, ctx.small, FILLS[0])
        probes = [control.model_copy(update={"calls": (Call(),) * (1 if ctx.study.stateful else CONTROLS)})]
        groups: list[tuple[str, Draw, dict[str, int]]] = [("draw", draw, ctx.small)]
        groups += [
            (name, Draw(seed=ctx.draw_seed(self.slug, name), variant=name), ctx.small)
            for name in self._variants(ctx)
        ]
        if not ctx.quick:
            odd = sizes.plan_sizes(ctx.study, ctx.blocks, ctx.element_limit // 4, ctx.tier.value)
            groups += [
                (v.name, Draw(seed=ctx.draw_seed(self.slug, v.name)), dict(v.sizes))
                for v in odd[: 8 if ctx.deep else 2]
            ]
        for name, group_draw, at in groups[: DRAWS[ctx.tier] + 1]:
            probes += [self._probe(f"{name}@{fill}", name, group_draw, at, fill) for fill in FILLS]
        return probes + sanitized.probes(self, ctx, "initcheck", [("", ctx.small)])

    def _probe(self, name: str, kind: str, draw: Draw, at: dict[str, int], fill: str) -> Probe:
        return Probe(
            id=f"{self.slug}/{name}",
            gate=self.slug,
            kind=kind,
            sizes=dict(at),
            draws=(draw,),
            conditions=(f"fresh:{fill}",),
        )

    def _variants(self, ctx: Context) -> list[str]:
        admitted = {
            name
            for leaf in ctx.study.tensor_inputs()
            if leaf.structure is not None
            for name in values.variants(leaf.structure)
        }
        return [name for name in _TELLING if name in admitted][: DRAWS[ctx.tier] - (0 if ctx.quick else 2)]

    def judge(self, ctx: Context, records: Sequence[Record]) -> Verdict:
        """Compare the two probes of each pair; a candidate that does not repeat itself decides nothing."""
        verdict = Verdict()
        records, checked = sanitized.apart(records)
        pairs: dict[str, list[Record]] = {}
        for record in own(self, records):
            pairs.setdefault(record.probe.kind, []).append(record)
        control = [*pairs.pop("control", []), *pairs.get("draw", [])[:1]]
        again = [r for r in records if r.probe.kind in ("control", "padding", "repeat", "stream")]
        steady = _agree(control) is not False and repeats(ctx, again)
        # where bits are not promised, a pair is judged by its tolerance instead
        if not steady and ctx.contract.determinism == "bitwise":
            for pair in pairs.values():
                verdict.undecided[Reason.NOT_REPEATABLE] += len(pair)
            return verdict
        for pair in pairs.values():
            self._pair(ctx, pair, verdict)
        if verdict.findings and _agree(control) is None:
            # nobody saw whether it repeats itself
            why = next(filter(None, map(undecided_reason, control)), Reason.BUDGET)
            verdict.undecided[why] += verdict.decided
            verdict.decided, verdict.findings = 0, []
        verdict.findings = distinct(verdict.findings)
        self._reads(checked, verdict)
        return verdict

    def _reads(self, records: Sequence[Record], verdict: Verdict) -> None:
        """Reads of memory that nobody wrote: where a result depends on them, they say which kernel and line.

        Alone they are a note. A kernel may load what it then masks away, and whether it does is what pairs show.
        """
        seen = [r for _, r in sanitized.reports(records, verdict) if r.get("kind") == "unwritten"]
        if seen:
            sanitized.note(verdict, [f"reads memory that nobody wrote: {sanitized.place(r)}" for r in seen[:2]])
            verdict.findings = [
                f.model_copy(update={"detail": {**f.detail, **sanitized.detail(seen[0])}}) for f in verdict.findings
            ]

    def _pair(self, ctx: Context, pair: list[Record], verdict: Verdict) -> None:
        reasons = [r for r in map(undecided_reason, pair) if r is not None]
        if reasons or len(pair) != 2:
            verdict.undecided[reasons[0] if reasons else Reason.BUDGET] += len(pair)
            return
        faulted = [r for r in pair if r.observation.status in FAULTS]
        if len(faulted) == 2 or any(r.observation.status == "timed_out" for r in faulted):
            # it fails with either: another gate says so
            verdict.undecided[Reason.RAISED] += 2
            return
        verdict.decided += 2
        if faulted:
            error = faulted[0].observation.error or {}
            verdict.findings.append(
                Finding(
                    gate=self.id,
                    slug=self.slug,
                    reason=Reason.UNINITIALISED,
                    tier=Tier.WRONG,
                    tolerance_free=True,
                    expected="independent of what fresh memory holds",
                    probe=faulted[0].probe.id,
                    actual=f"{error.get('type') or faulted[0].observation.status} when it holds "
                    f"{_fill(faulted[0])} in every byte",
                )
            )
            return
        found = _differs(*pair)
        if found is None or explained_by_rounding(ctx, pair):
            return
        path, index, one, two, count = found
        verdict.findings.append(
            Finding(
                gate=self.id,
                slug=self.slug,
                reason=Reason.UNINITIALISED,
                tier=Tier.WRONG,
                tolerance_free=True,
                output=path,
                index=index,
                expected="independent of what fresh memory holds",
                actual=f"{one} or {two} when it holds {' or '.join(map(_fill, pair))} in every byte",
                detail={"elements": count},
                probe=pair[1].probe.id,
            )
        )


def _agree(control: Sequence[Record]) -> bool | None:
    """Whether the control and the probe that it repeats ended the same way; None when one of them was not seen."""
    ended = [r.observation for r in control if r.observation.ran or r.observation.status in FAULTS]
    if len(ended) != 2:
        return None
    if all(o.ran for o in ended):
        return _differs(*control) is None
    return not any(o.ran for o in ended)


def _fill(record: Record) -> str:
    return "0x" + dict(c.split(":", 1) for c in record.probe.conditions)["fresh"]


def _differs(a: Record, b: Record) -> tuple[str, tuple[int, ...] | None, str, str, int] | None:
    """Where the outputs of two records differ first: path, index, both values, elements that differ."""
    one, two = a.observation.calls[0], b.observation.calls[0]
    if one.structure != two.structure or len(one.outputs) != len(two.outputs):
        return "out", None, "one structure", "another", 0
    for left, right in zip(one.outputs, two.outputs, strict=True):
        if left.shape != right.shape or left.dtype != right.dtype:
            return left.path, None, f"{left.dtype}{list(left.shape)}", f"{right.dtype}{list(right.shape)}", 0
        if not same_bits(left.tensor, right.tensor):
            index = first_difference(left.tensor, right.tensor)
            values_differ = left.tensor != right.tensor
            return (
                left.path,
                index,
                shown(left.tensor[index].item()),
                shown(right.tensor[index].item()),
                max(1, int(values_differ.sum())),
            )
    return _scalars(one, two)


def _scalars(one: CallResult, two: CallResult) -> tuple[str, None, str, str, int] | None:
    for path, value in one.scalars.items():
        other = two.scalars.get(path)
        if repr(value) != repr(other):
            return path, None, shown(value), shown(other), 1
    return None
