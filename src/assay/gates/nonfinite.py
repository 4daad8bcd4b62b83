"""EXC-01: NaN and signed infinities arrive where the reference puts them."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence

import torch

from assay.gates.base import Context, Verdict, distinct, fault_finding, own, single, undecided_reason
from assay.gates.numbers import class_reason, compare_call, differing, finding, same_form, shown, unravel
from assay.gates.ordinary import wrong_plainly
from assay.gates.steadiness import repeats
from assay.oracle import LeafTruth
from assay.probe.model import Draw, Injection, Probe
from assay.probe.record import FAULTS, Output, Record
from assay.probe.structure import Structure
from assay.report.model import Finding
from assay.task.facts import InputLeaf
from assay.vocabulary import EffortTier, Reason, Tier

PLACES = {EffortTier.QUICK: 1, EffortTier.STANDARD: 5, EffortTier.DEEP: 10}
"""Places of each input that a NaN is put into, one at a time; infinities take half of them."""
PROBES = {EffortTier.QUICK: 8, EffortTier.STANDARD: 40, EffortTier.DEEP: 200}
_FRACTIONS = (0.41, 0.13, 0.27, 0.55, 0.68, 0.82)
"""How far inside an input elements are poisoned: the first alone, all of them together at the end."""


class Nonfinite:
    """One special value at a time in one element of one input, then several scattered."""

    id = "EXC-01"
    slug = "nonfinite"
    aliases = ("lethe:EXC-01", "veit:exceptional-values")
    obligation = "NaN and signed Inf arrive where the reference puts them"
    opt_in = False

    def plan(self, ctx: Context) -> list[Probe]:
        """A control, then each wanted value inside, at tile borders and at the ends of each input."""
        policy = ctx.contract.exceptional
        wanted = [v for v, clause in (("nan", policy.nan), ("inf", policy.inf), ("-inf", policy.inf))
                  if clause != "ignore"]
        floating = [(i, leaf) for i, leaf in enumerate(ctx.study.tensor_inputs())
                    if leaf.dtype.startswith(("float", "bfloat"))]
        if not wanted or not floating or ctx.study.random:
            return []
        queues = [list(self._one_by_one(ctx, i, leaf, wanted)) for i, leaf in floating]
        depth = max(map(len, queues))
        alone = [queue[turn] for turn in range(depth) for queue in queues if turn < len(queue)]
        control = single(self, "control", Draw(seed=ctx.draw_seed(self.slug)), ctx.small, kind="control")
        probes = [control, *alone[: PROBES[ctx.tier]]]
        if "nan" in wanted and not ctx.quick:
            # one kind only: mixed infinities would meet in sums, and then a skipped structural zero shows
            scattered = tuple(
                Injection(leaf=i, position=position, value="nan") for i, leaf in floating
                for _, position in places(self._shape(ctx, leaf), (), len(_FRACTIONS), leaf.structure)
            )
            probes.append(self._probe(ctx, "scattered", scattered))
        return probes

    def _one_by_one(self, ctx: Context, leaf: int, fact: InputLeaf, wanted: Sequence[str]) -> Iterator[Probe]:
        """Probes of one input, the values taking turns over its places."""
        shape = self._shape(ctx, fact)
        spots = places(shape, ctx.blocks, PLACES[ctx.tier], fact.structure)
        for turn, (name, position) in enumerate(spots):
            for value in wanted:
                if value == "nan" or turn < max(1, PLACES[ctx.tier] // 2):
                    injected = Injection(leaf=leaf, position=position, value=value)
                    yield self._probe(ctx, f"{value}@{leaf}:{name}", (injected,))

    def _shape(self, ctx: Context, leaf: InputLeaf) -> tuple[int, ...]:
        return tuple(axis.at(ctx.study.complete(ctx.small)) for axis in leaf.axes)

    def _probe(self, ctx: Context, name: str, injections: tuple[Injection, ...]) -> Probe:
        # of the control's draw, so that an element that depends on nothing injected has its bits
        return single(self, name, Draw(seed=ctx.draw_seed(self.slug), injections=injections), ctx.small,
                      kind=injections[0].value)

    def judge(self, ctx: Context, records: Sequence[Record]) -> Verdict:
        """Compare the class of every decided element; then the finite rest."""
        policy = ctx.contract.exceptional
        if policy.nan == "ignore" and policy.inf == "ignore":
            return Verdict(inapplicable=Reason.BY_CONTRACT, note="the contract waives NaN and infinities")
        if ctx.study.random:
            return Verdict(inapplicable=Reason.REFERENCE_RANDOM,
                           note="the reference is random: where a value arrives differs from call to call")
        mine = own(self, records)
        if not mine:
            return Verdict(inapplicable=Reason.NO_SUCH_INPUT, note="no floating input")
        verdict = Verdict()
        if wrong_plainly(r for r in mine if r.probe.kind == "control"):
            # wrong without an injection: what comes out with one tells nothing of it
            verdict.undecided[Reason.VALUE] += len(mine) - 1
            return verdict
        tally: Counter[tuple[str, bool]] = Counter()
        clean = self._clean(ctx, records)
        for record in mine:
            if record.probe.kind == "control":
                continue
            if (reason := undecided_reason(record)) is not None:
                verdict.undecided[reason] += 1
            elif record.observation.status in FAULTS:
                verdict.decided += 1
                verdict.findings.append(fault_finding(self, record, Tier.VIOLATION))
                tally[record.probe.kind, False] += 1
            elif not same_form(record.truths[0], record.observation.calls[0]):
                verdict.undecided[Reason.SHAPE] += 1
            else:
                found = self._classes(ctx, record) or self._rest(record) or self._independent(record, clean)
                verdict.decided += 1
                verdict.findings += found
                tally[record.probe.kind, not found] += 1
        verdict.note = _note(tally)
        verdict.findings = distinct(verdict.findings, limit=12)
        return verdict

    def _classes(self, ctx: Context, record: Record) -> list[Finding]:
        """Outputs in which an element is of another class than the reference's."""
        found = []
        policy = ctx.contract.exceptional
        clause = policy.nan if record.probe.kind == "nan" else policy.inf
        for output, leaf in zip(record.observation.calls[0].outputs, record.truths[0].leaves, strict=True):
            if leaf.kind not in ("float", "complex"):
                continue
            wrong = _class_differs(leaf, output, native_decides=clause == "reference")
            for reason, index, count in _by_reason(leaf, output, wrong):
                expected, actual = leaf.native[index].item(), output.tensor[index].item()
                found.append(Finding(
                    gate=self.id, slug=self.slug, reason=reason, tier=Tier.VIOLATION, tolerance_free=True,
                    output=output.path, index=index, expected=shown(expected), actual=shown(actual),
                    detail={"injected": record.probe.kind, "elements": count,
                            "clause": "nan" if record.probe.kind == "nan" else "inf"}, probe=record.probe.id))
        return found

    def _rest(self, record: Record) -> list[Finding]:
        """Finite elements that came out wrong beside the injected one."""
        found = []
        for compared in compare_call(record, 0):
            if not compared.result.ok and compared.truth.kind in ("float", "complex"):
                leak = finding(self, record, compared, Tier.VIOLATION)
                detail = {**leak.detail, "injected": record.probe.kind}
                found.append(leak.model_copy(update={"reason": Reason.LEAKED, "detail": detail}))
        return found

    def _clean(self, ctx: Context, records: Sequence[Record]) -> Record | None:
        """The draw without an injection, where a candidate owes it the same bits each time; else None.

        On a GPU the order of atomics may move the last bits from run to run.
        """
        if ctx.contract.determinism != "bitwise" or ctx.device == "cuda":
            return None
        again = [r for r in records if r.probe.kind in ("padding", "repeat", "stream")]
        control = next((r for r in own(self, records) if r.probe.kind == "control"), None)
        usable = control is not None and control.comparable and control.observation.ran and repeats(ctx, again)
        return control if usable else None

    def _independent(self, record: Record, clean: Record | None) -> list[Finding]:
        """Elements that a NaN cannot reach, and whose bits it moved.

        A NaN reaches whatever is computed from it; where the reference has the same bits with it and without,
        nothing is. An infinity may vanish in a quotient or a saturated function, so it shows less.
        """
        if clean is None or record.probe.kind != "nan" or not same_form(clean.truths[0], clean.observation.calls[0]):
            return []
        found = []
        pairs = zip(record.observation.calls[0].outputs, clean.observation.calls[0].outputs,
                    record.truths[0].leaves, clean.truths[0].leaves, strict=True)
        for with_it, without, leaf, other in pairs:
            alike = with_it.tensor.shape == without.tensor.shape and with_it.tensor.dtype == without.tensor.dtype
            if leaf.kind not in ("float", "complex") or not alike or leaf.native.shape != other.native.shape:
                continue
            free = ~differing(leaf.native, other.native) & torch.isfinite(leaf.native) & leaf.decided & other.decided
            moved = (differing(with_it.tensor, without.tensor) & free).reshape(-1).nonzero().reshape(-1)
            if moved.numel():
                index = unravel(int(moved[0]), tuple(leaf.native.shape))
                found.append(Finding(
                    gate=self.id, slug=self.slug, reason=Reason.LEAKED, tier=Tier.VIOLATION, tolerance_free=True,
                    output=with_it.path, index=index, expected=shown(without.tensor[index].item()),
                    actual=shown(with_it.tensor[index].item()),
                    detail={"injected": "nan", "elements": int(moved.numel()), "independent": True},
                    probe=record.probe.id))
        return found


