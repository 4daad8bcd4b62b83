"""ORD-03: no loss beyond the bound on inputs made to punish a bad order or algorithm."""

from __future__ import annotations

from collections.abc import Sequence

from assay.gates.base import Context, Verdict
from assay.gates.numeric_plan import ACCUMULATES, SELECTS, admitted, judge_long, lengths, probes_on
from assay.probe.model import Probe
from assay.probe.record import Record

VARIANTS = (
    "offset1000",
    "ramp",
    "sorted",
    "descending",
    "tiny_variance",
    "dominant",
    "wide100",
    "offset10",
    "one_high",
    "high_end",
    "low_end",
    "middle",
    "constant_rows",
)
"""Large offsets (one-pass variance), rows that rise or fall (a maximum that moves from tile to tile),
rows of tiny variance, one element far above the rest, wide values."""


class OrderSensitive:
    """Data on which algorithms differ: one-pass variance, online softmax, differences of prefixes."""

    id = "ORD-03"
    slug = "order_sensitive"
    aliases = ("lethe:ORD-03", "veit:order-sensitivity")
    obligation = "no loss beyond the bound on inputs made to punish a bad order or algorithm"
    opt_in = False

    def plan(self, ctx: Context) -> list[Probe]:
        """A control and the punishing variations, at a reduction over several tiles."""
        return probes_on(self, ctx, lengths(ctx)[0], admitted(ctx, VARIANTS))

    def judge(self, ctx: Context, records: Sequence[Record]) -> Verdict:
        """Within tolerance on each; nothing is said where the control is wrong already."""
        return judge_long(
            self, records, ACCUMULATES | SELECTS, "the reference combines nothing along an axis"
        )
