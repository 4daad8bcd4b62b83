"""BAT-01: a row's bits do not depend on the batch it is in."""

from __future__ import annotations

from collections.abc import Sequence

from assay.gates.base import Context, Verdict, distinct, own, undecided_reason
from assay.gates.numbers import first_difference, same_bits, shown
from assay.oracle import compare
from assay.probe.model import Call, Draw, Probe
from assay.probe.record import Output, Record
from assay.report.model import Finding
from assay.task.facts import TaskSize
from assay.vocabulary import EffortTier, Reason, Tier

BATCH = {EffortTier.QUICK: 6, EffortTier.STANDARD: 33, EffortTier.DEEP: 129}


class BatchInvariance:
    """A batch, and parts of it by themselves: the rows they share agree bit for bit."""

    id = "BAT-01"
    slug = "batch_invariance"
    aliases: tuple[str, ...] = ("veit:batch-invariance",)
    obligation = "opt-in: a row's bits do not depend on its batch"
    opt_in = True

    def plan(self, ctx: Context) -> list[Probe]:
        """For each size that is a batch: all rows, twice, then the first, the last, a few, all but one."""
        probes = []
        for size in ctx.study.integers:
            batched = _batched(ctx, size)
            if not batched:
                continue
            count = max(min(BATCH[ctx.tier], size.maximum or size.native, max(size.native, 4)), size.minimum)
            count += -count % size.multiple_of
            at = {**ctx.small, size.name: count, **dict.fromkeys(size.tied, count)}
            seed = ctx.draw_seed(self.slug, size.name)
            parts = dict.fromkeys(
                p
                for p in ((0, 1), (count - 1, count), (1, 4), (0, count - 1), (count // 2, count))
                if 0 <= p[0] < p[1] <= count and p != (0, count)
            )
            legal = [
                p for p in parts if (p[1] - p[0]) % size.multiple_of == 0 and p[1] - p[0] >= size.minimum
            ]
            draws = (Draw(seed=seed), *(Draw(seed=seed, rows=p, batched=batched) for p in legal))
            probes.append(
                Probe(
                    id=f"{self.slug}/{size.name}={count}",
                    gate=self.slug,
                    kind=size.name,
                    sizes=at,
                    draws=draws,
                    calls=(Call(), *(Call(draw=i) for i in range(1, len(draws))), Call()),
                )
            )
        return probes

    def judge(self, ctx: Context, records: Sequence[Record]) -> Verdict:
        """Rows of the parts against the same rows of the whole, where the reference treats rows alike."""
        mine = own(self, records)
        if not mine:
            return Verdict(inapplicable=Reason.NOTHING_TO_VARY, note="no size of this task is a batch")
        verdict = Verdict()
        for record in mine:
            if (reason := undecided_reason(record)) is not None:
                verdict.undecided[reason] += 1
            elif not record.observation.ran:
                verdict.undecided[Reason.RAISED] += 1
            elif not _repeats(record):
                verdict.undecided[Reason.NOT_REPEATABLE] += 1
            else:
                compared = self._parts(record, verdict)
                if compared:
                    verdict.decided += 1
                else:
                    verdict.undecided[Reason.NOTHING_TO_VARY] += 1
        verdict.findings = distinct(verdict.findings)
        return verdict

    def _parts(self, record: Record, verdict: Verdict) -> int:
        """Compare every part; the number of outputs that could be compared."""
        whole, compared = record.observation.calls[0], 0
        for number, call in enumerate(record.probe.calls[1:-1], start=1):
            rows = record.probe.draws[call.draw].rows
            assert rows is not None
            part = record.observation.calls[number]
            for position, (all_rows, some) in enumerate(zip(whole.outputs, part.outputs, strict=False)):
                if not _rowwise(record, number, position, rows, all_rows, some):
                    continue
                compared += 1
                expected = all_rows.tensor[rows[0] : rows[1]]
                if same_bits(expected, some.tensor):
                    continue
                index = first_difference(expected, some.tensor)
                verdict.findings.append(
                    Finding(
                        gate=self.id,
                        slug=self.slug,
                        reason=Reason.NOT_REPEATABLE,
                        tier=Tier.VIOLATION,
                        tolerance_free=True,
                        output=some.path,
                        index=(index[0] + rows[0], *index[1:]),
                        expected=f"{shown(expected[index].item())}, as in a batch of {all_rows.shape[0]}",
                        actual=f"{shown(some.tensor[index].item())} in a batch of {rows[1] - rows[0]}",
                        probe=record.probe.id,
                    )
                )
        return compared


def _batched(ctx: Context, size: TaskSize) -> tuple[int, ...]:
    """Inputs whose first dimension a size is, where it is nothing else; empty when it is no batch."""
    if not size.varies or size.kind != "size":
        return ()
    mine = {size.name, *size.tied}
    if any(not move.endswith(" dim 0") or not move.startswith(("input ", "output ")) for move in size.moves):
        return ()
    found = [
        leaf.position
        for leaf in ctx.study.tensor_inputs()
        if leaf.axes and mine & set(leaf.axes[0].integers) and leaf.position is not None
    ]
    outputs = [leaf for leaf in ctx.study.outputs if leaf.axes and mine & set(leaf.axes[0].integers)]
    return tuple(found) if found and outputs else ()


def _repeats(record: Record) -> bool:
    first, last = record.observation.calls[0], record.observation.calls[-1]
    return all(same_bits(a.tensor, b.tensor) for a, b in zip(first.outputs, last.outputs, strict=False))


def _rowwise(
    record: Record, number: int, position: int, rows: tuple[int, int], whole: Output, part: Output
) -> bool:
    """Whether an output has a row for each row of the batch, and the reference gives them the same values."""
    full, some = record.truth_of(0).leaves, record.truth_of(number).leaves
    count = rows[1] - rows[0]
    if position >= min(len(full), len(some)) or not whole.shape or whole.dtype != part.dtype:
        return False
    if part.shape != (count, *whole.shape[1:]) or tuple(some[position].y.shape) != part.shape:
        return False
    reference = full[position].native[rows[0] : rows[1]]
    return bool(compare(some[position], reference).ok)