def places(shape: Sequence[int], blocks: Sequence[int], count: int,
           structure: Structure | None = None) -> list[tuple[str, float]]:
    """Names and relative positions of elements worth poisoning, the most telling first.

    Inside, at the last element, on both sides of the border of each block along the last dimension, at the
    first element, and on both sides of a border between rows. Elements that the structure keeps at zero are
    left out, and of a symmetric matrix only the diagonal is taken: a kernel need not read the rest.

    Args:
        shape: of the input.
        blocks: block constants of the candidate.
        count: most places.
        structure: of the input's values.
    """
    total = math.prod(shape)
    if total == 0:
        return []
    width = shape[-1] if shape else 1
    rows = total // width
    inner = (rows // 2) * width
    # both ends: halves of a row may go separate ways
    flats = {"inside": int(_FRACTIONS[0] * total), "last": total - 1, "first": 0}
    # the border nearest to the middle first; blocks of a few elements are vectors more often than tiles
    near = sorted(set(blocks), key=lambda block: (block < 8, abs(math.log2(block / max(1, width // 2)))))
    for block in [block for block in near if block < width][:3]:
        flats[f"before-{block}"] = inner + block - 1
        flats[f"at-{block}"] = inner + block
    flats |= {"row-end": min(total - 1, inner + width - 1), "row-start": inner,
              **{f"{fraction:g}": int(fraction * total) for fraction in _FRACTIONS[1:]}}
    chosen: dict[int, str] = {}
    for name, flat in flats.items():
        if structure is not None and not _admitted(flat, shape, structure):
            flat = _nearest_diagonal(flat, shape)
        chosen.setdefault(flat, name)
    # the middle of the element, so that rounding of the fraction cannot move it
    return [(name, (flat + 0.5) / total) for flat, name in list(chosen.items())[:count]]


def _admitted(flat: int, shape: Sequence[int], structure: Structure) -> bool:
    """Whether the structure leaves an element of a matrix free."""
    if len(shape) < 2:
        return True
    row, column = flat // shape[-1] % shape[-2], flat % shape[-1]
    if structure.has("symmetric", "positive_definite", "diagonal"):
        return row == column
    if structure.band is not None and not -structure.band[0] <= column - row <= structure.band[1]:
        return False
    if structure.has("upper_triangular"):
        return column >= row
    return column <= row if structure.has("lower_triangular") else True


def _nearest_diagonal(flat: int, shape: Sequence[int]) -> int:
    """The element on the diagonal in the same row, or the last row that has one."""
    row = flat // shape[-1] % shape[-2]
    start = flat // (shape[-1] * shape[-2]) * shape[-1] * shape[-2]
    on = min(row, shape[-1] - 1)
    return start + on * shape[-1] + on


def _note(tally: Counter[tuple[str, bool]]) -> str | None:
    """How many probes failed under each clause: a swallowed NaN is one that some teams waive."""
    parts = []
    for name, kinds in (("NaN", ("nan",)), ("Inf", ("inf", "-inf"))):
        failed = sum(tally[kind, False] for kind in kinds)
        total = failed + sum(tally[kind, True] for kind in kinds)
        if total:
            parts.append(f"{failed} of {total} {name} probes failed")
    return ", ".join(parts) or None


def _kinds(tensor: torch.Tensor) -> torch.Tensor:
    """0 finite, 1 NaN, 2 +Inf, 3 -Inf; a complex number takes the larger of its parts' kinds."""
    if tensor.is_complex():
        parts = torch.view_as_real(tensor)
        return _kinds(parts).amax(dim=-1)
    kinds = torch.zeros(tensor.shape, dtype=torch.uint8)
    kinds[torch.isnan(tensor)] = 1
    kinds[torch.isposinf(tensor)] = 2
    kinds[torch.isneginf(tensor)] = 3
    return kinds


def _class_differs(leaf: LeafTruth, output: Output, *, native_decides: bool) -> torch.Tensor:
    """Mask of elements whose class differs where native and float64 reference agree on one.

    Args:
        leaf: truth of the output.
        output: what the candidate returned.
        native_decides: take the native reference's class even where float64 gives another.
    """
    native, wide, actual = _kinds(leaf.native), _kinds(leaf.y), _kinds(output.tensor)
    agreed = (native == wide) & leaf.decided
    return (native != actual) & (agreed | (leaf.decided if native_decides else agreed))


def _by_reason(leaf: LeafTruth, output: Output,
               wrong: torch.Tensor) -> Iterator[tuple[Reason, tuple[int, ...], int]]:
    """Each reason among the wrong elements, with its first element and their number."""
    flats = wrong.reshape(-1).nonzero().reshape(-1).tolist()
    seen: dict[Reason, list[int]] = {}
    shape = tuple(leaf.native.shape)
    for flat in flats[:4096]:
        index = unravel(flat, shape)
        seen.setdefault(class_reason(leaf.native[index].item(), output.tensor[index].item()), []).append(flat)
    for reason, members in seen.items():
        yield reason, unravel(members[0], shape), len(members)
