"""Asking, of results that are wrong, what coarser arithmetic would have left.

A truth carries that only where a probe was planned with it, because it costs several evaluations of the reference.
Of other probes it is asked once they went wrong, so that what is right in a lower precision is told from what is
wrong in another way. One answer that explains nothing is enough: a gate that finds a candidate wrong needs no more.
Once a mode of operands accounts for a result, the candidate is known to compute in it, and then owes what a contract
that declares the mode would ask for: what it does to results of an exponential, say, cannot be predicted closely.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from assay.gates.attribution import accounted_for, mode_shown, wrong_values
from assay.gates.numbers import compare_record
from assay.probe.record import Record

ASKED = frozenset({"values", "shapes", "dtypes", "layouts", "reduction_order", "order_sensitive", "schedules"})
"""Gates whose findings are numbers out of tolerance."""
PLAIN = frozenset({"distribution", "buffers"})
"""Kinds of probes that are compared in another way."""
INTRINSICS = re.compile(
    r"\b__(?:exp|exp10|log|log2|log10|sin|cos|tan|sincos|pow|fdivide|tanh)f\b|\bfast_[a-z0-9]+f\b"
    r"|\b(?:ex2|lg2|sin|cos|tanh|rcp|rsqrt|sqrt|div)\.approx\b|use_fast_math|--?ffast-math"
)
"""Approximate intrinsics as sources of kernels name them."""


def names_intrinsics(source: str) -> bool:
    """Whether a candidate's source names approximate intrinsics."""
    return INTRINSICS.search(source) is not None


def with_modes(records: Sequence[Record], ask: Callable[[Record, str | None], Record],
               spare: Callable[[], bool]) -> list[Record]:
    """The records, with modes in the truths of those that are wrong by values and may be right in a lower precision.

    Args:
        records: of a plan.
        ask: gives a record's truths their modes, or of one that is settled how much it grants.
        spare: whether there is time for another.
    """
    found = list(records)
    closed: set[str] = set()
    settled: str | None = None
    for place, record in enumerate(found):
        gate = record.probe.gate
        if gate not in ASKED or gate in closed or record.probe.kind in PLAIN or not record.comparable:
            continue
        compared = compare_record(record)
        if all(c.result.ok for c in compared):
            continue
        if not all(wrong_values([c for c in compared if c.call == call]) for call in {
            c.call for c in compared if not c.result.ok
        }) or not spare():
            closed.add(gate)
            continue
        found[place] = asked = ask(record, settled)
        if accounted_for(asked, compared):
            settled = settled or mode_shown(asked)
        else:
            closed.add(gate)
    return found
