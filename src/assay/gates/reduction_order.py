"""ORD-01: the error of a long reduction stays within the bound of its own rounding."""

from __future__ import annotations

from collections.abc import Sequence

from assay.gates.base import Context, Verdict
from assay.gates.numeric_plan import ACCUMULATES, admitted, judge_long, lengths, probes_on
from assay.probe.model import Probe
from assay.probe.record import Record

VARIANTS = (
    "all_positive",
    "alternating",
    "cancelling",
    "heavy_tailed",
    "all_negative",
    "filled",
    "both_ends",
    "log_filled",
    "levels",
    "lowest",
)
"""Constant-sign, alternating, cancelling and heavy-tailed data; the range of a bounded input."""


class ReductionOrder:
    """Any order of summation passes: the bound is the oracle's, never the bits of another order."""

    id = "ORD-01"
    slug = "reduction_order"
    aliases = ("lethe:ORD-01", "veit:reduction-order")
    obligation = "error within the reduction's own rounding bound"
    opt_in = False

    def plan(self, ctx: Context) -> list[Probe]:
        """A control and variations of the signs and tails of the terms, at a long reduction."""
        return probes_on(self, ctx, lengths(ctx)[1], admitted(ctx, VARIANTS))

    def judge(self, ctx: Context, records: Sequence[Record]) -> Verdict:
        """Within tolerance on each; nothing is said where the control is wrong already."""
        return judge_long(self, records, ACCUMULATES, "the reference adds up nothing")
