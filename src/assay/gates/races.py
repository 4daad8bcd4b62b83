"""Programs of one launch in other orders that a GPU may choose: what is right in one order and wrong in another races.

Emulation runs programs one after another. Two further orders are tried of launches that order nothing themselves (see
`assay.run.emulation.orders`); each is one that a GPU may choose, so a wrong result in it is a wrong result.
"""

from __future__ import annotations

from typing import Any

from assay.gates.base import Context
from assay.probe.model import Probe
from assay.probe.record import Record
from assay.report.model import Finding
from assay.vocabulary import Reason, Tier

KIND = "order"
"""Kind of the probes whose programs run in another order."""
ORDERS = {
    "reverse": "the last program of each launch runs first",
    "snapshot": "no program sees what others of its launch have stored",
}
"""The orders, in words."""
LAST_ONE_WINS = frozenset({
    "scatter", "scatter_", "index_put", "index_put_", "_index_put_impl_", "index_copy", "index_copy_", "put", "put_",
    "masked_scatter", "masked_scatter_",
})
"""Operators whose result hangs on an order that they leave open, where indices repeat."""


def in_orders(ctx: Context, probe: Probe) -> list[Probe]:
    """A probe once in each order, on the same draw; only interpreted programs can be ordered."""
    if ctx.device != "cpu" or not {"triton", "gluon"} & {ctx.language, *ctx.languages}:
        return []
    gate, _, name = probe.id.partition("/")
    return [
        probe.model_copy(update={"id": f"{gate}/{order}@{name}", "kind": KIND,
                                 "conditions": (*probe.conditions, f"order:{order}")})
        for order in ORDERS
    ]


def of_control(record: Record) -> str:
    """Id of the probe that a record repeats in another order."""
    gate, _, name = record.probe.id.partition("/")
    return f"{gate}/{name.partition('@')[2]}"


def tells(record: Record) -> bool:
    """Whether a record says something of races: it ended, and the programs of some launch ran in its order.

    An order in which it does not end says nothing: it may order its programs in a way that is not known here.
    """
    open_order = any(LAST_ONE_WINS & set(truth.ops) for truth in record.truths)
    return record.comparable and bool(record.observation.facts.get("reordered")) and not open_order


def raced(record: Record, found: Finding) -> Finding:
    """What is wrong in another order, as a race; with the place where two programs meet, if one was seen."""
    order = next(c.removeprefix("order:") for c in record.probe.conditions if c.startswith("order:"))
    conflict: dict[str, Any] = next(iter(record.observation.facts.get("conflicts") or []), {})
    detail: dict[str, Any] = {**found.detail, "schedule": ORDERS[order]}
    detail |= {key: conflict[key] for key in ("kernel", "line") if conflict.get(key)}
    if conflict:
        done = "reads what another stores" if conflict.get("kind") == "read" else "stores over another's value"
        detail["place"] = f"{conflict.get('kernel')}, candidate.py:{conflict.get('line')}: a program {done}"
    return found.model_copy(update={"reason": Reason.DATA_RACE, "tier": Tier.WRONG, "detail": detail})
