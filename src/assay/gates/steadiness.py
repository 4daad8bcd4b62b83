"""Whether a candidate repeats itself, for gates that compare the bits of two runs."""

from __future__ import annotations

from collections.abc import Sequence

from assay.gates.base import Context
from assay.gates.numbers import compare_record, same_bits
from assay.probe.record import Record


def repeats(ctx: Context, records: Sequence[Record]) -> bool:
    """False when any record shows two calls on one draw with different bits.

    A difference between two runs of such a candidate is its own restlessness, not what the runs varied. Where
    a call changes the reference's own state, the next one may give something else: nothing is said then.
    """
    several = [record for record in records if len(record.observation.calls) > 1]
    return bool(ctx.study.stateful) or all(map(_same_calls, several))


def _same_calls(record: Record) -> bool:
    first: dict[int, int] = {}
    for number, call in enumerate(record.probe.calls[: len(record.observation.calls)]):
        if call.instance:
            continue
        earlier = first.setdefault(call.draw, number)
        if earlier == number:
            continue
        outputs = record.observation.calls
        for a, b in zip(outputs[earlier].outputs, outputs[number].outputs, strict=False):
            if a.shape == b.shape and a.dtype == b.dtype and not same_bits(a.tensor, b.tensor):
                return False
    return True


def explained_by_rounding(ctx: Context, pair: Sequence[Record]) -> bool:
    """True when runs may differ in their last bits and both are within tolerance.

    Bits may differ where the contract does not promise them, and on a GPU, where the order of atomics does.
    """
    if ctx.contract.determinism == "bitwise" and ctx.device != "cuda":
        return False
    return all(c.result.ok for record in pair if record.comparable for c in compare_record(record))
